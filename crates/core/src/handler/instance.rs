//! Tools that are live objects, one per thread: a connection, a browser page, an interpreter.
//!
//! In: a factory. Out: an executor that makes an instance in each thread where it is used, and lends it to one call at a
//! time. How long instances live is decided by `threads`.

use std::{future::Future, marker::PhantomData};

use futures_core::future::BoxFuture;
use serde::Serialize;

use super::{Arguments, parse_arguments, to_reply, tool_builder};
use crate::{
    execution::{CallContext, Executor, Job, Reply},
    registry::ToolBuilder,
    threads::{InstanceCell, InstanceLease, run_exclusive},
};
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::ThreadKey,
};

/// A live object that belongs to one thread and serves one call at a time. One that serves many at once is a
/// [`SharedInstance`](crate::SharedInstance).
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

    /// Whether a call stops its work when it is cut off. Where it does not, a timeout is never followed by another attempt.
    const STOPS_WHEN_DROPPED: bool = true;

    /// Runs the tool once.
    fn call(
        &mut self,
        arguments: Self::Arguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Says goodbye in an orderly way, within ten seconds. Not called for an instance that crashed or whose call was cut
    /// off.
    fn close(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        async {}
    }
}

/// Begins a tool whose instances are made by `factory`: in each thread when it is first used there. An instance serves one
/// call at a time; the others wait for their turn.
pub fn instance<F, Fut, I>(name: &str, factory: F) -> ToolBuilder
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: Instance,
{
    tool_builder::<I::Arguments>(name, &[], InstanceExecutor { factory, instance_type: PhantomData })
}

struct InstanceExecutor<F, I> {
    factory: F,
    instance_type: PhantomData<fn() -> I>,
}

/// Enters the room of the call's tool in its thread.
pub(super) fn acquire_cell<T: Send + 'static>(
    context: &CallContext,
    close: fn(T) -> BoxFuture<'static, ()>,
) -> Result<(InstanceLease, std::sync::Arc<InstanceCell<T>>), ToolError> {
    let wrong = |text| ToolError::operator_only(ErrorKind::Internal, text);
    let thread = context.thread().ok_or_else(|| wrong("an instance was asked for without a thread"))?;
    let owner = ThreadKey::new(context.tenant(), thread);
    let envelope = context.envelope();
    let place =
        context
            .services()
            .instances
            .acquire(&owner, (envelope.tool.as_registered(), envelope.call.from_offer), || InstanceCell::new(close));
    let chair = place.cell().ok_or_else(|| wrong("a tool found another tool's instance in its place"))?;
    Ok((place, chair))
}

/// What is known of an instance while it works: if the call is cut off here, or panics, it is lost.
struct DiscardOnDrop<'a>(Option<&'a InstanceLease>);

impl Drop for DiscardOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.mark_lost(if std::thread::panicking() { CRASHED } else { "its call was cut off" });
        }
    }
}

/// Why a crashed instance is gone.
pub(super) const CRASHED: &str = "it crashed";

impl<F, Fut, I> InstanceExecutor<F, I>
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: Instance,
{
    async fn get_or_create(
        &self,
        place: &InstanceLease,
        chair: &InstanceCell<I>,
        context: &CallContext,
    ) -> Result<I, ToolError> {
        if let Some(live) = chair.take() {
            return Ok(live);
        }
        let live = (self.factory)(context.clone()).await.map_err(|error| error.effect(Effect::None))?;
        place.mark_created();
        Ok(live)
    }

    async fn call_instance(
        &self,
        place: &InstanceLease,
        chair: &InstanceCell<I>,
        arguments: I::Arguments,
        context: &CallContext,
    ) -> Result<I::Output, ToolError> {
        let mut live = self.get_or_create(place, chair, context).await?;
        // The instance is out of its place while it works. If it panics, or the call is cut off here, it is not put back:
        // the next call gets a new one.
        let mut at_work = DiscardOnDrop(Some(place));
        let result = live.call(arguments, context).await;
        at_work.0 = None;
        if matches!(&result, Err(error) if error.kind() == ErrorKind::Crashed) {
            drop(live);
            place.mark_lost(CRASHED);
        } else {
            chair.put(live);
        }
        result
    }
}

impl<F, Fut, I> Executor for InstanceExecutor<F, I>
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: Instance,
{
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let arguments = parse_arguments(job.arguments)?;
            let (place, chair) = acquire_cell(job.context, |live: I| Box::pin(live.close()))?;
            let alone = async {
                let _turn = job.context.wait_before_start(chair.lock_exclusive()).await?;
                self.call_instance(&place, &chair, arguments, job.context).await
            };
            to_reply(run_exclusive(&place, alone).await??)
        })
    }

    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            let (place, chair) = acquire_cell(context, |live: I| Box::pin(live.close()))?;
            let alone = async {
                let _turn = chair.lock_exclusive().await;
                let live = self.get_or_create(&place, &chair, context).await?;
                chair.put(live);
                Ok(())
            };
            run_exclusive(&place, alone).await?
        })
    }

    fn needs_thread(&self) -> bool {
        true
    }

    fn stops_when_dropped(&self) -> bool {
        I::STOPS_WHEN_DROPPED
    }
}
