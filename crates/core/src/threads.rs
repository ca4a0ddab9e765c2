//! Conversations: the live instances of each, and which ones there are.
//!
//! In: calls that name a thread. Out: a place for the tool's instance, and an answer to "is there such a thread?". What
//! tools remember of a thread is `state`; who may call in it is decided elsewhere.

mod activity;
mod context;
mod instance_pool;
mod instance_slot;
mod pool_state;
mod store;

pub(crate) use activity::ThreadActivity;
pub use context::{InstanceInfo, ThreadContext, Threads};
pub(crate) use instance_pool::{InstanceLease, InstancePool, run_exclusive, run_idle_sweeper};
pub(crate) use instance_slot::InstanceCell;
pub(crate) use pool_state::InstanceLimits;
pub use store::{ThreadInfo, ThreadPage};
pub(crate) use store::{ThreadStore, row_key, run_activity_flusher};
