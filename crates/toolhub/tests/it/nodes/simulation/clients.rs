//! The clients of a simulation: make calls, decide approvals, cancel, report results, send messages, delete threads.
//!
//! In: operations. Out: what the nodes answered, in the ledger. A client whose node is frozen waits; each has patience for far longer than
//! any fault lasts, so that a call without an outcome is noticed.

use std::{sync::Arc, time::Duration};

use toolhub::{
    ApprovalError, ApprovalState, CallHandle, CallRequest, ReportError, backend::StoreError, ids::IdempotencyKey,
    prelude::*,
};
use toolhub_agent::{AgentError, UserMessage};

use super::{
    NODES, Node,
    workload::Operation,
    world::{CallEnd, PROBED_TOOL, World},
};

/// How long a client waits for the outcome of its call.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// Time between two attempts of a client.
const RETRY_INTERVAL: Duration = Duration::from_millis(700);
const MAX_ATTEMPTS: usize = 40;

pub(super) struct Clients {
    pub(super) world: Arc<World>,
    pub(super) nodes: Vec<Node>,
}

fn tenant() -> Tenant {
    Tenant::default()
}

fn thread_id(thread: &str) -> ThreadId {
    ThreadId::new(thread).unwrap()
}

impl Clients {
    /// A node, once it is not frozen.
    async fn node(&self, node: usize) -> &Node {
        self.world.faults[node].thawed().await;
        &self.nodes[node]
    }

