//! Tools that are live objects which serve many calls of their thread at once: a pool, a multiplexed connection.
//!
//! In: a factory. Out: an executor that makes an instance in each thread where it is used, once, and lets all calls of the
//! thread use it together.

use std::{future::Future, marker::PhantomData, sync::Arc};

use futures_core::future::BoxFuture;
use serde::Serialize;

use super::{
    Arguments,
    instance::{CRASHED, acquire_cell},
    parse_arguments, to_reply, tool_builder,
};
use crate::{
    execution::{CallContext, Executor, Job, Reply},
    registry::ToolBuilder,
    threads::{InstanceCell, InstanceLease, run_exclusive},
};
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
};

/// A live object that belongs to one thread and serves many calls of it at once.
///
/// Like an [`Instance`](crate::Instance) it may be dropped and made again at any time. A call that is cut off leaves it
/// where it is, because others use it; one that crashes takes it away, and the next call gets a new one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot live in a thread as the shared instance of a tool",
    label = "not a `SharedInstance`",
    note = "the factory is an async function that takes a `CallContext` and returns `Result<I, ToolError>` where `I: SharedInstance`"
)]
pub trait SharedInstance: Send + Sync + 'static {
    /// The arguments of a call.
    type Arguments: Arguments;
    /// What a call returns.
    type Output: Serialize;

    /// Runs the tool once, perhaps beside other calls.
    fn call(
        &self,
        arguments: Self::Arguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Says goodbye in an orderly way, within ten seconds, when no call uses it. Not called for one that crashed.
    fn close(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        async {}
    }
}

/// Begins a tool whose instances are made by `factory`, in each thread when it is first used there, and serve many calls at
/// once.
pub fn shared_instance<F, Fut, I>(name: &str, factory: F) -> ToolBuilder
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: SharedInstance,
{
    tool_builder::<I::Arguments>(name, &[], SharedInstanceExecutor { factory, instance_type: PhantomData })
}

struct SharedInstanceExecutor<F, I> {
    factory: F,
    instance_type: PhantomData<fn() -> I>,
}

async fn close<I: SharedInstance>(live: Arc<I>) {
    // No call is in the room, so this is the last share; unless the instance has given itself away.
    if let Some(live) = Arc::into_inner(live) {
        live.close().await;
    }
}

impl<F, Fut, I> SharedInstanceExecutor<F, I>
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: SharedInstance,
{
    /// A share of the instance. Whoever finds none makes it, while the others wait.
    async fn get_or_create(
        &self,
        place: &InstanceLease,
        chair: &InstanceCell<Arc<I>>,
        context: &CallContext,
    ) -> Result<Arc<I>, ToolError> {
        if let Some(live) = chair.get_shared() {
            return Ok(live);
        }
        let making = async {
            let _turn = chair.lock_exclusive().await;
            if let Some(live) = chair.get_shared() {
                return Ok(live);
            }
            let live = (self.factory)(context.clone()).await.map_err(|error| error.effect(Effect::None))?;
            let live = Arc::new(live);
            chair.put(live.clone());
            place.mark_created();
            Ok(live)
        };
        run_exclusive(place, making).await?
    }
}

/// Takes a spoiled instance away, if the call panics.
struct DiscardOnPanic<'a, I: Send + Sync + 'static> {
    lease: &'a InstanceLease,
    cell: &'a InstanceCell<Arc<I>>,
    live: Arc<I>,
}

impl<I: Send + Sync + 'static> DiscardOnPanic<'_, I> {
    fn discard(&self) {
        if self.cell.discard(&self.live) {
            self.lease.mark_lost(CRASHED);
        }
    }
}

impl<I: Send + Sync + 'static> Drop for DiscardOnPanic<'_, I> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.discard();
        }
    }
}

impl<F, Fut, I> Executor for SharedInstanceExecutor<F, I>
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: SharedInstance,
{
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let arguments = parse_arguments(job.arguments)?;
            let (place, chair) = acquire_cell(job.context, |live: Arc<I>| Box::pin(close(live)))?;
            let live = self.get_or_create(&place, &chair, job.context).await?;
            let at_work = DiscardOnPanic { lease: &place, cell: &chair, live };
            let result = at_work.live.call(arguments, job.context).await;
            if matches!(&result, Err(error) if error.kind() == ErrorKind::Crashed) {
                at_work.discard();
            }
            to_reply(result?)
        })
    }

    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            let (place, chair) = acquire_cell(context, |live: Arc<I>| Box::pin(close(live)))?;
            self.get_or_create(&place, &chair, context).await.map(|_| ())
        })
    }

    fn needs_thread(&self) -> bool {
        true
    }
}
