//! Tools that are blocking functions, run on the bounded blocking pool.

use std::{marker::PhantomData, sync::Arc};

use futures_core::future::BoxFuture;
use serde::Serialize;

use super::{Parameters, function::extract, to_reply, tool_builder};
use crate::{
    execution::{Executor, Job, Reply},
    registry::ToolBuilder,
};
use toolhub_types::error::ToolError;

/// A blocking function that can be a tool: `fn(arguments, …) -> Result<T, E>`.
///
/// Implemented for functions and closures of one to six parameters, as [`Handler`](crate::Handler) is for async ones.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a blocking tool",
    label = "not a blocking tool function",
    note = "a blocking tool is a `fn` that takes its arguments first, then any of `State<S>`, `CallContext`, `Shared<T>`",
    note = "it returns `Result<T, ToolError>` where `T` implements `Serialize`; an `async fn` is registered with `tool`"
)]
pub trait BlockingHandler<P>: Send + Sync + 'static {
    /// The output on success.
    type Output: Serialize;
    /// The error on failure.
    type Error: Into<ToolError>;

    /// Calls the function, on a thread that may block.
    ///
    /// # Errors
    /// Whatever the function returns.
    fn call(&self, parameters: P) -> Result<Self::Output, Self::Error>;
}

macro_rules! handlers {
    ($(($($part:ident),*))*) => {$(
        impl<F, T, E, A, $($part,)*> BlockingHandler<(A, $($part,)*)> for F
        where
            F: Fn(A, $($part,)*) -> Result<T, E> + Send + Sync + 'static,
            T: Serialize,
            E: Into<ToolError>,
        {
            type Output = T;
            type Error = E;

            #[allow(non_snake_case, reason = "the parameters are named like their types")]
            fn call(&self, (arguments, $($part,)*): (A, $($part,)*)) -> Result<T, E> {
                self(arguments, $($part,)*)
            }
        }
    )*};
}
handlers! { () (X1) (X1, X2) (X1, X2, X3) (X1, X2, X3, X4) (X1, X2, X3, X4, X5) }

/// Starts a tool that is a blocking function.
///
/// It cannot be aborted: after a timeout the caller gets its outcome, and the function keeps its thread of the pool until it
/// returns; its state is not committed then. A long-running one should check `cx.is_cancelled()` regularly.
pub fn blocking<H, P>(name: &str, handler: H) -> ToolBuilder
where
    H: BlockingHandler<P>,
    P: Parameters,
{
    let states = P::states();
    let (handler, stateful) = (Arc::new(handler), !states.is_empty());
    tool_builder::<P::Arguments>(
        name,
        &states,
        BlockingExecutor { handler, stateful, parameters: PhantomData::<fn() -> P> },
    )
}

struct BlockingExecutor<H, P> {
    handler: Arc<H>,
    stateful: bool,
    parameters: PhantomData<fn() -> P>,
}

impl<H: BlockingHandler<P>, P: Parameters> Executor for BlockingExecutor<H, P> {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let parameters = extract::<P>(job, self.stateful).await?;
            let handler = self.handler.clone();
            let pool = &job.context.services().blocking;
            // The function holds the call's slot until it returns: it still uses capacity after its call has ended.
            let (slot, stuck) = (job.context.share_slot(), job.context.stuck_counter());
            let work = move || {
                let _held = slot;
                to_reply(handler.call(parameters).map_err(Into::into)?)
            };
            pool.run(job.context.deadline(), stuck, work).await?
        })
    }

    fn needs_thread(&self) -> bool {
        self.stateful
    }

    fn stops_when_dropped(&self) -> bool {
        false
    }
}
