//! The response to a message: progress of the run, the agent's answer, and its calls.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use toolhub_agent::{RunCall, RunError, RunRecord, RunStatus, StopReason, Usage};
use toolhub_core::{
    Status, TraceId,
    ids::{CallId, RunId, ThreadId},
};

use crate::{api::calls::ApprovalLink, links::Links};

/// The result of a message, so far.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageAnswer {
    /// The run.
    run_id: RunId,
    /// The thread.
    thread_id: ThreadId,
    /// The agent.
    agent: String,
    /// The status of the run: `completed`, `failed` and `cancelled` are terminal.
    status: RunStatus,
    /// The agent's answer; null until there is one, and if the run failed.
    message: Option<AgentMessage>,
    /// The calls of the run, in order.
    calls: Vec<RunCallView>,
    /// How many model requests were made.
    steps: u32,
    /// Tokens that the model has read and written.
    usage: Usage,
    /// Why the model stopped: `length` if its answer was cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<StopReason>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
    /// Why the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
}

/// A message of the agent.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentMessage {
    /// Always `assistant`.
    role: &'static str,
    /// The text.
    content: String,
}

/// A call of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RunCallView {
    /// The call.
    id: CallId,
    /// The tool's name as the model wrote it.
    tool: String,
    /// The stage it has reached.
    status: Status,
    /// The arguments, for a call whose result is reported from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// The approval it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalLink>,
}

impl MessageAnswer {
    pub(super) fn of(record: RunRecord, links: &Links) -> Self {
        let message = (record.status == RunStatus::Completed)
            .then(|| AgentMessage { role: "assistant", content: record.content.clone() });
        let call = |RunCall { id, tool, status, arguments, approval }: RunCall| RunCallView {
            id,
            tool: tool.into(),
            status,
            arguments,
            approval: approval.map(|id| ApprovalLink::new(id, links)),
        };
        Self {
            run_id: record.id,
            thread_id: record.thread,
            agent: record.agent.into(),
            status: record.status,
            message,
            stop: record.stop,
            calls: record.calls.into_iter().map(call).collect(),
            steps: record.steps,
            usage: record.usage,
            trace_id: record.trace_id,
            error: record.error,
        }
    }
}
