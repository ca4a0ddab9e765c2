//! What the sender of a message is answered: how far the run is, what the agent said, and its calls.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use toolhub_agent::{RunCall, RunError, RunRecord, RunStatus, Stop, Usage};
use toolhub_core::{
    Status, TraceId,
    ids::{CallId, RunId, ThreadId},
};

use crate::{api::calls::ApprovalLink, links::Links};

/// What came of a message, so far.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageAnswer {
    /// The run.
    run_id: RunId,
    /// The conversation.
    thread_id: ThreadId,
    /// The agent.
    agent: String,
    /// Where the run is: `completed`, `failed` and `cancelled` are ends.
    status: RunStatus,
    /// What the agent answered; null until it has, and where it could not.
    message: Option<AgentMessage>,
    /// The calls of the run, in their order.
    calls: Vec<CallOfRun>,
    /// How often the model has answered.
    steps: u32,
    /// What the model has read and written.
    usage: Usage,
    /// Why the model stopped: `length` where its answer is cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<Stop>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
    /// Why the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
}

/// What an agent said.
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
struct CallOfRun {
    /// The call.
    id: CallId,
    /// The tool's name as the model wrote it.
    tool: String,
    /// Where it is on its way.
    status: Status,
    /// What to do the work with, of a call whose result is to come from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// The question it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalLink>,
}

impl MessageAnswer {
    pub(super) fn of(record: RunRecord, links: &Links) -> Self {
        let message = (record.status == RunStatus::Completed)
            .then(|| AgentMessage { role: "assistant", content: record.content.clone() });
        let call = |RunCall { id, tool, status, arguments, approval }: RunCall| CallOfRun {
            id,
            tool: tool.into(),
            status,
            arguments,
            approval: approval.map(|id| ApprovalLink { id, url: links.approval(id) }),
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
