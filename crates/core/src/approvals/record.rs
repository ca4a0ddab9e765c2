//! One question to a person about one call, and its answer.
//!
//! Plain data that goes through a backend. An approval is bound to exactly what was asked: tool and definition,
//! arguments, thread and caller. It is good for one execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{call::Call, redact::Redactor};
use toolhub_storage::backend::{Partition, PartitionKind};
use toolhub_types::{
    approval::{ApprovalOutcome, ApprovalState},
    digest,
    ids::{ApprovalId, CallId, Caller, IdempotencyKey, RunId, Tenant, ThreadId},
    timestamp::Timestamp,
    tool::{Definition, ToolName},
};

/// A question to a person: may this call run?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Approval {
    /// The question.
    pub id: ApprovalId,
    /// The call that asked.
    pub call_id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Who wants to call it.
    pub caller: Caller,
    /// The conversation.
    #[serde(rename = "threadId", skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<ThreadId>,
    /// The agent run.
    #[serde(rename = "runId", skip_serializing_if = "Option::is_none", default)]
    pub run: Option<RunId>,
    /// The caller's word that a repetition is the same call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<IdempotencyKey>,
    /// What the tool would be given.
    pub arguments: Value,
    /// The rule that asks.
    pub rule: String,
    /// Why it asks, in its owner's words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it is too late: to answer, and after a yes, to use it.
    pub expires_at: Timestamp,
    /// Where it stands.
    pub state: ApprovalState,
    /// The answer, once there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Answer>,
    /// The call that was made on it, or was told no.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used_by: Option<CallId>,
    /// The fingerprint of what it is bound to; not told to anybody.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    #[schemars(skip)]
    pub(crate) binding: String,
    /// The fingerprint of the arguments as the caller wrote them: what is kept of them has no secrets. Empty in old records.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    #[schemars(skip)]
    pub(crate) digest: String,
}

impl Approval {
    /// The same, as it may be told.
    pub(crate) fn without_secrets(mut self, redactor: &Redactor) -> Self {
        redactor.redact(&mut self.arguments);
        if let Some(edited) = self.answer.as_mut().and_then(|answer| answer.arguments.as_mut()) {
            redactor.redact(edited);
        }
        self
    }
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ApprovalAnswer")]
pub struct Answer {
    /// What it is.
    pub outcome: ApprovalOutcome,
    /// Who gave it.
    pub by: Caller,
    /// When.
    pub at: Timestamp,
    /// The arguments to use instead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<Value>,
    /// What the model is told with a no.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
}

impl Answer {
    /// An answer, given now.
    #[must_use]
    pub fn new(outcome: ApprovalOutcome, by: Caller) -> Self {
        Self { outcome, by, at: Timestamp::default(), arguments: None, message: None }
    }

    /// Yes, with these arguments instead.
    #[must_use]
    pub fn edited(arguments: Value, by: Caller) -> Self {
        Self { arguments: Some(arguments), ..Self::new(ApprovalOutcome::ModifyWithEditor, by) }
    }

    /// No, and this is what the model is told.
    #[must_use]
    pub fn denied(message: impl Into<String>, by: Caller) -> Self {
        Self { message: Some(message.into()), ..Self::new(ApprovalOutcome::Cancel, by) }
    }
}

impl Approval {
    /// Where it stands now: a question that nobody answered in time is answered, and so is a yes that nobody used.
    #[must_use]
    pub fn state_at(&self, now: Timestamp) -> ApprovalState {
        match self.state {
            ApprovalState::Pending | ApprovalState::Approved if self.expires_at <= now => ApprovalState::TimedOut,
            state => state,
        }
    }

    /// Whether a call may be made on it now.
    pub(crate) fn is_usable(&self, now: Timestamp) -> bool {
        self.state_at(now) == ApprovalState::Approved
    }

    /// Whether a call that is made again would still want to find it.
    pub(crate) fn is_relevant(&self, now: Timestamp) -> bool {
        self.is_usable(now) || self.is_undelivered_denial(now) || self.state_at(now) == ApprovalState::Pending
    }

    /// Whether it is a no that no caller has heard yet.
    pub(crate) fn is_undelivered_denial(&self, now: Timestamp) -> bool {
        self.state == ApprovalState::Denied && self.used_by.is_none() && now < self.expires_at
    }
}

/// A tool as it is defined now. With another fingerprint it is another tool, and answers about the old one do not count.
#[derive(Clone, Copy)]
pub(crate) struct ToolVersion<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) fingerprint: &'a str,
}

/// What an approval for this call is bound to.
pub(crate) fn binding(call: &Call, tool: ToolVersion<'_>) -> String {
    let arguments = digest::hash_json(&call.arguments);
    binding_digest(&tool.definition.name, tool.fingerprint, &arguments, call.thread.as_ref(), &call.caller)
}

/// The same for an approval that is there: what it would be bound to if it were asked for now.
pub(crate) fn current_binding(approval: &Approval, tool: ToolVersion<'_>) -> String {
    let arguments = match approval.digest.as_str() {
        "" => &digest::hash_json(&approval.arguments),
        digest => digest,
    };
    binding_digest(&tool.definition.name, tool.fingerprint, arguments, approval.thread.as_ref(), &approval.caller)
}

fn binding_digest(
    tool: &str,
    fingerprint: &str,
    arguments: &str,
    thread: Option<&ThreadId>,
    caller: &Caller,
) -> String {
    let parts = [tool, fingerprint, arguments, thread.map_or("", ThreadId::as_str), caller.as_str()];
    digest::sha256_hex(parts.map(str::as_bytes))
}

/// Where the approvals of a call lie: with its thread, or with the tool where there is none.
pub(crate) fn partition(tenant: &Tenant, thread: Option<&ThreadId>, tool: &ToolName) -> Partition {
    let place =
        thread.map_or_else(|| PartitionKind::Tool(tool.clone()), |thread| PartitionKind::Thread(thread.clone()));
    Partition { tenant: tenant.clone(), kind: place }
}
