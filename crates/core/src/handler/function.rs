//! Tools that are async functions: arguments first, then extractors.

use std::{future::Future, marker::PhantomData};

use futures_core::future::BoxFuture;
use serde::Serialize;

use super::{Arguments, FromCall, parse_arguments, to_reply, tool_builder};
use crate::{
    execution::{Executor, Job, Reply},
    registry::ToolBuilder,
};
use toolhub_types::{effect::Effect, error::ToolError};

/// An async function that can be a tool.
///
/// Implemented for functions and closures of one to six parameters (see [`Parameters`]) that return `Result<T, E>` with
/// an output that serializes and an error that becomes a [`ToolError`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a tool",
    label = "not a tool function",
    note = "a tool is an `async fn` whose first parameter is its arguments (`Deserialize` + `JsonSchema`, or `NoArguments`)",
    note = "its other parameters are any of `State<S>`, `CallContext`, `Shared<T>`",
    note = "it returns `Result<T, ToolError>` where `T` implements `Serialize`, and its future must be `Send`",
    note = "a plain `fn` is registered with `blocking` instead of `tool`"
)]
pub trait Handler<P>: Send + Sync + 'static {
    /// The output on success.
    type Output: Serialize;
    /// The error on failure.
    type Error: Into<ToolError>;

    /// Calls the function.
    fn call(&self, parameters: P) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;
}

/// The parameters of a tool function: its arguments, then types that implement [`FromCall`].
///
/// A trait of its own, not part of [`Handler`], so that a compile error names the one parameter that does not fit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the parameters of a tool",
    note = "a tool takes its arguments first, then any of `State<S>`, `CallContext` and `Shared<T>`"
)]
pub trait Parameters: Sized + Send + 'static {
    /// The type of the arguments.
    type Arguments: Arguments;

    /// The names of the states that are checked out.
    fn states() -> Vec<&'static str>;

    /// Extracts all parameters for one execution.
    fn from_job(job: Job<'_>) -> impl Future<Output = Result<Self, ToolError>> + Send;
}

/// Marks an extraction error: the tool has not run, so it had no effect.
fn not_started(error: ToolError) -> ToolError {
    error.effect(Effect::None)
}

macro_rules! parameters {
    ($($part:ident),*) => {
        impl<A: Arguments, $($part: FromCall,)*> Parameters for (A, $($part,)*) {
            type Arguments = A;

            fn states() -> Vec<&'static str> {
                let states: &[Option<&'static str>] = &[$($part::STATE,)*];
                states.iter().copied().flatten().collect()
            }

            async fn from_job(job: Job<'_>) -> Result<Self, ToolError> {
                Ok((parse_arguments(job.arguments)?, $($part::from_call(job.context).await.map_err(not_started)?,)*))
            }
        }

        impl<F, Fut, T, E, A, $($part,)*> Handler<(A, $($part,)*)> for F
        where
            F: Fn(A, $($part,)*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<T, E>> + Send + 'static,
            T: Serialize,
            E: Into<ToolError>,
        {
            type Output = T;
            type Error = E;

            #[allow(non_snake_case, reason = "the parameters are named like their types")]
            fn call(&self, (arguments, $($part,)*): (A, $($part,)*)) -> impl Future<Output = Result<T, E>> + Send {
                self(arguments, $($part,)*)
            }
        }
    };
}
parameters!();
parameters!(X1);
parameters!(X1, X2);
parameters!(X1, X2, X3);
parameters!(X1, X2, X3, X4);
parameters!(X1, X2, X3, X4, X5);

/// Starts a tool that is an async function.
///
/// Its default description is the doc comment of its arguments' type.
pub fn tool<H, P>(name: &str, handler: H) -> ToolBuilder
where
    H: Handler<P>,
    P: Parameters,
{
    let states = P::states();
    tool_builder::<P::Arguments>(
        name,
        &states,
        FunctionExecutor { handler, stateful: !states.is_empty(), parameters: PhantomData },
    )
}

/// Extracts the parameters of one execution. State is loaded from the store, which may be slow: a timeout here must not count
/// against the tool.
pub(super) async fn extract<P: Parameters>(job: Job<'_>, stateful: bool) -> Result<P, ToolError> {
    let extraction = P::from_job(job);
    if stateful { job.context.wait_before_start(extraction).await? } else { extraction.await }
}

struct FunctionExecutor<H, P> {
    handler: H,
    stateful: bool,
    parameters: PhantomData<fn() -> P>,
}

impl<H: Handler<P>, P: Parameters> Executor for FunctionExecutor<H, P> {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let parameters = extract::<P>(job, self.stateful).await?;
            to_reply(self.handler.call(parameters).await.map_err(Into::into)?)
        })
    }

    fn needs_thread(&self) -> bool {
        self.stateful
    }
}