    pub(super) async fn carry_out(&self, operation: Operation) {
        match operation {
            Operation::Call { tool, node, thread, ms } => {
                let request = self.node(node).await.hub.call(tool, json!({"ms": ms}));
                self.outcome(node, (thread, None), request).await;
            }
            Operation::KeyedCall { node, key, thread, ms } => {
                // The same arguments for the same key.
                let request = self.node(node).await.hub.call("pay", json!({"ms": 100 * u64::from(key), "key": key}));
                tokio::time::sleep(Duration::from_millis(ms)).await;
                self.outcome(node, (thread, Some(format!("k{key}"))), request).await;
            }
            Operation::ApprovedCall { node, thread, detached, decided_on, after, yes } => {
                let request = self.order(node, 50).await;
                let (call, request) = (request.id(), if detached { request.detached() } else { request });
                let decision = async {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    self.decide(decided_on, call, yes).await;
                };
                tokio::join!(self.outcome(node, (thread, None), request), decision);
            }
            Operation::CancelledCall { tool, node, ms, cancelled_on, after } => {
                let request = if tool == "order" {
                    self.order(node, ms).await
                } else {
                    self.node(node).await.hub.call(tool, json!({"ms": ms}))
                };
                let call = request.id();
                let cancellation = async {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    for _ in 0..3 {
                        let cancelled = self.node(cancelled_on).await.hub.cancel_call(&tenant(), call).await;
                        if cancelled.is_ok() {
                            return;
                        }
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                };
                tokio::join!(self.outcome(node, (Some("t0".into()), None), request), cancellation);
            }
            Operation::ExternalCall { node, thread, reported_on, after } => {
                let request = self.node(node).await.hub.call("pay", json!({})).external(Duration::from_secs(60));
                let call = request.id();
                let reports = [0, 1].map(|index| self.report(reported_on[index], call, after[index]));
                let [first, second] = reports;
                tokio::join!(self.outcome(node, (thread, None), request), first, second);
            }
            Operation::Break { ms } => self.world.break_tool(Duration::from_millis(ms)),
            Operation::Probes { first_node, count } => {
                let calls = (0..count).map(|index| async move {
                    let node = (first_node + index) % NODES;
                    let request = self.node(node).await.hub.call(PROBED_TOOL, json!({"ms": 30}));
                    self.outcome(node, (None, None), request).await;
                });
                futures_util::future::join_all(calls).await;
            }
            Operation::Message { node, thread, text, cancelled_on } => {
                self.send(node, &thread, text, cancelled_on).await;
            }
            Operation::Deletion { node, thread } => {
                for _ in 0..3 {
                    let deleted = self.node(node).await.service.delete_thread(&tenant(), &thread_id(&thread)).await;
                    if deleted.is_ok() {
                        return;
                    }
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// A call that needs an approval, different from all others: an approval is for identical calls.
    async fn order(&self, node: usize, ms: u64) -> CallRequest<'_> {
        self.node(node).await.hub.call("order", json!({"ms": ms, "number": fastrand::u32(..)}))
    }

    /// Makes a call and waits for its outcome.
    async fn outcome(&self, node: usize, (thread, key): (Option<String>, Option<String>), request: CallRequest<'_>) {
        let call = request.id();
        self.world.note_arrival(node, call);
        let request = match &thread {
            Some(thread) => request.thread(thread.as_str()),
            None => request,
        };
        let request = match &key {
            Some(key) => request.idempotency_key(key.as_str()),
            None => request,
        };
        let handle: CallHandle = request.start();
        match tokio::time::timeout(PATIENCE, handle).await {
            Ok(outcome) => self.world.ledger().ends.push(CallEnd { call, thread, key, outcome }),
            Err(_) => self.world.report_problem(format!("call {call} on node {node} has no outcome")),
        }
    }

    /// Answers the approval of a call, once there is one.
    async fn decide(&self, node: usize, call: CallId, yes: bool) {
        for _ in 0..MAX_ATTEMPTS {
            let hub = &self.node(node).await.hub;
            if let Ok(pending) = hub.approvals(&tenant(), Some(ApprovalState::Pending)).await
                && let Some(approval) = pending.iter().find(|approval| approval.call_id == call)
            {
                self.answer(node, (call, approval.id), yes).await;
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Gives every approval that is pending.
    pub(super) async fn approve_all(&self, node: usize) {
        let hub = &self.node(node).await.hub;
        for approval in hub.approvals(&tenant(), Some(ApprovalState::Pending)).await.unwrap_or_default() {
            self.answer(node, (approval.call_id, approval.id), true).await;
        }
    }

    async fn answer(&self, node: usize, (call, approval): (CallId, toolhub::ids::ApprovalId), yes: bool) {
        let decision = if yes { ApprovalOutcome::ProceedOnce } else { ApprovalOutcome::Cancel };
        let answer = Answer::new(decision, Caller::default());
        match self.nodes[node].hub.resolve_approval(&tenant(), approval, answer).await {
            Ok(_) => {
                self.world.ledger().decisions.insert(call, Some(yes));
            }
            Err(ApprovalError::Store(StoreError::Unknown(_))) => {
                self.world.ledger().decisions.insert(call, None);
            }
            Err(_) => {}
        }
    }

    /// Reports the result of an external call, until a node has taken or refused it.
    async fn report(&self, node: usize, call: CallId, after: u64) {
        tokio::time::sleep(Duration::from_millis(after)).await;
        for _ in 0..MAX_ATTEMPTS {
            let value = json!(fastrand::u32(..));
            let hub = &self.node(node).await.hub;
            let reported = hub.report_external_result(&tenant(), call, Ok(value.clone())).await;
            let again = matches!(reported, Err(ReportError::NotFound | ReportError::Early | ReportError::Store(_)));
            self.world.ledger().reports.push((call, value, reported));
            if !again {
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Sends a message, again on the next node if the store did not answer.
    async fn send(&self, first: usize, thread: &str, text: String, cancelled_on: Option<usize>) {
        let key = IdempotencyKey::new(text.clone()).unwrap();
        for attempt in 0..MAX_ATTEMPTS {
            let node = (first + attempt) % NODES;
            let message = UserMessage { key: Some(key.clone()), ..UserMessage::from(text.clone()) };
            let sent = self.node(node).await.service.send(&tenant(), &thread_id(thread), message).await;
            let again = matches!(sent, Err(AgentError::Store(_)));
            let run = sent.map(|handle| handle.id());
            self.world.ledger().messages.push((text.clone(), run.clone()));
            if !again {
                if let (Ok(run), Some(other)) = (run, cancelled_on) {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    let _ = self.node(other).await.service.cancel(&tenant(), run).await;
                }
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}
