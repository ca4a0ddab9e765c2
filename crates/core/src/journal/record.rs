//! Data format of the journal: call records, the recovery data of open calls, and claims on idempotency keys.
//!
//! In: a call, and later its outcome. Out: the values that become rows. `journal.rs` builds the writes.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use smol_str::SmolStr;

use super::{KEY_RETENTION, LAYOUT};
use crate::call::CallHead;
use toolhub_storage::backend::{Row, RowKey, RowVersion, StoreError, Table, decode};
use toolhub_types::redact::Redactor;
use toolhub_types::{
    content::Content,
    ids::{ApprovalId, CallId, Caller, IdempotencyKey, RunId, ThreadId},
    json::CompactJson,
    outcome::{Outcome, Status},
    timestamp::Timestamp,
    tool::ToolName,
    trace::{TraceContext, TraceId},
};

/// The layout of the rows of ended calls: 2 since a row has the index terms of today. The record itself is the same in both.
pub(crate) const ENDED_CALL_LAYOUT: u32 = 2;

/// The record of an ended call.
pub(super) fn decode_ended<R: DeserializeOwned>(id: &SmolStr, row: &Row) -> Result<R, StoreError> {
    let layout = if row.schema == LAYOUT { LAYOUT } else { ENDED_CALL_LAYOUT };
    decode(Table::Calls, id, layout, row).map(|(record, _)| record)
}

/// The record of an ended or open call.
pub(super) fn decode_call(table: Table, id: &SmolStr, row: &Row) -> Result<CallRecord, StoreError> {
    match table {
        Table::Calls => decode_ended(id, row),
        _ => decode(table, id, LAYOUT, row).map(|(record, _)| record),
    }
}

/// A call in the journal. `A` is the form of its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CallRecord")]
#[non_exhaustive]
pub struct CallRecord<A = Value> {
    /// The call.
    pub id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Who made the call.
    pub caller: Caller,
    /// The thread.
    #[serde(rename = "threadId", skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<ThreadId>,
    /// The agent run.
    #[serde(rename = "runId", skip_serializing_if = "Option::is_none", default)]
    pub run: Option<RunId>,
    /// The idempotency key: a repeated call with the same key is the same call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<IdempotencyKey>,
    /// The arguments of the tool.
    pub arguments: A,
    /// The current status.
    pub status: Status,
    /// The approval it waits for, or the one it was made with.
    #[serde(rename = "approvalId", skip_serializing_if = "Option::is_none", default)]
    pub approval: Option<ApprovalId>,
    /// For a call that is executed externally: the deadline for reporting its result.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub external_until: Option<Timestamp>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<TraceId>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// The outcome, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<Outcome>,
    /// Recovery data, only while the call is open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(skip)]
    pub(crate) opening: Option<Box<Opening>>,
}

/// The parts of an ended call's record that its removal needs. Reading only these skips arguments and output.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallSummary {
    pub(crate) id: CallId,
    pub(crate) tool: ToolName,
    #[serde(default)]
    pub(crate) key: Option<IdempotencyKey>,
    opened_at: Timestamp,
    #[serde(default)]
    outcome: Option<OutcomeContent>,
}

#[derive(Deserialize)]
struct OutcomeContent {
    #[serde(default)]
    content: Vec<Content>,
}

/// What recovery needs to know about an open call of a crashed process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Opening {
    /// The id of the hub that runs it.
    pub(crate) node: SmolStr,
    /// Number of starts: 0 while it waits; 1 plus one for each time its process crashed.
    pub(crate) starts: u32,
    /// Whether its tool is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) read_only: bool,
    /// Digest of the arguments as the caller sent them, for a call with a key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) digest: Option<String>,
    /// The model's id of the tool call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) model_call: Option<SmolStr>,
    /// The context of a trace that was started by the caller.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) trace: Option<Box<TraceContext>>,
    /// Maximum number of retries, overriding the tool's policy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) retries: Option<u32>,
    /// Timeout of the external execution.
    #[serde(with = "toolhub_types::millis::option", skip_serializing_if = "Option::is_none", default)]
    pub(crate) external: Option<Duration>,
}

