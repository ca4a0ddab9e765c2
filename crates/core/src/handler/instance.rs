//! Tools that are live objects, one per thread: a connection, a browser page, an interpreter.
//!
//! In: a factory. Out: an executor that creates an instance in each thread on first use, and gives calls exclusive access to it.
//! `threads` decides how long instances live.

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

/// A live object that belongs to one thread and serves one call at a time. One that serves concurrent calls is a
/// [`SharedInstance`](crate::SharedInstance).
///
/// It may be dropped and created again at any time, so it holds connections, not truth; what must be kept belongs in a
/// [`ToolState`](crate::ToolState).
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

    /// Whether dropping the future of a call stops its work. If not, a timeout is never retried.
    const STOPS_WHEN_DROPPED: bool = true;

    /// Runs the tool once.
    fn call(
        &mut self,
        arguments: Self::Arguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Closes the instance gracefully, within ten seconds. Not called for an instance that crashed or whose call was aborted.
    fn close(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        async {}
    }
}

/// Starts a tool whose instances are created by `factory`, in each thread on first use. An instance serves one call at a time;
/// other calls wait.
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

/// Acquires the instance cell of the call's tool in its thread.
pub(super) fn acquire_cell<T: Send + 'static>(
    context: &CallContext,
    close: fn(T) -> BoxFuture<'static, ()>,
) -> Result<(InstanceLease, std::sync::Arc<InstanceCell<T>>), ToolError> {
    let internal = |text| ToolError::operator_only(ErrorKind::Internal, text);
    let thread = context.thread().ok_or_else(|| internal("an instance needs a thread"))?;
    let owner = ThreadKey::new(context.tenant(), thread);
    let envelope = context.envelope();
    let tool = (&envelope.tool.registration, envelope.call.from_offer);
    let lease = context.services().instances.acquire(&owner, tool, || InstanceCell::new(close));
    let cell = lease.cell().ok_or_else(|| internal("the instance cell belongs to a tool of another type"))?;
    Ok((lease, cell))
}

/// Marks an instance as lost if its call panics or is aborted.
struct DiscardOnDrop<'a>(Option<&'a InstanceLease>);

impl Drop for DiscardOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.0 {
            lease.mark_lost(if std::thread::panicking() { CRASHED } else { "its call was aborted" });
        }
    }
}

/// The clean-up reason of a crashed instance.
pub(super) const CRASHED: &str = "it crashed";

impl<F, Fut, I> InstanceExecutor<F, I>
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: Instance,
{
    async fn get_or_create(
        &self,
        lease: &InstanceLease,
        cell: &InstanceCell<I>,
        context: &CallContext,
    ) -> Result<I, ToolError> {
        let live = match cell.take() {
            Some(live) => live,
            None => {
                let live = (self.factory)(context.clone()).await.map_err(|error| error.effect(Effect::None))?;
                lease.mark_created();
                live
            }
        };
        lease.hold_connection(context.tool(), || context.hold_session());
        Ok(live)
    }

    async fn call_instance(
        &self,
        lease: &InstanceLease,
        cell: &InstanceCell<I>,
        arguments: I::Arguments,
        context: &CallContext,
    ) -> Result<I::Output, ToolError> {
        let mut live = self.get_or_create(lease, cell, context).await?;
        // The instance is out of its cell during the call. If the call panics or is aborted, it is not put back, and the next
        // call gets a new one.
        let mut guard = DiscardOnDrop(Some(lease));
        let result = live.call(arguments, context).await;
        guard.0 = None;
        if matches!(&result, Err(error) if error.kind() == ErrorKind::Crashed) {
            drop(live);
            lease.mark_lost(CRASHED);
        } else {
            cell.put(live);
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
            let (lease, cell) = acquire_cell(job.context, |live: I| Box::pin(live.close()))?;
            let call = async {
                let _lock = job.context.wait_before_start(cell.lock_exclusive()).await?;
                self.call_instance(&lease, &cell, arguments, job.context).await
            };
            to_reply(run_exclusive(&lease, call).await??)
        })
    }

    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            let (lease, cell) = acquire_cell(context, |live: I| Box::pin(live.close()))?;
            let create = async {
                let _lock = cell.lock_exclusive().await;
                let live = self.get_or_create(&lease, &cell, context).await?;
                cell.put(live);
                Ok(())
            };
            run_exclusive(&lease, create).await?
        })
    }

    fn needs_thread(&self) -> bool {
        true
    }

    fn stops_when_dropped(&self) -> bool {
        I::STOPS_WHEN_DROPPED
    }
}
