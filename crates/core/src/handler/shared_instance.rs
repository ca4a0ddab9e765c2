//! Tools that are live objects which serve concurrent calls of their thread: a pool, a multiplexed connection.
//!
//! In: a factory. Out: an executor that creates one instance in each thread on first use, and shares it among the thread's calls.

use std::{future::Future, marker::PhantomData, ops::Deref, sync::Arc};

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

impl<F, Fut, I> SharedInstanceExecutor<F, I>
where
    F: Fn(CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>> + Send + 'static,
    I: SharedInstance,
{
    async fn get_or_create(&self, context: &CallContext) -> Result<SharedInstanceGuard<I>, ToolError> {
        context.shared_instance(|| (self.factory)(context.clone()), |live| Box::pin(close(live))).await
    }
}

async fn close<I: SharedInstance>(live: Arc<I>) {
    // No call holds a lease, so this is the last reference, unless the instance has cloned its own `Arc`.
    if let Some(live) = Arc::into_inner(live) {
        live.close().await;
    }
}

impl CallContext {
    /// The instance that concurrent calls of the tool share in the thread of the call, for an executor whose tools need a thread.
    /// `create` makes it if there is none, while other calls wait; `close` closes it when it is idle, or with its thread or its
    /// tool.
    ///
    /// # Errors
    /// When it cannot be created.
    pub async fn shared_instance<I, Fut>(
        &self,
        create: impl FnOnce() -> Fut,
        close: fn(Arc<I>) -> BoxFuture<'static, ()>,
    ) -> Result<SharedInstanceGuard<I>, ToolError>
    where
        I: Send + Sync + 'static,
        Fut: Future<Output = Result<I, ToolError>>,
    {
        let (lease, cell) = acquire_cell(self, close)?;
        let live = match cell.get_shared() {
            Some(live) => live,
            None => run_exclusive(&lease, create_once(&lease, &cell, create)).await??,
        };
        lease.hold_connection(self.tool(), || self.hold_session());
        Ok(SharedInstanceGuard::new(live, lease, cell))
    }
}

async fn create_once<I, Fut>(
    lease: &InstanceLease,
    cell: &InstanceCell<Arc<I>>,
    create: impl FnOnce() -> Fut,
) -> Result<Arc<I>, ToolError>
where
    I: Send + Sync + 'static,
    Fut: Future<Output = Result<I, ToolError>>,
{
    let _lock = cell.lock_exclusive().await;
    if let Some(live) = cell.get_shared() {
        return Ok(live);
    }
    let live = Arc::new(create().await.map_err(|error| error.effect(Effect::None))?);
    cell.put(live.clone());
    lease.mark_created();
    Ok(live)
}

/// A reference to a shared instance, which is not closed while this exists.
pub struct SharedInstanceGuard<I: Send + Sync + 'static> {
    instance: Arc<I>,
    lease: InstanceLease,
    cell: Arc<InstanceCell<Arc<I>>>,
}

impl<I: Send + Sync + 'static> SharedInstanceGuard<I> {
    pub(crate) fn new(instance: Arc<I>, lease: InstanceLease, cell: Arc<InstanceCell<Arc<I>>>) -> Self {
        Self { instance, lease, cell }
    }

    /// Drops the instance without closing it, so that the next call makes a new one. `reason` is for the event.
    pub fn discard(&self, reason: &'static str) {
        if self.cell.discard(&self.instance) {
            self.lease.mark_lost(reason);
        }
    }
}

impl<I: Send + Sync + 'static> Deref for SharedInstanceGuard<I> {
    type Target = I;
    fn deref(&self) -> &I {
        &self.instance
    }
}

impl<I: Send + Sync + 'static> Drop for SharedInstanceGuard<I> {
    /// It may be in an inconsistent state after a panic.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.discard(CRASHED);
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
            let live = self.get_or_create(job.context).await?;
            let result = live.call(arguments, job.context).await;
            if matches!(&result, Err(error) if error.kind() == ErrorKind::Crashed) {
                live.discard(CRASHED);
            }
            to_reply(result?)
        })
    }

    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move { self.get_or_create(context).await.map(drop) })
    }

    fn needs_thread(&self) -> bool {
        true
    }
}
