//! `Services`: the components that a running tool reaches through its context: clock, events, store, state, instances, resources.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{
    alerts::Alerts,
    blocking::BlockingPool,
    events::Events,
    extensions::Extensions,
    monitor::RefusalLog,
    scheduler::{SharedPermits, SharedRates},
    sealing::Sealer,
    threads::{InstancePool, ThreadActivity},
};
use toolhub_state::{StateManager, WriteLocks};
use toolhub_storage::{
    backend::{Backend, StoreMeters},
    clock::Clock,
};
use toolhub_types::redact::Redactor;

pub(crate) struct Services {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Events,
    /// The targets of alerts, and the conditions that hold on this node.
    pub(crate) alerts: Arc<Alerts>,
    pub(crate) store: Arc<dyn Backend>,
    /// Latencies of the store and of the state stores.
    pub(crate) store_meters: Arc<StoreMeters>,
    /// The state of tools.
    pub(crate) state: StateManager,
    /// The write locks of states on this node.
    pub(crate) write_locks: Arc<WriteLocks>,
    /// The live instances of all threads.
    pub(crate) instances: Arc<InstancePool>,
    /// The threads recently used on this node.
    pub(crate) thread_activity: Arc<ThreadActivity>,
    pub(crate) blocking: BlockingPool,
    /// Rate limits of all nodes; `None` if the store has no other user, and each tool's own limiter decides.
    pub(crate) shared_rates: Option<Arc<SharedRates>>,
    /// Concurrency limits of all nodes; `None` if the store has no other user, and each tool's own queue decides.
    pub(crate) shared_permits: Option<Arc<SharedPermits>>,
    /// The resources shared with all tools, one value per type.
    pub(crate) resources: Extensions,
    /// Redacts secrets in records, approvals and events.
    pub(crate) redactor: Arc<Redactor>,
    /// Seals secrets in records that must hold them.
    pub(crate) sealer: Sealer,
    /// The latest refused calls.
    pub(crate) refusals: RefusalLog,
    /// Notified when the available tools of some thread may have changed.
    pub(crate) availability_changed: Arc<Notify>,
}
