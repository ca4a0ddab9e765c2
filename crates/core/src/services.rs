//! What a running tool may reach through its context: the time, the news, the store, the owner's shared things.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{
    blocking::BlockingPool,
    events::Events,
    extensions::Extensions,
    redact::Redactor,
    state::{StateManager, WriteLocks},
    threads::{InstancePool, ThreadActivity},
};
use toolhub_storage::{
    backend::{Backend, StoreMeters},
    clock::Clock,
};

pub(crate) struct Services {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Events,
    pub(crate) store: Arc<dyn Backend>,
    /// How long it and the stores of states take.
    pub(crate) store_meters: Arc<StoreMeters>,
    /// What tools remember, as JSON.
    pub(crate) state: StateManager,
    /// Whose turn it is to write which of it.
    pub(crate) write_locks: Arc<WriteLocks>,
    /// The live instances of all threads.
    pub(crate) instances: Arc<InstancePool>,
    /// The threads this node has seen lately.
    pub(crate) thread_activity: Arc<ThreadActivity>,
    pub(crate) blocking: BlockingPool,
    /// What the owner shares with all tools, one value per type.
    pub(crate) resources: Extensions,
    /// What is not told, in records and elsewhere.
    pub(crate) redactor: Arc<Redactor>,
    /// Told when what some thread may use has perhaps changed.
    pub(crate) availability_changed: Arc<Notify>,
}
