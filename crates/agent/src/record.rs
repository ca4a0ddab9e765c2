//! A run as others see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::{
    Status, TraceId,
    clock::Timestamp,
    ids::{RunId, ThreadId},
};

use crate::{
    model::{Stop, Usage},
    run::{NextAction, PlannedCall, Run, RunCall, RunEnd, RunError},
};

/// Where a run is. The last three are ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// The model is asked, or calls run.
    Running,
    /// A call waits for a person, or for its result from outside.
    Waiting,
    /// The model gave its answer.
    Completed,
    /// Something stood in the way.
    Failed,
    /// Somebody did not want it any more.
    Cancelled,
}

impl RunStatus {
    /// Whether the run has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The word in the API.
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

/// A run: one message of a user, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunRecord {
    /// The run.
    pub id: RunId,
    /// The conversation.
    #[serde(rename = "threadId")]
    pub thread: ThreadId,
    /// The agent.
    pub agent: SmolStr,
    /// Where it is.
    pub status: RunStatus,
    /// How often the model has answered.
    pub steps: u32,
    /// What the model has read and written.
    pub usage: Usage,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The model's answer; empty where there is none.
    #[serde(default)]
    pub content: String,
    /// Its calls, in their order.
    #[serde(default)]
    pub calls: Vec<RunCall>,
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
    let tool = call.asked.tool.clone();
    RunCall { id: call.id, tool, status: Status::Scheduled, arguments: None, approval: None }
}
