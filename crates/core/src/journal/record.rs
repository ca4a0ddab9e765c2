//! What is written down of a call: its record, what is known only while it is open, and the claim on its key.
//!
//! In: a call, and later its outcome. Out: the values that become rows. Which table they lie in and how they get there is
//! said by `journal.rs`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;

use super::LAYOUT;
use crate::{call::CallHead, redact::Redactor};
use toolhub_storage::backend::{Row, RowKey, RowVersion, StoreError, Table, decode};
use toolhub_types::{
    content::Content,
    ids::{ApprovalId, CallId, Caller, IdempotencyKey, RunId, ThreadId},
    outcome::{Outcome, Status},
    timestamp::Timestamp,
    tool::ToolName,
    trace::{TraceContext, TraceId},
};

/// A call in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallRecord {
    /// The call.
    pub id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Who asked.
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
    /// What the tool was given.
    pub arguments: Value,
    /// Where it is on its way.
    pub status: Status,
    /// The question about it: the one it waits for, or the one whose answer it is made on.
    #[serde(rename = "approvalId", skip_serializing_if = "Option::is_none", default)]
    pub approval: Option<ApprovalId>,
    /// Somebody outside does the work, and has to report the result before this.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub external_until: Option<Timestamp>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<TraceId>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<Outcome>,
    /// What is known of it only while it is open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(skip)]
    pub(crate) opening: Option<Box<Opening>>,
}

/// What somebody needs who finds a call open and its process gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Opening {
    /// The hub that runs it.
    pub(crate) node: SmolStr,
    /// How often it was started: not at all while it waits; once, and once more whenever its process had died.
    pub(crate) starts: u32,
    /// Whether its tool changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) read_only: bool,
    /// The fingerprint of the arguments as the caller wrote them, for a call with a key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) digest: Option<String>,
    /// The id the model gave its request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) model_call: Option<SmolStr>,
    /// Where it stands in a trace that began elsewhere.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) trace: Option<Box<TraceContext>>,
    /// How often it is tried again, whatever its tool says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) retries: Option<u32>,
    /// How long somebody outside has to do the work.
    #[serde(with = "toolhub_types::millis::option", skip_serializing_if = "Option::is_none", default)]
    pub(crate) external: Option<Duration>,
}

/// A call that is open, and which writing of its row that is. Only whoever knows the last one can close it.
#[derive(Debug, Clone)]
pub(crate) struct OpenCall {
    pub(crate) record: CallRecord,
    pub(crate) row_version: RowVersion,
}

/// Which call an idempotency key belongs to. The call's own record has the answer: one truth, in one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Claim {
    pub(crate) call: CallId,
    pub(crate) thread: Option<ThreadId>,
    /// Of the arguments, so that a reused key is noticed.
    pub(crate) digest: String,
    pub(crate) at: Timestamp,
}

impl CallRecord {
    /// A call that is about to run.
    pub(crate) fn opened(head: &CallHead, tool: ToolName, arguments: Value, now: Timestamp) -> Self {
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

    /// What is shown of the call in a row of the table `calls`; nothing of any other row.
    pub(crate) fn content_of_row(key: &RowKey, row: &Row) -> Vec<Content> {
        if key.table != Table::Calls {
            return Vec::new();
        }
        let read = decode::<Self>(Table::Calls, &key.id, LAYOUT, row).ok();
        read.and_then(|(record, _)| record.outcome).map(|outcome| outcome.content).unwrap_or_default()
    }

    /// The same call with its end. It will not run again, so what is secret of its arguments need not be known any more.
    pub(crate) fn closed(mut self, outcome: Outcome, redactor: &Redactor) -> Self {
        redactor.redact(&mut self.arguments);
        let approval = outcome.approval.or(self.approval);
        Self { status: outcome.status, approval, outcome: Some(outcome), opening: None, ..self }
    }
}

impl OpenCall {
    /// The open call in a row of the table `open`.
    pub(crate) fn read(id: &SmolStr, row: &Row) -> Result<Self, StoreError> {
        decode(Table::OpenCalls, id, LAYOUT, row).map(|(record, seen)| Self { record, row_version: seen })
    }

    /// The node that runs it; none can be told of a record that does not say.
    pub(crate) fn node(&self) -> &str {
        self.record.opening.as_ref().map_or("", |opening| &opening.node)
    }

    /// Whether it waits for a person or for its turn: its tool has not been started.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.record.status, Status::AwaitingApproval | Status::Scheduled)
    }

    /// How often it was started.
    pub(crate) fn start_count(&self) -> u32 {
        self.record.opening.as_ref().map_or(1, |opening| opening.starts)
    }
}
