//! Runs the calls of one tool of a server.
//!
//! In: a job. Out: the server's reply. A call is sent once: whether it may be repeated is decided by the pipeline, from the effect in
//! the error.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::time::Instant;
use toolhub_core::{BoxFuture, Definition, Executor, Job, Reply, ToolError, TraceContext, schema::Schema};

use super::{
    connection::OutgoingCall,
    connections::Connections,
    error,
    reply::{self, CallResult, ExpectedResult},
    wire::{Update, UpdateReceiver, updates},
};

pub(super) struct McpExecutor {
    pub(super) connections: Arc<Connections>,
    /// The name of the tool at the server.
    pub(super) tool: String,
    pub(super) output: Option<Schema>,
    /// Whether an output that does not fit its schema was logged.
    pub(super) has_warned: AtomicBool,
}

impl Executor for McpExecutor {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let context = job.context;
            let read_only = job.tool.annotations.read_only;
            let connection = context.wait_before_start(self.connections.for_tenant(context.tenant())).await??;
            let (sender, mut receiver) = updates(false);
            let call = OutgoingCall {
                name: self.tool.clone(),
                arguments: job.arguments.as_object().cloned().unwrap_or_default(),
                traceparent: context.trace().map(TraceContext::traceparent),
                idempotency_key: context.idempotency_key().map(|key| key.as_str().to_owned()),
                input: None,
                updates: sender,
            };
            let started = Instant::now();
            let mut answer = pin!(connection.call(call));
            let text = loop {
                tokio::select! {
                    biased;
                    Some(update) = receiver.next() => self.forward(update, &job),
                    text = &mut answer => break text,
                }
            };
            self.connections.meters.record_call(started.elapsed());
            self.forward_rest(&mut receiver, &job);
            let secrets = connection.secrets();
            let text = text.map_err(|error| secrets.all.error(error::request_error(error, read_only)))?;
            let expected = ExpectedResult { output: self.output.clone(), read_only, secrets: secrets.named.clone() };
            match reply::read(text, expected).await? {
                CallResult::Complete { reply, mismatch } => {
                    if let Some(mismatch) = mismatch
                        && !self.has_warned.swap(true, Relaxed)
                    {
                        tracing::warn!(tool = %job.tool.name, mismatch, "an output does not fit the tool's own schema");
                    }
                    Ok(reply)
                }
                CallResult::InputRequired(_) => {
                    Err(ToolError::refused("The tool asks its caller for input, which this caller cannot give."))
                }
            }
        })
    }

    fn health_check<'a>(&'a self, _: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        Some(Box::pin(self.connections.is_healthy()))
    }
}

impl McpExecutor {
    /// Passes an update of the server on to the call.
    fn forward(&self, update: Update, job: &Job<'_>) {
        match update {
            Update::Progress { done, total, message } => {
                let message = message.unwrap_or_default();
                match total.filter(|total| *total > 0.0) {
                    Some(total) => job.context.progress_at(done / total, message),
                    None => job.context.progress(message),
                }
            }
            Update::Log { level, text } => {
                tracing::debug!(tool = %job.tool.name, call = %job.context.call_id(), level, text, "log line of a tool");
            }
            // Dropped, and so declined.
            Update::Question(_) => {}
        }
    }

    /// Passes on what arrived together with the answer.
    fn forward_rest(&self, receiver: &mut UpdateReceiver, job: &Job<'_>) {
        while let Some(update) = receiver.try_next() {
            self.forward(update, job);
        }
    }
}
