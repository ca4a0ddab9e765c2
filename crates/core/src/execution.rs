//! The types of an execution: the registered tool and its executor, the call's envelope, its slot, and the context of a running
//! tool.
//!
//! They are one module because they refer to each other: a tool has an executor, an executor gets a context, a context holds the
//! tool.

mod context;
mod envelope;
mod executor;
mod slot;
mod tool;

pub(crate) use context::AttemptTimes;
pub use context::{CallContext, HeldSlot, INPUT_TIMEOUT};
pub(crate) use envelope::{CallEnvelope, Extras};
pub use executor::{BoxFuture, Executor, Job, Reply};
pub(crate) use slot::{CallSlot, WeakSlot};
pub(crate) use tool::EvidenceDemand;
pub use tool::Tool;
