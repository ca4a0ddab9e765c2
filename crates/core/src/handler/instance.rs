//! Tools that are live objects, one per thread: a connection, a browser page, an interpreter.

use std::{future::Future, marker::PhantomData};

use futures_core::future::BoxFuture;
use serde::Serialize;

use super::{Arguments, built, read, reply};
use crate::{
    call::Effect,
    context::CallContext,
    error::{ErrorKind, ToolError},
    executor::{Executor, Job, Reply},
    registry::ToolBuilder,
};

/// A live object that belongs to one thread and serves one call at a time.
///
/// It may be dropped and made again at any time, so it holds connections, not truth; what must be remembered belongs
/// into a [`ToolState`](crate::ToolState).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot live in a thread as the instance of a tool",
    label = "not an `Instance`",
    note = "the factory is an async function that takes a `CallContext` and returns `Result<I, ToolError>` where `I: Instance`"
)]
pub trait Instance: Send + 'static {
    /// The arguments of a call.
    type Arguments: Arguments;
    /// What a call returns.
    type Output: Serialize;

    /// Runs the tool once.
    fn call(
        &mut self,
        arguments: Self::Arguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Says goodbye in an orderly way. Not called for an instance that crashed or whose call was cut off.
    fn close(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        async {}
    }
}

/// Begins a tool whose instances are made by `factory`: in each thread when it is first used there.
pub fn instance<F, Fut, I>(name: &str, factory: F) -> ToolBuilder
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: Instance,
{
    built::<I::Arguments>(name, &[], Instances { factory, makes: PhantomData })
}

struct Instances<F, I> {
    factory: F,
    makes: PhantomData<fn() -> I>,
}

impl<F, Fut, I> Executor for Instances<F, I>
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: Instance,
{
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let arguments = read(job.arguments)?;
            let thread = job
                .context
                .thread()
                .ok_or_else(|| ToolError::hidden(ErrorKind::Internal, "an instance was asked for without a thread"))?;
            let place =
                job.context.services().threads.get_or_create(job.context.tenant(), thread).get::<I>(&job.tool.name);
            let mut seat = place.take().await;
            let mut live = match seat.take() {
                Some(live) => live,
                None => (self.factory)(job.context.clone()).await.map_err(|error| error.effect(Effect::None))?,
            };
            // The instance is out of its place while it works. If it panics, or the call is cut off here, it is not
            // put back: the next call gets a new one.
            let result = live.call(arguments, job.context).await;
            *seat = Some(live);
            reply(result?)
        })
    }

    fn needs_thread(&self) -> bool {
        true
    }
}
