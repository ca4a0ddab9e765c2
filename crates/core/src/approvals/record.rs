//! Data format of an approval: the request for one call, and its answer.
//!
//! In: a call and its tool. Out: plain data that is stored, and its binding digest. An approval is bound to exactly
//! what was requested: tool and definition, arguments, thread and caller. It permits one execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Call;
use toolhub_storage::backend::{Partition, PartitionKind};
use toolhub_types::redact::Redactor;
use toolhub_types::{
    approval::{ApprovalOutcome, ApprovalState},
    digest,
    ids::{ApprovalId, CallId, Caller, IdempotencyKey, RunId, Tenant, ThreadId},
    json::CompactJson,
    timestamp::Timestamp,
    tool::{Definition, ToolName},
};

/// A request for human approval of one call. `A` is the form of its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Approval")]
#[non_exhaustive]
pub struct Approval<A = Value> {
    /// The id of the approval.
    pub id: ApprovalId,
    /// The call that requires it.
    pub call_id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Who makes the call.
    pub caller: Caller,
    /// The thread.
    #[serde(rename = "threadId", skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<ThreadId>,
    /// The agent run.
    #[serde(rename = "runId", skip_serializing_if = "Option::is_none", default)]
    pub run: Option<RunId>,
    /// The idempotency key of the call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<IdempotencyKey>,
    /// The arguments of the call.
    pub arguments: A,
    /// The rule that requires the approval.
    pub rule: String,
    /// The reason stated in the rule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// When it was requested.
    pub asked_at: Timestamp,
    /// When it expires: until then it can be answered and, once approved, used.
    pub expires_at: Timestamp,
    /// The state.
    pub state: ApprovalState,
    /// The answer, once there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Answer>,
    /// The call that used the approval or received the denial.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used_by: Option<CallId>,
    /// Digest of what it is bound to; never shown.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    #[schemars(skip)]
    pub(crate) binding: String,
    /// Digest of the arguments as the caller sent them, because the stored ones are redacted. Empty in old records.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    #[schemars(skip)]
    pub(crate) digest: String,
    /// Whether the request belongs to the call that made it, as long as it is pending; never shown.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    #[schemars(skip)]
    pub(crate) is_exclusive: bool,
}

impl Approval {
    /// The same approval with secrets redacted.
    pub(crate) fn without_secrets(mut self, redactor: &Redactor) -> Self {
        redactor.redact(&mut self.arguments);
        if let Some(edited) = self.answer.as_mut().and_then(|answer| answer.arguments.as_mut()) {
            redactor.redact(edited);
        }
        self
    }
}

impl Approval<CompactJson> {
    /// The same approval with parsed arguments.
    pub(crate) fn into_parsed(self) -> Approval {
        Approval {
            id: self.id,
            call_id: self.call_id,
            tool: self.tool,
            caller: self.caller,
            thread: self.thread,
            run: self.run,
            key: self.key,
            arguments: self.arguments.into_value(),
            rule: self.rule,
            reason: self.reason,
            asked_at: self.asked_at,
            expires_at: self.expires_at,
            state: self.state,
            answer: self.answer,
            used_by: self.used_by,
            binding: self.binding,
            digest: self.digest,
            is_exclusive: self.is_exclusive,
        }
    }
}

/// The answer to an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ApprovalAnswer")]
pub struct Answer {
    /// The decision.
    pub outcome: ApprovalOutcome,
    /// Who gave it.
    pub by: Caller,
    /// When it was given.
    pub at: Timestamp,
    /// The arguments to use instead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<Value>,
    /// The message for the model with a denial.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
}

impl Answer {
    /// An answer with this decision. The hub sets the time.
    #[must_use]
    pub fn new(outcome: ApprovalOutcome, by: Caller) -> Self {
        Self { outcome, by, at: Timestamp::default(), arguments: None, message: None }
    }

    /// Approves the call with these arguments instead.
    #[must_use]
    pub fn edited(arguments: Value, by: Caller) -> Self {
        Self { arguments: Some(arguments), ..Self::new(ApprovalOutcome::ModifyWithEditor, by) }
    }

    /// Denies the call with this message for the model.
    #[must_use]
    pub fn denied(message: impl Into<String>, by: Caller) -> Self {
        Self { message: Some(message.into()), ..Self::new(ApprovalOutcome::Cancel, by) }
    }
}

impl<A> Approval<A> {
    /// The state at this time: a pending or an unused approved one has timed out after its expiry.
    #[must_use]
    pub fn state_at(&self, now: Timestamp) -> ApprovalState {
        match self.state {
            ApprovalState::Pending | ApprovalState::Approved if self.expires_at <= now => ApprovalState::TimedOut,
            state => state,
        }
    }

    /// Whether a call may use it now.
    pub(crate) fn is_usable(&self, now: Timestamp) -> bool {
        self.state_at(now) == ApprovalState::Approved
    }

    /// Whether it still matters to a repeated call: it is pending, usable or an undelivered denial.
    pub(crate) fn is_relevant(&self, now: Timestamp) -> bool {
        self.is_usable(now) || self.is_undelivered_denial(now) || self.state_at(now) == ApprovalState::Pending
    }

    /// Whether it is a denial that no caller has received yet.
    pub(crate) fn is_undelivered_denial(&self, now: Timestamp) -> bool {
        self.state == ApprovalState::Denied && self.used_by.is_none() && now < self.expires_at
    }
}

/// A tool as it is defined now. Approvals and grants of a tool with another fingerprint do not apply.
#[derive(Clone, Copy)]
pub(crate) struct ToolVersion<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) fingerprint: &'a str,
}

/// The binding of an approval for this call.
pub(crate) fn binding(call: &Call, tool: ToolVersion<'_>) -> String {
    let arguments = digest::hash_json(&call.arguments.to_value());
    binding_digest(&tool.definition.name, tool.fingerprint, &arguments, call.thread.as_ref(), &call.caller)
}

/// The binding an existing approval would have if it were requested now.
pub(crate) fn current_binding(approval: &Approval<CompactJson>, tool: ToolVersion<'_>) -> String {
    let arguments = match approval.digest.as_str() {
        "" => &digest::hash_json(&approval.arguments.to_value()),
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

/// The partition of a call's approvals: that of its thread, or of the tool without a thread.
pub(crate) fn partition(tenant: &Tenant, thread: Option<&ThreadId>, tool: &ToolName) -> Partition {
    let kind = thread.map_or_else(|| PartitionKind::Tool(tool.clone()), |thread| PartitionKind::Thread(thread.clone()));
    Partition { tenant: tenant.clone(), kind }
}
