//! The data types of a call: request, identity, progress and receipt.
//!
//! Plain data. `pipeline.rs` turns a call into its outcome.

mod batch_progress;
mod head;
mod progress;
mod receipt;
mod report_error;
mod request;
mod wait;

pub(crate) use batch_progress::{BatchProgress, BatchStages, outcomes, receipts};
pub(crate) use head::CallHead;
pub(crate) use progress::ProgressSink;
pub use receipt::CallReceipt;
pub use report_error::ReportError;
pub(crate) use request::Call;
pub(crate) use wait::CallerWait;
