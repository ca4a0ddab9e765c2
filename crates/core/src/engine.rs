//! `Engine`: the components of a hub, assembled once by `HubBuilder`.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    approvals::Approvals,
    argument_memory::ArgumentMemory,
    batched_records::BatchedRecords,
    events::{EventLog, Relay},
    execution::Executor,
    extensions::Extensions,
    hooks::Hook,
    journal::{Journal, LiveCalls},
    nodes::Nodes,
    offers::Offers,
    registry::Registry,
    requests::NodeRequestHandlers,
    scheduler::Scheduler,
    services::Services,
    source_lists::SourceListTable,
    statuses::Statuses,
    threads::ThreadStore,
};
use toolhub_types::{outcome::Outcome, policy::Glob, timestamp::Timestamp, tool::Kind};

pub(crate) struct Engine {
    pub(crate) registry: Registry,
    pub(crate) journal: Journal,
    /// The nodes that share the store.
    pub(crate) nodes: Arc<Nodes>,
    /// What other nodes ask of this one.
    pub(crate) node_requests: NodeRequestHandlers,
    /// Records of plain read-only calls; `None` if the hub was given no store.
    pub(crate) batched_records: Option<Arc<BatchedRecords>>,
    /// The stored events; `None` if the hub was given no store.
    pub(crate) event_log: Option<Arc<EventLog>>,
    /// Passes events between the nodes of a shared store.
    pub(crate) event_relay: Option<Arc<Relay>>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) scheduler: Scheduler,
    pub(crate) argument_memory: ArgumentMemory,
    pub(crate) statuses: Arc<Statuses>,
    /// The records of threads.
    pub(crate) thread_store: Arc<ThreadStore>,
    pub(crate) services: Arc<Services>,
    /// What sources bring besides tools.
    pub(crate) source_lists: SourceListTable,
    pub(crate) executors: HashMap<Kind, Arc<dyn Executor>>,
    pub(crate) hooks: Vec<(Glob, Arc<dyn Hook>)>,
    pub(crate) live_calls: LiveCalls,
    pub(crate) offers: Offers,
    /// When the hub was built; unset while it registers its first tools.
    pub(crate) started_at: OnceLock<Timestamp>,
    /// Per-hub singletons of other crates.
    pub(crate) extensions: Extensions,
    /// Whether `metrics.tick` is emitted once a second.
    pub(crate) has_metrics_ticks: AtomicBool,
    pub(crate) call_tasks: TaskTracker,
    /// The shutdown signal: no call is admitted any more, and waits for approval end.
    pub(crate) shutdown: Shutdown,
    /// The background tasks, which run until the hub is shut down or dropped.
    pub(crate) background_tasks: TaskTracker,
    /// Cancelled when the background tasks must stop: at the end of the shutdown, or on drop.
    pub(crate) stopped: CancellationToken,
    pub(crate) _stop_guard: DropGuard,
    /// The runtime in which the hub was built. Calls run there, regardless of the runtime they are made from.
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Engine {
    /// Whether shutdown was requested. Checked by every call.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutdown.is_requested.load(Ordering::Relaxed)
    }

    /// Where a plain read-only call with this outcome is recorded, if it is.
    pub(crate) fn records_of(&self, outcome: &Outcome) -> Option<&BatchedRecords> {
        self.batched_records.as_deref().filter(|records| records.accepts(outcome))
    }
}

/// The shutdown signal of a hub.
#[derive(Default)]
pub(crate) struct Shutdown {
    /// A flag beside the token, because every call reads it, and the token takes a lock.
    is_requested: AtomicBool,
    signal: CancellationToken,
}

impl Shutdown {
    pub(crate) fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
        self.signal.cancel();
    }

    /// Resolves when shutdown is requested.
    pub(crate) async fn requested(&self) {
        self.signal.cancelled().await;
    }
}
