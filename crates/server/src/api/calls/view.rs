//! A call as the API shows it: one shape, whether it has just ended, is on its way, or is looked up later.
//!
//! In: an outcome or a record. Out: JSON. What is not known yet is not there.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use toolhub_core::{
    Acknowledged, CallError, CallRecord, Content, Effect, Outcome, Status, TraceId,
    clock::Timestamp,
    ids::{ApprovalId, CallId, Caller, IdempotencyKey, RunId, ThreadId},
};

use crate::{links::Links, problem::Flaw};

/// A call: what was asked for, where it is, and how it ended.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Call")]
pub(crate) struct CallView {
    /// The call.
    id: CallId,
    /// The tool's name as the caller wrote it.
    tool: String,
    /// The conversation; minted where the tool needs one and the caller named none.
    thread_id: Option<ThreadId>,
    /// The id the model gave its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    model_call_id: Option<String>,
    /// Who asked; told when the call is looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<Caller>,
    /// The agent run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// The caller's word that a repetition is the same call.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<IdempotencyKey>,
    /// What the tool was given; told when the call is looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// Where it is on its way.
    status: Status,
    /// The question it waits for or was made on.
    approval: Option<ApprovalLink>,
    /// What it did to the world.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<Effect>,
    /// What the tool returned.
    #[serde(skip_serializing_if = "Value::is_null")]
    output: Value,
    /// What a model is shown; absent where that is just the output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    content: Vec<Content>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
    /// How often the tool was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    /// Whether this is the kept answer of an earlier call with the same idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<bool>,
    /// Whether this is the kept answer of an earlier call with the same arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<bool>,
    /// `behind` where what the tool remembers of this call is written down a moment later.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<Acknowledged>,
    /// From arrival to the first start of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_ms: Option<u64>,
    /// From the first start of the tool to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// When it arrived.
    started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
}

/// A question, and where it is answered.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ApprovalLink {
    /// The question.
    pub(crate) id: ApprovalId,
    /// Where it can be looked at, and answered.
    pub(crate) url: String,
}

/// Why a call did not succeed: the members of a problem, beside what only a call has.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CallFailure")]
pub(crate) struct Failure {
    /// Where the code is explained.
    r#type: String,
    /// The stable name of what went wrong.
    code: &'static str,
    /// The line for operators.
    detail: String,
    /// The line a model may read.
    model: String,
    /// Whether the same call may succeed if it is made again.
    retryable: bool,
    /// Whether it speaks against the tool.
    counts: bool,
    /// How long to wait before trying again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// What is wrong with which argument.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Flaw>")]
    errors: Vec<Value>,
    /// Names close to one that is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suggestions: Vec<String>,
    /// The tools that must succeed first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        Self {
            r#type: format!("/problems/{}", error.kind.name()),
            code: error.kind.name(),
            detail: error.operator.clone(),
            model: error.model.clone(),
            retryable: error.retryable,
            counts: error.counts,
            retry_after_ms: error.retry_after.map(whole_millis),
            errors: error.problems().iter().filter_map(|problem| serde_json::to_value(problem).ok()).collect(),
            suggestions: error.suggestions().to_vec(),
            missing: error.missing_dependencies().to_vec(),
        }
    }
}

fn whole_millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl CallView {
    /// A call that has just ended.
    pub(crate) fn from_outcome(outcome: Outcome, links: &Links) -> Self {
        let link = |id| ApprovalLink { id, url: links.approval(id) };
        let approval = outcome.approval.or_else(|| outcome.error.as_ref().and_then(CallError::approval));
        Self {
            id: outcome.id,
            tool: outcome.tool.into(),
            thread_id: outcome.thread,
            model_call_id: outcome.model_call.map(Into::into),
            caller: None,
            run_id: None,
            idempotency_key: None,
            arguments: None,
            status: outcome.status,
            approval: approval.map(link),
            effect: Some(outcome.effect),
            output: outcome.output,
            content: outcome.content,
            error: outcome.error.as_ref().map(Failure::from),
            attempts: Some(outcome.attempts),
            replayed: Some(outcome.replayed),
            cached: Some(outcome.cached),
            durability: Some(outcome.durability).filter(|durability| *durability != Acknowledged::Durable),
            queued_ms: Some(whole_millis(outcome.queued)),
            duration_ms: Some(whole_millis(outcome.duration)),
            started_at: outcome.started_at,
            ended_at: Some(outcome.ended_at),
            trace_id: outcome.trace_id,
        }
    }

    /// A call that is looked up.
    pub(crate) fn from_record(record: CallRecord, links: &Links) -> Self {
        let CallRecord {
            id,
            tool,
            caller,
            thread,
            run,
            key,
            arguments,
            status,
            approval,
            opened_at,
            outcome,
            trace_id,
            ..
        } = record;
        let known = Self {
            id,
            tool: tool.to_string(),
            thread_id: thread,
            model_call_id: None,
            caller: None,
            run_id: None,
            idempotency_key: None,
            arguments: None,
            status,
            approval: approval.map(|id| ApprovalLink { id, url: links.approval(id) }),
            effect: None,
            output: Value::Null,
            content: Vec::new(),
            error: None,
            attempts: None,
            replayed: None,
            cached: None,
            durability: None,
            queued_ms: None,
            duration_ms: None,
            started_at: opened_at,
            ended_at: None,
            trace_id,
        };
        let known = outcome.map_or(known, |outcome| Self::from_outcome(outcome, links));
        // A call that went on after a restart arrived before that.
        let started_at = known.started_at.min(opened_at);
        Self {
            caller: Some(caller),
            run_id: run,
            idempotency_key: key,
            arguments: Some(arguments),
            started_at,
            ..known
        }
    }
}
