//! One run of an agent, as a pure state machine without I/O.
//!
//! In: model replies, call results, cancellation. Out: the next action, and the messages to append to the conversation.
//! It can be serialized between any two transitions and continued by another process. `driver.rs` performs the actions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::{
    Status,
    clock::Timestamp,
    ids::{ApprovalId, CallId, RunId},
};

use crate::{
    message::{CallResult, Message, ToolCall},
    model::{ModelError, ModelFault, Reply, StopReason, Usage},
};

/// The limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunBudget {
    /// Maximum number of model requests. The last one may not request calls.
    pub steps: u32,
    /// Maximum number of input and output tokens; `None` for no limit.
    pub tokens: Option<u64>,
    /// When it must have ended.
    #[serde(rename = "until")]
    pub deadline: Option<Timestamp>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// When it started.
    pub started: Timestamp,
    bounds: RunBudget,
    steps: u32,
    usage: Usage,
    #[serde(rename = "made")]
    completed_calls: Vec<RunCall>,
    /// Runs of earlier versions have none.
    #[serde(default)]
    timeline: Vec<RunStep>,
    phase: Phase,
}

/// The state of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
enum Phase {
    /// The next action is a model request.
    #[serde(rename = "asking")]
    AwaitingModel,
    /// The calls of the latest reply are to be executed.
    #[serde(rename = "calling")]
    ExecutingCalls {
        text: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        calls: Vec<PlannedCall>,
    },
    #[serde(rename = "over")]
    Ended { end: RunEnd },
}

/// A call to be made, with the id it will have in the hub. The id is stored before the call starts, so that another
/// process can look up its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The id in the hub.
    pub id: CallId,
    /// The model's request.
    #[serde(rename = "asked")]
    pub tool_call: ToolCall,
    /// Whether its secret arguments cannot be unsealed: it cannot be made any more.
    #[serde(skip)]
    pub arguments_lost: bool,
}

/// A call of a run, and its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCall {
    /// The call.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// Its status.
    pub status: Status,
    /// The arguments; only for an external call that waits for its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
    /// The approval it waits for.
    #[serde(rename = "approvalId", default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
}

/// A model request of a run, and the calls that followed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStep {
    /// The name of the model.
    pub model: SmolStr,
    /// When the request was sent.
    pub started_at: Timestamp,
    /// When the model had replied, or failed.
    pub replied_at: Timestamp,
    /// The tokens it used.
    pub usage: Usage,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The calls that the model asked for, as they are in `calls` of the run.
    #[serde(default)]
    pub calls: Vec<CallId>,
    /// When all of these calls had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_ended_at: Option<Timestamp>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum RunEnd {
    /// The model gave its final answer.
    Completed {
        /// Why it stopped.
        stop: StopReason,
        /// The answer.
        content: String,
    },
    /// It failed.
    Failed(RunError),
    /// It was cancelled.
    Cancelled,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// The error code: `max_steps`, `token_budget`, `time_budget`, `no_such_agent`, `store_unavailable`, or `model_`
    /// and the kind of the model failure.
    pub code: SmolStr,
    /// The text for people.
    pub message: String,
}

