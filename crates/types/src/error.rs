//! Errors of calls: the table of error kinds, and the two error types built on it.
//!
//! `kind` is the table. Tools and executors raise `ToolError`; callers receive `CallError`.
//! The HTTP and MCP servers translate errors from the table's columns, each in one file.

mod call_error;
mod kind;
mod tool_error;

pub use call_error::{CallError, Detail};
pub use kind::{CountsAsFailure, ErrorKind, ErrorRow, FailureScope};
pub use tool_error::ToolError;
