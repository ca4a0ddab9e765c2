//! Makes the calls of a batch: waits for all of them, or starts them and reports how far they are.
//!
//! In: the calls of one message and the client's preferences. Out: where each call stands, in the order of the calls.
//! Without a preference, a call that requires an approval ends, and the same batch sent again continues it.

use std::time::Duration;

use serde_json::Value;
use toolhub_core::{
    CallReceipt, CallRequest, Outcome, Status, ToolHub, TraceContext,
    ids::{ApprovalId, CallId, IdempotencyKey, ThreadId},
};

use super::request::RequestedCall;
use crate::{extract::Prefer, scope::Principal};

/// A batch of one client.
pub(super) struct Batch<'a> {
    pub(super) hub: &'a ToolHub,
    pub(super) principal: &'a Principal,
    pub(super) thread: &'a ThreadId,
    pub(super) key: Option<&'a IdempotencyKey>,
    pub(super) trace: Option<&'a TraceContext>,
}

/// A call of a batch, and where it stands.
pub(super) struct CallEnd {
    /// The id the model gave it.
    pub(super) model_id: Option<Value>,
    /// The tool's name, as the model wrote it.
    pub(super) tool: String,
    pub(super) state: CallState,
}

/// Where a call stands.
pub(super) enum CallState {
    /// It has ended.
    Ended(Box<Outcome>),
    /// It continues in the background.
    Open { id: CallId, status: Status, approval: Option<ApprovalId> },
    /// No call was made; the text tells the model why.
    Rejected(String),
}

impl CallEnd {
    /// Whether the call continues in the background.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, CallState::Open { .. })
    }
}

/// The idempotency key of one call. Every call of a batch has its own, so each is replayed on its own.
pub(super) fn call_key(key: &IdempotencyKey, index: usize) -> String {
    format!("{key}/{index}")
}

impl Batch<'_> {
    /// Makes the calls.
    pub(super) async fn execute(&self, requested: Vec<RequestedCall>, prefer: Prefer) -> Vec<CallEnd> {
        let requests: Vec<CallRequest<'_>> = requested
            .iter()
            .enumerate()
            .filter_map(|(index, call)| {
                let arguments = call.arguments.as_ref().ok()?;
                Some(self.request(index, call, arguments.to_value().into_owned(), prefer))
            })
            .collect();
        let ids: Vec<CallId> = requests.iter().map(CallRequest::id).collect();
        let ended = |outcome| CallState::Ended(Box::new(outcome));
        let states: Vec<CallState> = if prefer.respond_async {
            self.start(requests, &ids, prefer.wait.unwrap_or_default()).await
        } else {
            self.hub.batch(requests).await.into_iter().map(ended).collect()
        };
        let mut states = states.into_iter();
        let ends = requested.into_iter().filter_map(|RequestedCall { id, tool, arguments }| {
            let state = match arguments {
                Ok(_) => states.next()?,
                Err(help) => CallState::Rejected(help),
            };
            Some(CallEnd { model_id: id, tool, state })
        });
        ends.collect()
    }

    fn request(&self, index: usize, call: &RequestedCall, arguments: Value, prefer: Prefer) -> CallRequest<'_> {
        let mut request = self
            .hub
            .call(call.tool.as_str(), arguments)
            .tenant(self.principal.tenant.clone())
            .caller(self.principal.caller.clone())
            .thread(self.thread.as_str());
        match &call.id {
            Some(Value::String(id)) => request = request.model_call(id.as_str()),
            Some(id) => request = request.model_call(id.to_string()),
            None => {}
        }
        if let Some(trace) = self.trace {
            request = request.trace(trace.clone());
        }
        if let Some(key) = self.key {
            request = request.idempotency_key(call_key(key, index));
        }
        match prefer {
            Prefer { respond_async: true, .. } => request,
            Prefer { wait: Some(wait), .. } => request.no_wait_after(wait),
            _ => request.no_wait(),
        }
    }

    /// Starts the calls, and waits for their end for this long, or until it is certain that they continue.
    async fn start(&self, requests: Vec<CallRequest<'_>>, ids: &[CallId], wait: Duration) -> Vec<CallState> {
        let mut batch = self.hub.batch(requests).start();
        let _ = tokio::time::timeout(wait, batch.outcomes()).await;
        let receipts = batch.accepted().await;
        let state = |(id, receipt): (&CallId, Option<CallReceipt>)| match receipt {
            Some(CallReceipt::Ended(outcome)) => CallState::Ended(Box::new(outcome)),
            Some(CallReceipt::AwaitingApproval { call, approval, .. }) => {
                CallState::Open { id: call, status: Status::AwaitingApproval, approval: Some(approval) }
            }
            Some(CallReceipt::Accepted { call, .. }) => {
                CallState::Open { id: call, status: Status::Executing, approval: None }
            }
            // It waits for its turn.
            _ => CallState::Open { id: *id, status: Status::Scheduled, approval: None },
        };
        ids.iter().zip(receipts).map(state).collect()
    }
}
