//! Batch requests: the calls of one step, submitted together.
//!
//! In: call requests. Out: their outcomes, in the same order. `pipeline/batch.rs` decides which of them run concurrently.

use std::{future::IntoFuture, sync::Arc};

use futures_core::future::BoxFuture;

use super::{CallRequest, ToolHub};
use crate::{
    call::{self, BatchProgress, BatchStages, CallReceipt},
    engine::Engine,
    pipeline::{self, Submission},
    step::{OnWait, WaitReason},
};
use toolhub_types::{
    ids::{CallId, IdError},
    outcome::Outcome,
};

/// A batch of calls, not yet made. Await it for their outcomes, in the order of the calls.
#[must_use = "the calls are made only when this is awaited"]
pub struct BatchRequest<'hub> {
    engine: &'hub Arc<Engine>,
    calls: Vec<CallRequest<'hub>>,
    on_wait: Option<OnWait>,
}

impl ToolHub {
    /// Makes the calls of one step. Consecutive calls of read-only or parallel-safe tools run concurrently, any other runs
    /// alone, in order. A call of a dependent tool waits for the earlier calls of its dependencies. A call that waits for
    /// approval holds back only later calls that must run alone. Calls that name no thread share one, if any needs one.
    ///
    /// ```
    /// # use toolhub_core::{NoArguments, ToolError, ToolHub, tool};
    /// # use serde_json::json;
    /// # async fn stock_level(_: NoArguments) -> Result<u32, ToolError> { Ok(1) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hub = ToolHub::builder().tool(tool("stock_level", stock_level).read_only()).build().await?;
    /// let outcomes = hub.batch([hub.call("stock_level", json!({})), hub.call("stock_level", json!({}))]).await;
    /// assert!(outcomes.iter().all(|outcome| outcome.is_success()));
    /// # Ok(()) }
    /// ```
    pub fn batch<'hub>(&'hub self, calls: impl IntoIterator<Item = CallRequest<'hub>>) -> BatchRequest<'hub> {
        BatchRequest { engine: &self.engine, calls: calls.into_iter().collect(), on_wait: None }
    }
}

impl BatchRequest<'_> {
    /// Calls `callback` each time a call of the batch starts a wait that may take long, so that the caller can stop waiting
    /// for the batch. It runs inside the call and must return quickly.
    pub fn on_wait(mut self, callback: impl Fn(CallId, WaitReason) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Box::new(callback));
        self
    }

    /// Starts the batch on a task of its own. Its calls are [detached](CallRequest::detached): they outlive their caller and
    /// a restart once they have started. A call that waits for its turn is in no journal yet; after a crash, the caller makes
    /// the batch again, with idempotency keys.
    pub fn start(mut self) -> BatchHandle {
        let (engine, on_wait) = (self.engine.clone(), self.on_wait.take());
        self.calls = self.calls.into_iter().map(CallRequest::detached).collect();
        let calls = self.into_submissions();
        let (progress, stages) = BatchProgress::new(calls.len());
        let (tasks, runtime) = (engine.call_tasks.clone(), engine.runtime.clone());
        let task = async move { drop(pipeline::run_batch(&engine, calls, on_wait, Some(&progress)).await) };
        tasks.spawn_on(task, &runtime);
        BatchHandle(stages)
    }

    fn into_submissions(self) -> Vec<Submission> {
        let mut calls: Vec<_> = self.calls.into_iter().map(CallRequest::into_submission).collect();
        for index in 1..calls.len() {
            let (earlier, call) = calls.split_at_mut(index);
            let is_duplicate = |id: &_| earlier.iter().any(|other| other.call.model_call.as_ref() == Some(id));
            // The model could not tell which of the two calls a result belongs to.
            if let Some(id) = call[0].call.model_call.clone().filter(is_duplicate) {
                call[0].call.id_error =
                    Some(Box::new(IdError::new("model call id", "it is used twice in one batch", &id)));
            }
        }
        calls
    }
}

/// Handle of a batch that runs on a task of its own. Dropping it leaves the batch running.
#[derive(Debug)]
pub struct BatchHandle(BatchStages);

impl BatchHandle {
    /// Waits for the outcomes, in the order of the calls. Cancel safe.
    pub async fn outcomes(&mut self) -> Vec<Outcome> {
        call::outcomes(&mut self.0).await
    }

    /// Waits until every call has ended, is in the journal, or waits for its turn. Returns the receipts in the order of the
    /// calls; `None` for a call that waits for its turn.
    pub async fn accepted(&mut self) -> Vec<Option<CallReceipt>> {
        call::receipts(&mut self.0).await
    }
}

impl<'hub> IntoFuture for BatchRequest<'hub> {
    type Output = Vec<Outcome>;
    type IntoFuture = BoxFuture<'hub, Vec<Outcome>>;

    fn into_future(mut self) -> Self::IntoFuture {
        let (engine, on_wait) = (self.engine, self.on_wait.take());
        Box::pin(pipeline::run_batch(engine, self.into_submissions(), on_wait, None))
    }
}
