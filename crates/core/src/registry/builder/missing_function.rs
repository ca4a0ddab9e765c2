//! Executor of a tool without an implementation.
//!
//! In: a call, which the status of the tool has refused before. Out: an error, always.

use crate::execution::{BoxFuture, Executor, Job, Reply};
use toolhub_types::error::ToolError;

pub(super) struct MissingFunction;

impl Executor for MissingFunction {
    fn execute<'a>(&'a self, _: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async { Err(ToolError::refused("the tool has no implementation").uncounted()) })
    }
}
