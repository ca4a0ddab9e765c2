//! Tools that are live objects which serve concurrent calls of their thread: a pool, a multiplexed connection.
//!
//! In: a factory. Out: an executor that creates one instance in each thread on first use, and shares it among the thread's calls.

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

/// A live object that belongs to one thread and serves concurrent calls.
///
/// Like an [`Instance`](crate::Instance) it may be dropped and created again at any time. An aborted call leaves it in place,
/// because others use it; a call that crashes discards it, and the next call gets a new one.
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

    /// Runs the tool once, possibly concurrently with other calls.
    fn call(
        &self,
        arguments: Self::Arguments,
        cx: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Closes the instance gracefully, within ten seconds, when no call uses it. Not called for one that crashed.
    fn close(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        async {}
    }
}

/// Starts a tool whose instances are created by `factory`, in each thread on first use, and serve concurrent calls.
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
    // No call holds a lease, so this is the last reference, unless the instance has cloned its own `Arc`.
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
    /// A reference to the instance. The first call creates it while the others wait.
    async fn get_or_create(
        &self,
        lease: &InstanceLease,
        cell: &InstanceCell<Arc<I>>,
        context: &CallContext,
    ) -> Result<Arc<I>, ToolError> {
        if let Some(live) = cell.get_shared() {
            return Ok(live);
        }
        let create = async {
            let _lock = cell.lock_exclusive().await;
            if let Some(live) = cell.get_shared() {
                return Ok(live);
            }
            let live = (self.factory)(context.clone()).await.map_err(|error| error.effect(Effect::None))?;
            let live = Arc::new(live);
            cell.put(live.clone());
            lease.mark_created(context.hold_session());
            Ok(live)
        };
        run_exclusive(lease, create).await?
    }
}

/// Discards the instance if its call panics.
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
            let (lease, cell) = acquire_cell(job.context, |live: Arc<I>| Box::pin(close(live)))?;
            let live = self.get_or_create(&lease, &cell, job.context).await?;
            let guard = DiscardOnPanic { lease: &lease, cell: &cell, live };
            let result = guard.live.call(arguments, job.context).await;
            if matches!(&result, Err(error) if error.kind() == ErrorKind::Crashed) {
                guard.discard();
            }
            to_reply(result?)
        })
    }

    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            let (lease, cell) = acquire_cell(context, |live: Arc<I>| Box::pin(close(live)))?;
            self.get_or_create(&lease, &cell, context).await.map(|_| ())
        })
    }

    fn needs_thread(&self) -> bool {
        true
    }
}
