//! The moving parts of a hub, put together once when it is built.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    approvals::Approvals,
    batched_records::BatchedRecords,
    events::EventLog,
    execution::Executor,
    extensions::Extensions,
    hooks::Hook,
    journal::{Journal, LiveCalls},
    offers::Offers,
    registry::Registry,
    scheduler::Scheduler,
    services::Services,
    statuses::Statuses,
    threads::ThreadStore,
};
use toolhub_types::{policy::Glob, tool::Kind};

pub(crate) struct Engine {
    pub(crate) registry: Registry,
    pub(crate) journal: Journal,
    /// Records of plain read-only calls; none where no store was handed in, so that nobody wants them.
    pub(crate) batched_records: Option<Arc<BatchedRecords>>,
    /// The events that can be heard later; none where no store was handed in.
    pub(crate) event_log: Option<Arc<EventLog>>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) scheduler: Scheduler,
    pub(crate) statuses: Arc<Statuses>,
    /// Which threads there are.
    pub(crate) thread_store: Arc<ThreadStore>,
    pub(crate) services: Arc<Services>,
    pub(crate) executors: HashMap<Kind, Arc<dyn Executor>>,
    pub(crate) hooks: Vec<(Glob, Arc<dyn Hook>)>,
    pub(crate) live_calls: LiveCalls,
    pub(crate) offers: Offers,
    /// What other crates keep once for this hub.
    pub(crate) extensions: Extensions,
    pub(crate) call_tasks: TaskTracker,
    /// Given when the hub is to go down: no call begins any more, and those that wait for a person need not.
    pub(crate) shutdown: Shutdown,
    /// What the hub does by itself, until it is shut down or dropped.
    pub(crate) background_tasks: TaskTracker,
    pub(crate) stopped: CancellationToken,
    pub(crate) _stop_guard: DropGuard,
    /// The runtime the hub was built in: calls run there, wherever they are made.
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Engine {
    /// Whether the hub goes down. Asked by every call.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutdown.is_requested.load(Ordering::Relaxed)
    }
}

/// The word that the hub goes down.
#[derive(Default)]
pub(crate) struct Shutdown {
    /// Apart, because every call looks at it, and a signal has a lock.
    is_requested: AtomicBool,
    signal: CancellationToken,
}

impl Shutdown {
    pub(crate) fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
        self.signal.cancel();
    }

    /// Waits until the hub goes down.
    pub(crate) async fn requested(&self) {
        self.signal.cancelled().await;
    }
}
