//! The moving parts of a hub, put together once when it is built.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    approvals::Approvals, events::Kept, executor::Executor, hooks::Hook, hub::Offers, ids::CallId, journal::Journal,
    policy::Glob, registry::Registry, scheduler::Scheduler, services::Services, statuses::Statuses, threads::Book,
    tool::Kind,
};

pub(crate) struct Engine {
    pub(crate) registry: Registry,
    pub(crate) journal: Journal,
    /// The events that can be heard later; none where no store was handed in.
    pub(crate) kept_events: Option<Arc<Kept>>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) scheduler: Scheduler,
    pub(crate) statuses: Arc<Statuses>,
    /// Which threads there are.
    pub(crate) book: Arc<Book>,
    pub(crate) services: Arc<Services>,
    pub(crate) executors: HashMap<Kind, Arc<dyn Executor>>,
    pub(crate) hooks: Vec<(Glob, Arc<dyn Hook>)>,
    pub(crate) live: Live,
    pub(crate) offers: Offers,
    pub(crate) tasks: TaskTracker,
    /// What the hub does by itself, until it is shut down or dropped.
    pub(crate) own: TaskTracker,
    pub(crate) gone: CancellationToken,
    pub(crate) _gone: DropGuard,
    /// The runtime the hub was built in: calls run there, wherever they are made.
    pub(crate) runtime: tokio::runtime::Handle,
}

/// The calls that run on tasks of their own, so that anybody who knows an id can cancel one.
#[derive(Default, Clone)]
pub(crate) struct Live(Arc<Calls>);

#[derive(Default)]
struct Calls {
    running: Mutex<HashMap<CallId, CancellationToken>>,
    /// Told when a call begins and no other was running.
    begun: Notify,
}

/// Room for as many is always kept.
const FEW: usize = 1_024;

impl Live {
    /// Notes a call for as long as the answer is held.
    pub(crate) fn enter(&self, call: CallId, cancel: Option<CancellationToken>) -> Running {
        let mut running = self.running();
        let first = running.is_empty();
        running.insert(call, cancel.unwrap_or_default());
        drop(running);
        if first {
            self.0.begun.notify_one();
        }
        Running { call, live: self.clone() }
    }

    /// Cancels a call; says whether it was running.
    pub(crate) fn cancel(&self, call: CallId) -> bool {
        let token = self.running().get(&call).cloned();
        token.inspect(CancellationToken::cancel).is_some()
    }

    pub(crate) fn cancel_all(&self) {
        for token in self.running().values() {
            token.cancel();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.running().len()
    }

    /// Whether this call is running here.
    pub(crate) fn has(&self, call: CallId) -> bool {
        self.running().contains_key(&call)
    }

    /// Waits until a call begins, or answers at once if one has begun since this was last asked.
    pub(crate) async fn begun(&self) {
        self.0.begun.notified().await;
    }

    fn running(&self) -> MutexGuard<'_, HashMap<CallId, CancellationToken>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is running.
pub(crate) struct Running {
    call: CallId,
    live: Live,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut live = self.live.running();
        live.remove(&self.call);
        // A flood of calls must not leave its size behind. Halved at a quarter, so that it is not moved back and forth.
        if live.capacity() > FEW && live.len() < live.capacity() / 4 {
            let room = live.capacity() / 2;
            live.shrink_to(room);
        }
    }
}
