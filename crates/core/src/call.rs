//! A call and its end: what a caller asks for, and the one outcome it gets.
//!
//! Plain data. The way from one to the other is `pipeline.rs`.

mod head;
mod progress;
mod receipt;
mod report_error;
mod request;
mod wait;

pub(crate) use head::CallHead;
pub(crate) use progress::ProgressSink;
pub use receipt::CallReceipt;
pub use report_error::ReportError;
pub(crate) use request::Call;
pub(crate) use wait::CallerWait;
