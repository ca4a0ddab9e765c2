//! The data types of a call: request, identity, updates, input and receipt.
//!
//! Plain data. `pipeline.rs` turns a call into its outcome.

mod approval_reuse;
mod batch_progress;
mod head;
mod input;
mod receipt;
mod report_error;
mod request;
mod updates;
mod wait;

pub use approval_reuse::ApprovalReuse;
pub(crate) use batch_progress::{BatchProgress, BatchStages, outcomes, receipts};
pub(crate) use head::CallHead;
pub use input::{InputError, InputHandler, InputKind, InputRequest};
pub use receipt::CallReceipt;
pub use report_error::ReportError;
pub(crate) use request::Call;
pub(crate) use updates::UpdateSink;
pub(crate) use wait::CallerWait;