impl RunError {
    /// A failure with this code.
    pub fn new(code: impl Into<SmolStr>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

impl From<&ModelError> for RunError {
    fn from(error: &ModelError) -> Self {
        let code = match error.fault {
            ModelFault::Unreachable => "model_unreachable",
            ModelFault::Timeout => "model_timeout",
            ModelFault::RateLimited => "model_rate_limited",
            ModelFault::Refused => "model_refused",
            ModelFault::Failed => "model_failed",
            ModelFault::Broken => "model_broken",
        };
        Self::new(code, error.message.clone())
    }
}

/// What a run needs next.
#[derive(Debug, Clone, PartialEq)]
pub enum NextAction<'a> {
    /// Send a model request.
    AskModel {
        /// Whether it may request calls.
        may_call: bool,
    },
    /// Execute these calls.
    ExecuteCalls(&'a [PlannedCall]),
    /// Nothing: the run has ended.
    Finished(&'a RunEnd),
}

impl Run {
    /// A new run.
    #[must_use]
    pub fn new(id: RunId, started: Timestamp, bounds: RunBudget) -> Self {
        let (usage, completed_calls, phase) = (Usage::default(), Vec::new(), Phase::AwaitingModel);
        Self { id, started, bounds, steps: 0, usage, completed_calls, timeline: Vec::new(), phase }
    }

    /// The next action.
    #[must_use]
    pub fn next_action(&self) -> NextAction<'_> {
        match &self.phase {
            Phase::AwaitingModel => NextAction::AskModel { may_call: self.steps + 1 < self.bounds.steps },
            Phase::ExecutingCalls { calls, .. } => NextAction::ExecuteCalls(calls),
            Phase::Ended { end } => NextAction::Finished(end),
        }
    }

    /// The number of model replies so far.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The tokens used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The text of the reply whose calls are executing.
    #[must_use]
    pub fn assistant_text(&self) -> &str {
        if let Phase::ExecutingCalls { text, .. } = &self.phase { text } else { "" }
    }

    /// When it must have ended.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.bounds.deadline
    }

    /// The model requests so far, with the calls that followed each.
    #[must_use]
    pub fn timeline(&self) -> &[RunStep] {
        &self.timeline
    }

    /// Adds a model request, after its reply was applied.
    pub fn record_request(&mut self, step: RunStep) {
        let calls = match &self.phase {
            Phase::ExecutingCalls { calls, .. } => calls.iter().map(|call| call.id).collect(),
            Phase::AwaitingModel | Phase::Ended { .. } => Vec::new(),
        };
        self.timeline.push(RunStep { calls, ..step });
    }

    /// Notes when the calls of the latest model request had ended.
    pub fn record_calls_ended(&mut self, now: Timestamp) {
        if let Some(step) = self.timeline.last_mut() {
            step.calls_ended_at = Some(now);
        }
    }

    /// The calls of the completed steps.
    #[must_use]
    pub fn completed_calls(&self) -> &[RunCall] {
        &self.completed_calls
    }

    /// Fails the run if it has reached one of its limits. To be called before each model request.
    pub fn enforce_bounds(&mut self, now: Timestamp) {
        let RunBudget { steps, tokens, deadline } = self.bounds;
        let used = self.usage.input_tokens.saturating_add(self.usage.output_tokens);
        if self.steps >= steps {
            self.fail(RunError::new("max_steps", format!("the run reached its limit of {steps} steps")));
        } else if let Some(tokens) = tokens.filter(|tokens| used >= *tokens) {
            let message = format!("the run used {used} tokens and its budget is {tokens}");
            self.fail(RunError::new("token_budget", message));
        } else if deadline.is_some_and(|deadline| now >= deadline) {
            self.exceed_time_budget();
        }
    }

    /// Fails the run because its time budget is exceeded, unless it has ended.
    pub fn exceed_time_budget(&mut self) {
        self.fail(RunError::new("time_budget", "the run exceeded its time budget"));
    }

    /// Applies a model reply. Returns the message to append to the conversation: none while its calls are to be
    /// executed, because a call and its result are appended together.
    pub fn apply_reply(&mut self, reply: Reply, mut mint: impl FnMut() -> CallId) -> Option<Message> {
        let Phase::AwaitingModel = self.phase else { return None };
        let may_call = matches!(self.next_action(), NextAction::AskModel { may_call: true });
        self.steps += 1;
        self.usage += reply.usage;
        let Reply { text, reasoning, calls, stop, .. } = reply;
        if !calls.is_empty() && may_call {
            let calls = calls
                .into_iter()
                .map(|tool_call| PlannedCall { id: mint(), tool_call, arguments_lost: false })
                .collect();
            self.phase = Phase::ExecutingCalls { text, reasoning, calls };
            return None;
        }
        let message = Message::Assistant { content: text.clone(), reasoning: String::new(), calls: Vec::new() };
        if calls.is_empty() {
            self.phase = Phase::Ended { end: RunEnd::Completed { stop, content: text } };
            return Some(message);
        }
        let reason = format!("the model still requests calls after {} steps, the limit of the run", self.steps);
        self.fail(RunError::new("max_steps", reason));
        // These calls will never have results, so they must not become part of the conversation.
        (!text.is_empty()).then_some(message)
    }

    /// The calls to be made, if any.
    pub(crate) fn planned_calls_mut(&mut self) -> &mut [PlannedCall] {
        if let Phase::ExecutingCalls { calls, .. } = &mut self.phase { calls } else { &mut [] }
    }

    /// Applies the results of the calls, in their order. Returns the messages to append to the conversation.
    pub fn apply_results(&mut self, results: Vec<(CallResult, Status)>) -> Option<[Message; 2]> {
        let Phase::ExecutingCalls { text, reasoning, calls } = &mut self.phase else { return None };
        let (content, reasoning, calls) = (std::mem::take(text), std::mem::take(reasoning), std::mem::take(calls));
        self.phase = Phase::AwaitingModel;
        for (planned, (_, status)) in calls.iter().zip(&results) {
            let tool = planned.tool_call.tool.clone();
            let call = RunCall { id: planned.id, tool, status: *status, arguments: None, approval: None };
            self.completed_calls.push(call);
        }
        let calls = calls.into_iter().map(|call| call.tool_call).collect();
        let request = Message::Assistant { content, reasoning, calls };
        Some([request, Message::Tool { results: results.into_iter().map(|(result, _)| result).collect() }])
    }

    /// Fails the run, unless it has ended. The results of planned calls must be applied first.
    pub fn fail(&mut self, error: RunError) {
        self.end(RunEnd::Failed(error));
    }

    /// Cancels the run, unless it has ended. The results of planned calls must be applied first.
    pub fn cancel(&mut self) {
        self.end(RunEnd::Cancelled);
    }

    fn end(&mut self, end: RunEnd) {
        if let Phase::AwaitingModel = self.phase {
            self.phase = Phase::Ended { end };
        }
    }
}

#[cfg(test)]
mod tests;
