//! The public record of a run: what the API returns and the store keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::{
    Status, TraceId,
    clock::Timestamp,
    ids::{RunId, ThreadId},
};

use crate::{
    model::{StopReason, Usage},
    run::{NextAction, PlannedCall, Run, RunCall, RunEnd, RunError, RunStep},
};

/// The status of a run. The last three are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// A model request or calls are in progress.
    Running,
    /// A call awaits approval, or an external result.
    Waiting,
    /// The model gave its final answer.
    Completed,
    /// It failed; see its error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl RunStatus {
    /// Whether the run has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A run: one user message, and the agent's work on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunRecord {
    /// The run.
    pub id: RunId,
    /// The thread.
    #[serde(rename = "threadId")]
    pub thread: ThreadId,
    /// The agent.
    pub agent: SmolStr,
    /// Its status.
    pub status: RunStatus,
    /// The number of model replies so far.
    pub steps: u32,
    /// The tokens used so far.
    pub usage: Usage,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The model's final answer; empty if there is none.
    #[serde(default)]
    pub content: String,
    /// Its calls, in their order.
    #[serde(default)]
    pub calls: Vec<RunCall>,
    /// Its model requests, in their order, with their times, tokens and calls.
    #[serde(default)]
    pub timeline: Vec<RunStep>,
}

impl RunRecord {
    pub(crate) fn of(run: &Run, thread: &ThreadId, agent: &SmolStr, now: Timestamp) -> Self {
        let mut record = Self {
            id: run.id,
            thread: thread.clone(),
            agent: agent.clone(),
            status: RunStatus::Running,
            steps: run.steps(),
            usage: run.usage(),
            trace_id: None,
            started_at: run.started,
            ended_at: None,
            stop: None,
            error: None,
            content: String::new(),
            calls: run.completed_calls().to_vec(),
            timeline: run.timeline().to_vec(),
        };
        match run.next_action() {
            NextAction::AskModel { .. } => {}
            NextAction::ExecuteCalls(calls) => record.calls.extend(calls.iter().map(scheduled_call)),
            NextAction::Finished(end) => {
                record.ended_at = Some(now);
                (record.status, record.stop, record.error) = match end {
                    RunEnd::Completed { stop, content } => {
                        record.content.clone_from(content);
                        (RunStatus::Completed, Some(*stop), None)
                    }
                    RunEnd::Failed(error) => (RunStatus::Failed, None, Some(error.clone())),
                    RunEnd::Cancelled => (RunStatus::Cancelled, None, None),
                };
            }
        }
        record
    }
}

fn scheduled_call(call: &PlannedCall) -> RunCall {
    let tool = call.tool_call.tool.clone();
    RunCall { id: call.id, tool, status: Status::Scheduled, arguments: None, approval: None }
}
