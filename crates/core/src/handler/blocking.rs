//! Tools that are blocking functions, run on the bounded blocking pool.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use serde::Serialize;

use super::{Arguments, parse_arguments, to_reply, tool_builder};
use crate::{
    execution::{CallContext, Executor, Job, Reply},
    registry::ToolBuilder,
};
use toolhub_types::error::ToolError;

/// A blocking function that can be a tool: `fn(arguments) -> Result<T, E>`, optionally with a `CallContext` as second parameter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a blocking tool",
    label = "not a blocking tool function",
    note = "a blocking tool is a `fn` that takes its arguments, and after them a `CallContext` if it wants one",
    note = "it returns `Result<T, ToolError>` where `T` implements `Serialize`; an `async fn` is registered with `tool`"
)]
pub trait BlockingHandler<Parameters>: Send + Sync + 'static {
    /// The type of the arguments.
    type Arguments: Arguments;

    /// Runs it once, on a thread that may block.
    ///
    /// # Errors
    /// Whatever the function returns.
    fn run(&self, arguments: Self::Arguments, cx: CallContext) -> Result<Reply, ToolError>;
}

impl<F, A, T, E> BlockingHandler<(A, T, E)> for F
where
    F: Fn(A) -> Result<T, E> + Send + Sync + 'static,
    A: Arguments,
    T: Serialize,
    E: Into<ToolError>,
{
    type Arguments = A;

    fn run(&self, arguments: A, _: CallContext) -> Result<Reply, ToolError> {
        to_reply(self(arguments).map_err(Into::into)?)
    }
}

impl<F, A, T, E> BlockingHandler<(A, T, E, CallContext)> for F
where
    F: Fn(A, CallContext) -> Result<T, E> + Send + Sync + 'static,
    A: Arguments,
    T: Serialize,
    E: Into<ToolError>,
{
    type Arguments = A;

    fn run(&self, arguments: A, cx: CallContext) -> Result<Reply, ToolError> {
        to_reply(self(arguments, cx).map_err(Into::into)?)
    }
}

/// Starts a tool that is a blocking function.
///
/// It cannot be aborted: after a timeout the caller gets its outcome, and the function keeps its thread of the pool until it
/// returns. A long-running one should check `cx.is_cancelled()` regularly.
pub fn blocking<H, P>(name: &str, handler: H) -> ToolBuilder
where
    H: BlockingHandler<P>,
    P: 'static,
{
    let parameters = std::marker::PhantomData::<fn() -> P>;
    tool_builder::<H::Arguments>(name, &[], BlockingExecutor { handler: Arc::new(handler), parameters })
}

struct BlockingExecutor<H, P> {
    handler: Arc<H>,
    parameters: std::marker::PhantomData<fn() -> P>,
}

impl<H: BlockingHandler<P>, P: 'static> Executor for BlockingExecutor<H, P> {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let arguments = parse_arguments(job.arguments)?;
            let (handler, cx) = (self.handler.clone(), job.context.clone());
            let pool = &job.context.services().blocking;
            // The function holds the call's slot until it returns: it still uses capacity after its call has ended.
            let (slot, stuck) = (job.context.share_slot(), job.context.stuck_counter());
            let work = move || {
                let _held = slot;
                handler.run(arguments, cx)
            };
            pool.run(job.context.deadline(), stuck, work).await?
        })
    }

    fn stops_when_dropped(&self) -> bool {
        false
    }
}
