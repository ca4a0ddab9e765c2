//! The calls of one step, made together.

use std::{future::IntoFuture, sync::Arc};

use futures_core::future::BoxFuture;

use super::{CallRequest, ToolHub};
use crate::{
    engine::Engine,
    pipeline,
    step::{OnWait, WaitReason},
};
use toolhub_types::{
    ids::{CallId, IdError},
    outcome::Outcome,
};

/// The calls of one step in the making. Await it for their outcomes, in the order of the calls.
#[must_use = "the calls are made only when this is awaited"]
pub struct BatchRequest<'hub> {
    engine: &'hub Arc<Engine>,
    calls: Vec<CallRequest<'hub>>,
    on_wait: Option<OnWait>,
}

impl ToolHub {
    /// Makes the calls a model asked for at once. Consecutive calls of read-only or parallel-safe tools run together, any
    /// other runs alone, in order. A tool that waits for others waits for the earlier calls of those. A call that waits for
    /// a person holds back only later calls that must run alone. Calls that name no thread share one, if any needs one.
    ///
    /// ```
    /// # use toolhub_core::{NoArguments, ToolError, ToolHub, tool};
    /// # use serde_json::json;
    /// # async fn look(_: NoArguments) -> Result<u32, ToolError> { Ok(1) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hub = ToolHub::builder().tool(tool("look", look).read_only()).build().await?;
    /// let outcomes = hub.batch([hub.call("look", json!({})), hub.call("look", json!({}))]).await;
    /// assert!(outcomes.iter().all(|outcome| outcome.is_success()));
    /// # Ok(()) }
    /// ```
    pub fn batch<'hub>(&'hub self, calls: impl IntoIterator<Item = CallRequest<'hub>>) -> BatchRequest<'hub> {
        BatchRequest { engine: &self.engine, calls: calls.into_iter().collect(), on_wait: None }
    }
}

impl BatchRequest<'_> {
    /// Tells when a call of the step begins to wait for something that may take long, so that whoever waits for the step need not:
    /// each time it does, in the middle of the call. What hears it must be quick.
    pub fn on_wait(mut self, hear: impl Fn(CallId, WaitReason) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Box::new(hear));
        self
    }
}

impl<'hub> IntoFuture for BatchRequest<'hub> {
    type Output = Vec<Outcome>;
    type IntoFuture = BoxFuture<'hub, Vec<Outcome>>;

    fn into_future(self) -> Self::IntoFuture {
        let mut calls: Vec<_> = self.calls.into_iter().map(CallRequest::into_submission).collect();
        for at in 1..calls.len() {
            let (before, call) = calls.split_at_mut(at);
            let twice = |id: &_| before.iter().any(|other| other.call.model_call.as_ref() == Some(id));
            // The answer could not be told apart from the other one's.
            if let Some(id) = call[0].call.model_call.clone().filter(twice) {
                call[0].call.id_error =
                    Some(Box::new(IdError::new("model call id", "it is used twice in one batch", &id)));
            }
        }
        Box::pin(pipeline::run_batch(self.engine, calls, self.on_wait))
    }
}
