//! Everything that can go wrong with a call, as one table and three shapes.
//!
//! `kind` is the table. `ToolError` is what a tool or an executor raises; `CallError` is what a caller sees.
//! Translation to HTTP and to MCP happens where those doors are, from the table's columns.

mod call_error;
mod kind;
mod tool_error;

pub use call_error::{CallError, Detail};
pub use kind::{CountsAsFailure, ErrorKind, ErrorRow, FailureScope};
pub use tool_error::ToolError;
