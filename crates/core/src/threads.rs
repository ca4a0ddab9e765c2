//! Threads (conversations): which exist, when they were active, and their live tool instances.
//!
//! In: calls that name a thread. Out: a lease on the tool's instance in that thread, and the list of threads. The state
//! tools store per thread is in `state`; access control is decided elsewhere.

mod activity;
mod instance_info;
mod instance_pool;
mod instance_slot;
mod own_removals;
mod pool_state;
mod recent;
mod record;
mod row_backend;
mod store;

pub(crate) use activity::ThreadActivity;
pub use instance_info::InstanceInfo;
pub(crate) use instance_pool::{InstanceLease, InstancePool, run_exclusive, run_idle_sweeper};
pub(crate) use instance_slot::InstanceCell;
pub(crate) use pool_state::InstanceLimits;
pub use recent::ThreadPosition;
pub(crate) use record::row_key;
pub(crate) use row_backend::ThreadRowBackend;
pub(crate) use store::{StoredThread, ThreadStore, run_activity_flusher};
pub use store::{ThreadInfo, ThreadPage};
