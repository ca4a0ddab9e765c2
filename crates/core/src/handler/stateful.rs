//! `StatefulTool`: tools as trait implementations with `&mut` access to their state.

use std::future::Future;

use futures_core::future::BoxFuture;
use serde::Serialize;

use super::{Arguments, FromCall, parse_arguments, to_reply, tool_builder};
use crate::{
    execution::{CallContext, Executor, Job, Reply},
    handler::State,
    registry::ToolBuilder,
};
use toolhub_state::ToolState;
use toolhub_types::error::ToolError;

/// A tool with state, as a trait: for tools that carry settings of their own.
///
/// The state is loaded before `call` and committed after it returned `Ok`; after `Err` it stays as it was.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stateful tool",
    label = "not a `StatefulTool`",
    note = "implement `StatefulTool` for it, or write an `async fn` that takes `State<S>` and register it with `tool`"
)]
pub trait StatefulTool: Send + Sync + 'static {
    /// The arguments of a call.
    type Arguments: Arguments;
    /// The state per thread.
    type State: ToolState;
    /// What a call returns.
    type Output: Serialize;

    /// Runs the tool once.
    fn call(
        &self,
        arguments: Self::Arguments,
        state: &mut Self::State,
        cx: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
}

/// Starts a tool that is a [`StatefulTool`].
pub fn stateful<T: StatefulTool>(name: &str, tool: T) -> ToolBuilder {
    tool_builder::<T::Arguments>(name, &[T::State::NAME], StatefulExecutor(tool))
}

struct StatefulExecutor<T>(T);

impl<T: StatefulTool> Executor for StatefulExecutor<T> {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let arguments = parse_arguments(job.arguments)?;
            let mut state = job.context.wait_before_start(State::<T::State>::from_call(job.context)).await??;
            let output = self.0.call(arguments, &mut state, job.context).await?;
            to_reply(output)
        })
    }

    fn needs_thread(&self) -> bool {
        true
    }
}
