//! The JSON form of a call: the same for one that has just ended, is in progress, or is looked up later.
//!
//! In: an outcome or a record. Out: JSON. Members whose value is not known yet are absent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhub_core::{
    CallError, CallRecord, Content, Effect, Outcome, Status, TimelineStep, TraceId, WriteDurability,
    clock::Timestamp,
    ids::{ApprovalId, CallId, Caller, IdempotencyKey, RunId, ThreadId},
    millis::Millis,
};

use crate::{links::Links, list_detail, problem::FieldError};

/// A call: its inputs, its progress and its outcome.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Call")]
pub(crate) struct CallView {
    /// The call.
    id: CallId,
    /// The tool's name as the caller wrote it.
    tool: String,
    /// The thread; minted if the tool needs one and the caller named none.
    thread_id: Option<ThreadId>,
    /// The id the model gave to the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    model_call_id: Option<String>,
    /// The key that made the call; only when the call is looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<Caller>,
    /// The agent run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// The idempotency key, which marks a repetition as the same call.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<IdempotencyKey>,
    /// The arguments; only when the call is looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// The stage it has reached.
    status: Status,
    /// The approval it waits for or was made with.
    approval: Option<ApprovalLink>,
    /// Its effect on the world.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<Effect>,
    /// What the tool returned.
    #[serde(skip_serializing_if = "Value::is_null")]
    output: Value,
    /// What a model is shown; absent if that is just the output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    content: Vec<Content>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
    /// How often the tool was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    /// Whether this is the stored outcome of an earlier call with the same idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<bool>,
    /// Whether this is the cached result of an earlier call with the same arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<bool>,
    /// `behind` if the tool's state is written a moment later (write-behind); `unreplicated` if fewer replicas of the store than configured
    /// (`store.redis.replicas`) had the end of the call in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<WriteDurability>,
    /// From arrival to the first start of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_ms: Option<Millis>,
    /// From the first start of the tool to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<Millis>,
    /// When it arrived.
    started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
    /// What it did and waited for, in order; only in `GET /api/v1/calls/{id}`. Of a call that has not ended, only its approval and the current
    /// step are known; that step is shown from the end of the one before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timeline: Vec<TimelineStep>,
}

/// How much of each call a list has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Detail {
    /// Everything; instead of long arguments and outputs their size, `{"omittedBytes": …}`.
    #[default]
    Full,
    /// All but arguments, output and content, which may be long.
    Short,
}

/// An approval, and its page.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalLink {
    /// The approval.
    pub(crate) id: ApprovalId,
    /// The URL of its page, for people.
    pub(crate) url: String,
    /// Until when it can be answered; only in the answer to a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
}

impl ApprovalLink {
    pub(crate) fn new(id: ApprovalId, links: &Links) -> Self {
        Self { id, url: links.approval(id), expires_at: None }
    }
}

/// Why a call did not succeed: the members of a problem, and some that only calls have.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CallFailure")]
pub(crate) struct Failure {
    /// The path of the page that explains the code.
    r#type: String,
    /// The stable error code.
    code: &'static str,
    /// The error text for operators.
    detail: String,
    /// The error text that is safe to show to a model.
    model: String,
    /// Whether the same call may succeed if it is retried.
    retryable: bool,
    /// Whether it counts against the tool.
    counts: bool,
    /// How long to wait before a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// The errors in the arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<FieldError>")]
    errors: Vec<Value>,
    /// Known names that are close to an unknown one.
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
    /// The view of a call that has just ended.
    pub(crate) fn from_outcome(outcome: Outcome, links: &Links) -> Self {
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
            approval: approval.map(|id| ApprovalLink::new(id, links)),
            effect: Some(outcome.effect),
            output: outcome.output,
            content: outcome.content,
            error: outcome.error.as_ref().map(Failure::from),
            attempts: Some(outcome.attempts),
            replayed: Some(outcome.replayed),
            cached: Some(outcome.cached),
            durability: Some(outcome.durability).filter(|durability| *durability != WriteDurability::Durable),
            queued_ms: Some(Millis(outcome.queued)),
            duration_ms: Some(Millis(outcome.duration)),
            started_at: outcome.started_at,
            ended_at: Some(outcome.ended_at),
            trace_id: outcome.trace_id,
            timeline: Vec::new(),
        }
    }

    /// The same call, as one that waits for this approval.
    pub(crate) fn awaiting(self, approval: ApprovalLink) -> Self {
        Self { status: Status::AwaitingApproval, approval: Some(approval), ..self }
    }

    /// The view for a list.
    pub(super) fn with_detail(mut self, detail: Detail) -> Self {
        if detail == Detail::Short {
            (self.arguments, self.output, self.content) = (None, Value::Null, Vec::new());
        }
        self.arguments.iter_mut().for_each(list_detail::shorten_value);
        list_detail::shorten_value(&mut self.output);
        list_detail::shorten_content(&mut self.content);
        if let Some(error) = &mut self.error {
            list_detail::shorten_text(&mut error.detail);
            list_detail::shorten_text(&mut error.model);
        }
        self
    }

    /// The view of one call, with its timeline.
    pub(super) fn with_timeline(self, timeline: Vec<TimelineStep>) -> Self {
        Self { timeline, ..self }
    }

    /// The id of the call.
    pub(super) fn id(&self) -> CallId {
        self.id
    }

    /// The view of a stored record.
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
        let view = Self {
            id,
            tool: tool.to_string(),
            thread_id: thread,
            model_call_id: None,
            caller: None,
            run_id: None,
            idempotency_key: None,
            arguments: None,
            status,
            approval: approval.map(|id| ApprovalLink::new(id, links)),
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
            timeline: Vec::new(),
        };
        let view = outcome.map_or(view, |outcome| Self::from_outcome(outcome, links));
        // A call that continued after a restart arrived before the restart.
        let started_at = view.started_at.min(opened_at);
        Self { caller: Some(caller), run_id: run, idempotency_key: key, arguments: Some(arguments), started_at, ..view }
    }
}
