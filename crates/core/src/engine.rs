//! The moving parts of a hub, put together once when it is built.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::extensions::Extensions;
use crate::{
    approvals::Approvals, call::Whereabouts, events::Kept, executor::Executor, hooks::Hook, hub::Offers,
    journal::Journal, registry::Registry, scheduler::Scheduler, services::Services, statuses::Statuses, threads::Book,
};
use toolhub_types::{
    ids::{CallId, Tenant},
    policy::Glob,
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
    /// What other crates keep once for this hub.
    pub(crate) extensions: Extensions,
    pub(crate) tasks: TaskTracker,
    /// Given when the hub is to go down: no call begins any more, and those that wait for a person need not.
    pub(crate) leaving: Leaving,
    /// What the hub does by itself, until it is shut down or dropped.
    pub(crate) own: TaskTracker,
    pub(crate) gone: CancellationToken,
    pub(crate) _gone: DropGuard,
    /// The runtime the hub was built in: calls run there, wherever they are made.
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Engine {
    /// Whether the hub goes down. Asked by every call.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.said.load(Ordering::Relaxed)
    }
}

/// The word that the hub goes down.
#[derive(Default)]
pub(crate) struct Leaving {
    /// Apart, because every call looks at it, and a signal has a lock.
    said: AtomicBool,
    signal: CancellationToken,
}

impl Leaving {
    pub(crate) fn say(&self) {
        self.said.store(true, Ordering::Relaxed);
        self.signal.cancel();
    }

    /// Waits until the hub goes down.
    pub(crate) async fn heard(&self) {
        self.signal.cancelled().await;
    }
}

/// The calls that run on tasks of their own, so that others can look at them and cancel them.
#[derive(Default, Clone)]
pub(crate) struct Live(Arc<Calls>);

#[derive(Default)]
struct Calls {
    running: Mutex<HashMap<CallId, Arc<Whereabouts>>>,
    /// Told when a call begins and no other was running.
    begun: Notify,
}

/// Room for as many is always kept.
const FEW: usize = 1_024;

impl Live {
    /// Notes a call for as long as the answer is held.
    pub(crate) fn enter(&self, whereabouts: &Arc<Whereabouts>) -> Running {
        let call = whereabouts.id;
        let mut running = self.running();
        let first = running.is_empty();
        // Two calls may have one id, if their caller minted it: the first is found, and the second will be refused.
        running.entry(call).or_insert_with(|| whereabouts.clone());
        drop(running);
        if first {
            self.0.begun.notify_one();
        }
        Running { whereabouts: whereabouts.clone(), live: self.clone() }
    }

    /// Where a call is, if it runs here.
    pub(crate) fn find(&self, call: CallId) -> Option<Arc<Whereabouts>> {
        self.running().get(&call).cloned()
    }

    /// Where the calls of a tenant are that run here.
    pub(crate) fn of_tenant(&self, tenant: &Tenant) -> Vec<Arc<Whereabouts>> {
        self.running().values().filter(|call| call.tenant == *tenant).cloned().collect()
    }

    /// Cancels all, because the hub goes down.
    pub(crate) fn cut_all_off(&self) {
        let all: Vec<_> = self.running().values().cloned().collect();
        for call in all {
            call.cut_off();
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

    fn running(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Whereabouts>>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is running.
pub(crate) struct Running {
    whereabouts: Arc<Whereabouts>,
    live: Live,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut live = self.live.running();
        let call = &self.whereabouts.id;
        if live.get(call).is_some_and(|found| Arc::ptr_eq(found, &self.whereabouts)) {
            live.remove(call);
        }
        self.whereabouts.ends();
        // A flood of calls must not leave its size behind. Halved at a quarter, so that it is not moved back and forth.
        if live.capacity() > FEW && live.len() < live.capacity() / 4 {
            let room = live.capacity() / 2;
            live.shrink_to(room);
        }
    }
}