/// An open call and its row version. Closing it requires the current row version.
#[derive(Debug, Clone)]
pub(crate) struct OpenCall {
    pub(crate) record: CallRecord<CompactJson>,
    pub(crate) row_version: RowVersion,
}

/// The call an idempotency key belongs to. The outcome is only in the call's own record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Claim {
    pub(crate) call: CallId,
    pub(crate) thread: Option<ThreadId>,
    /// Whether the caller named the thread. Not known in old records and after a crash between opening and claim.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) named_thread: Option<bool>,
    /// Digest of the arguments, to detect a key that is reused for another call.
    pub(crate) digest: String,
    pub(crate) at: Timestamp,
}

impl Claim {
    /// Whether a call with this digest, for which its caller named this thread, is the same request.
    pub(crate) fn is_same_request(&self, digest: &str, thread: Option<&ThreadId>) -> bool {
        let same_thread = match self.named_thread {
            Some(named) => thread == self.thread.as_ref().filter(|_| named),
            None => thread.is_none() || thread == self.thread.as_ref(),
        };
        same_thread && self.digest == digest
    }
}

impl<A> CallRecord<A> {
    /// The record of a call that is about to run.
    pub(crate) fn opened(head: &CallHead, tool: ToolName, arguments: A, now: Timestamp) -> Self {
        Self {
            id: head.id,
            tool,
            caller: head.caller.clone(),
            thread: head.thread.clone(),
            run: head.run,
            key: head.idempotency_key.clone(),
            arguments,
            status: Status::Executing,
            approval: None,
            external_until: None,
            trace_id: head.trace_id(),
            opened_at: now,
            outcome: None,
            opening: None,
        }
    }
}

impl CallSummary {
    /// The parts of the record in a row of the table `calls`; `None` for another table, and if it cannot be read.
    pub(crate) fn of_row(key: &RowKey, row: &Row) -> Option<Self> {
        (key.table == Table::Calls).then(|| decode_ended(&key.id, row).ok()).flatten()
    }

    /// The content of the outcome in a row of the table `calls`; empty for other tables.
    pub(crate) fn content_of_row(key: &RowKey, row: &Row) -> Vec<Content> {
        Self::of_row(key, row).map(Self::into_content).unwrap_or_default()
    }

    /// The content of the outcome.
    pub(crate) fn into_content(self) -> Vec<Content> {
        self.outcome.map(|outcome| outcome.content).unwrap_or_default()
    }

    /// Whether the call has an idempotency key that its caller may still repeat, and must get this outcome for.
    pub(crate) fn may_be_repeated(&self, now: Timestamp) -> bool {
        self.key.is_some() && now.since(self.opened_at) < KEY_RETENTION
    }
}

impl CallRecord<CompactJson> {
    /// The record with its outcome. The call will not run again, so the secrets in its arguments are redacted.
    pub(crate) fn closed(self, outcome: Outcome, redactor: &Redactor) -> CallRecord {
        let mut arguments = self.arguments.into_value();
        redactor.redact(&mut arguments);
        CallRecord {
            id: self.id,
            tool: self.tool,
            caller: self.caller,
            thread: self.thread,
            run: self.run,
            key: self.key,
            arguments,
            status: outcome.status,
            approval: outcome.approval.or(self.approval),
            external_until: self.external_until,
            trace_id: self.trace_id,
            opened_at: self.opened_at,
            outcome: Some(outcome),
            opening: None,
        }
    }
}

impl OpenCall {
    /// The open call in a row of the table `open`.
    pub(crate) fn read(id: &SmolStr, row: &Row) -> Result<Self, StoreError> {
        decode(Table::OpenCalls, id, LAYOUT, row).map(|(record, row_version)| Self { record, row_version })
    }

    /// The node that runs it; empty if the record does not say.
    pub(crate) fn node(&self) -> &str {
        self.record.opening.as_ref().map_or("", |opening| &opening.node)
    }

    /// Whether it waits for an approval or in the queue: its tool was not started.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.record.status, Status::AwaitingApproval | Status::Scheduled)
    }

    /// Number of starts.
    pub(crate) fn start_count(&self) -> u32 {
        self.record.opening.as_ref().map_or(1, |opening| opening.starts)
    }
}
