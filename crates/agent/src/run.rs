//! One invocation of an agent, as a machine that does nothing itself.
//!
//! In: what the model answered, what came of its calls, that somebody cancelled. Out: what is to be done next, and the messages that
//! belong to the conversation. It can be written down between any two of these and read by another process, which goes on
//! from there. `driver.rs` does what it asks for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::{
    Status,
    clock::Timestamp,
    ids::{ApprovalId, CallId, RunId},
};

use crate::{
    message::{AskedCall, CallResult, Message},
    model::{Reply, Stop, Usage},
};

/// How far a run may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// How often the model is asked at most. The last time it may not ask for calls.
    pub steps: u32,
    /// How many tokens it may read and write; any number where absent.
    pub tokens: Option<u64>,
    /// When it must be over.
    pub until: Option<Timestamp>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The run, for ever.
    pub id: RunId,
    /// When it began.
    pub started: Timestamp,
    bounds: Bounds,
    steps: u32,
    usage: Usage,
    made: Vec<RunCall>,
    phase: Phase,
}

/// Where a run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
enum Phase {
    /// The model is to be asked.
    Asking,
    /// Its calls are to be made, or run.
    Calling {
        text: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        calls: Vec<PlannedCall>,
    },
    /// There is nothing left to do.
    Over { end: RunEnd },
}

/// A call that is to be made, with the id it will have here. Known before it begins, so that whoever reads the run later can
/// find out what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The call.
    pub id: CallId,
    /// What the model asked for.
    pub asked: AskedCall,
}

/// A call of a run, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCall {
    /// The call.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// Where it is on its way.
    pub status: Status,
    /// What to give the tool; told of calls whose result is to come from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
    /// The question it waits for.
    #[serde(rename = "approvalId", default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum RunEnd {
    /// The model gave its answer.
    Completed {
        /// Why it stopped.
        stop: Stop,
        /// The answer.
        content: String,
    },
    /// Something stood in the way.
    Failed(RunError),
    /// Somebody did not want it any more.
    Cancelled,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// A word for programs: `max_steps`, `token_budget`, `time_budget`, `no_such_agent`, `store_unavailable`, or `model_` and what
    /// was wrong with the model.
    pub code: SmolStr,
    /// For people.
    pub message: String,
}

impl RunError {
    /// A failure.
    pub fn new(code: impl Into<SmolStr>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// What a run wants to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum NextAction<'a> {
    /// Ask the model.
    AskModel {
        /// Whether it may ask for calls.
        may_call: bool,
    },
    /// Make these calls.
    ExecuteCalls(&'a [PlannedCall]),
    /// Nothing: it is over.
    Finished(&'a RunEnd),
}

impl Run {
    /// A run that begins now.
    #[must_use]
    pub fn new(id: RunId, started: Timestamp, bounds: Bounds) -> Self {
        Self { id, started, bounds, steps: 0, usage: Usage::default(), made: Vec::new(), phase: Phase::Asking }
    }

    /// What is to be done next.
    #[must_use]
    pub fn next_action(&self) -> NextAction<'_> {
        match &self.phase {
            Phase::Asking => NextAction::AskModel { may_call: self.steps + 1 < self.bounds.steps },
            Phase::Calling { calls, .. } => NextAction::ExecuteCalls(calls),
            Phase::Over { end } => NextAction::Finished(end),
        }
    }

    /// How often the model has answered.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// What the model has read and written.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// What the model said beside the calls it asks for now.
    #[must_use]
    pub fn assistant_text(&self) -> &str {
        if let Phase::Calling { text, .. } = &self.phase { text } else { "" }
    }

    /// When it must be over.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.bounds.until
    }

    /// The calls of the steps that are done.
    #[must_use]
    pub fn completed_calls(&self) -> &[RunCall] {
        &self.made
    }

    /// Ends the run if it has used up what it may use. Asked before the model is.
    pub fn enforce_bounds(&mut self, now: Timestamp) {
        let Bounds { steps, tokens, until } = self.bounds;
        let spent = self.usage.input_tokens.saturating_add(self.usage.output_tokens);
        if self.steps >= steps {
            self.fail(RunError::new("max_steps", format!("the run has made {steps} steps, as many as it may")));
        } else if let Some(tokens) = tokens.filter(|tokens| spent >= *tokens) {
            let told = format!("the run has used {spent} tokens; it may use {tokens}");
            self.fail(RunError::new("token_budget", told));
        } else if until.is_some_and(|until| now >= until) {
            self.exceed_time_budget();
        }
    }

    /// Ends the run because it has taken as long as it may, unless it has ended.
    pub fn exceed_time_budget(&mut self) {
        self.fail(RunError::new("time_budget", "the run has taken as long as it may"));
    }

    /// Takes the model's answer in. Answers with the message that belongs to the conversation now: none while there are calls
    /// to be made, because a call and its result are never apart.
    pub fn apply_reply(&mut self, reply: Reply, mut mint: impl FnMut() -> CallId) -> Option<Message> {
        let Phase::Asking = self.phase else { return None };
        let may_call = matches!(self.next_action(), NextAction::AskModel { may_call: true });
        self.steps += 1;
        self.usage += reply.usage;
        let Reply { text, reasoning, calls, stop, .. } = reply;
        if !calls.is_empty() && may_call {
            let calls = calls.into_iter().map(|asked| PlannedCall { id: mint(), asked }).collect();
            self.phase = Phase::Calling { text, reasoning, calls };
            return None;
        }
        let said = Message::Assistant { content: text.clone(), reasoning: String::new(), calls: Vec::new() };
        if calls.is_empty() {
            self.phase = Phase::Over { end: RunEnd::Completed { stop, content: text } };
            return Some(said);
        }
        let told = format!("after {} steps the model still asks for calls; it may make no more", self.steps);
        self.fail(RunError::new("max_steps", told));
        // What it asked for will never be done, so the conversation must not say that it was asked.
        (!text.is_empty()).then_some(said)
    }

    /// Takes in what came of the calls, in their order. Answers with the messages that belong to the conversation now.
    pub fn apply_results(&mut self, ends: Vec<(CallResult, Status)>) -> Option<[Message; 2]> {
        let Phase::Calling { text, reasoning, calls } = &mut self.phase else { return None };
        let (content, reasoning, calls) = (std::mem::take(text), std::mem::take(reasoning), std::mem::take(calls));
        self.phase = Phase::Asking;
        for (planned, (_, status)) in calls.iter().zip(&ends) {
            let tool = planned.asked.tool.clone();
            self.made.push(RunCall { id: planned.id, tool, status: *status, arguments: None, approval: None });
        }
        let calls = calls.into_iter().map(|call| call.asked).collect();
        let asked = Message::Assistant { content, reasoning, calls };
        Some([asked, Message::Tool { results: ends.into_iter().map(|(result, _)| result).collect() }])
    }

    /// Ends the run with a failure, unless it has ended. Calls that are to be made must be taken in first.
    pub fn fail(&mut self, error: RunError) {
        self.end(RunEnd::Failed(error));
    }

    /// Ends the run because somebody does not want it any more, unless it has ended.
    pub fn cancel(&mut self) {
        self.end(RunEnd::Cancelled);
    }

    fn end(&mut self, end: RunEnd) {
        if let Phase::Asking = self.phase {
            self.phase = Phase::Over { end };
        }
    }
}

#[cfg(test)]
mod tests;
