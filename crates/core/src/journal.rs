//! The book of calls: what was opened, and how it ended.
//!
//! In: calls that must not be forgotten, and their outcomes. Out: records, and the answer to "was this call made
//! before?". Rows go to the store in the batches the pipeline makes; this room knows their form.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use smol_str::SmolStr;

use crate::{
    backend::{
        Backend, Change, Durability, Expect, Key, Partition, Place, Seen, StoreError, Table, Write, decode, encode,
    },
    call::{Call, Outcome, Status},
    clock::Timestamp,
    ids::{CallId, Caller, IdempotencyKey, RunId, Tenant, ThreadId},
    status::Evidence,
    tool::ToolName,
};

/// How long an idempotency key is remembered.
const KEYS_ARE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// A call in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// When it was opened.
    pub opened_at: Timestamp,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<Outcome>,
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

/// The layout of all these records.
const LAYOUT: u32 = 1;
/// A key's partition holds one row.
const CLAIM: SmolStr = SmolStr::new_static("claim");
/// A thread's evidence is one row: what succeeded first can be told only when all of it is seen together.
const EVIDENCE: SmolStr = SmolStr::new_static("evidence");

#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) store: Arc<dyn Backend>,
    /// How long ended calls are kept.
    pub(crate) keep: Duration,
}

impl Journal {
    /// The write that opens a call, or records one that was never opened.
    pub(crate) fn open(&self, record: &CallRecord, now: Timestamp) -> Result<Write, StoreError> {
        // An open call is never forgotten: it is still running, or somebody must be told that it was interrupted.
        let expires = record.outcome.is_some().then(|| self.forgotten(record, now));
        self.call(record, Expect::Absent, expires)
    }

    /// The write that closes a call that was opened. Only its own opener closes it, so it is as it was opened.
    pub(crate) fn close(&self, record: &CallRecord, now: Timestamp) -> Result<Write, StoreError> {
        self.call(record, Expect::Any, Some(self.forgotten(record, now)))
    }

    /// When an ended call may be forgotten: the answer to a key must last as long as the key.
    fn forgotten(&self, record: &CallRecord, now: Timestamp) -> Timestamp {
        now + if record.key.is_some() { self.keep.max(KEYS_ARE_KEPT) } else { self.keep }
    }

    fn call(&self, record: &CallRecord, expect: Expect, expires: Option<Timestamp>) -> Result<Write, StoreError> {
        let value = encode(Table::Calls, &record.id.into(), record)?;
        Ok(Write {
            table: Table::Calls,
            id: record.id.into(),
            expect,
            change: Change::Put { value, schema: LAYOUT, expires },
            // The answer to a repeated key must survive more than the process: the caller counts on it.
            durability: if record.key.is_some() { Durability::PowerSafe } else { Durability::KillSafe },
        })
    }

    /// The write that takes back an opened call that did not get its key.
    pub(crate) fn unopen(&self, call: CallId) -> Write {
        Write {
            table: Table::Calls,
            id: call.into(),
            expect: Expect::Any,
            change: Change::Remove,
            durability: Durability::KillSafe,
        }
    }

    /// The write that claims a key for a call; `over` is a claim whose call is no longer in the journal.
    pub(crate) fn claim(&self, claim: &Claim, over: Option<Seen>) -> Result<Write, StoreError> {
        let id = CLAIM;
        let value = encode(Table::Claims, &id, claim)?;
        Ok(Write {
            table: Table::Claims,
            id,
            expect: over.map_or(Expect::Absent, Expect::Same),
            change: Change::Put { value, schema: LAYOUT, expires: Some(claim.at + KEYS_ARE_KEPT) },
            durability: Durability::PowerSafe,
        })
    }

    /// The claim on a key, as it was seen.
    pub(crate) async fn claimed(
        &self,
        tenant: &Tenant,
        tool: &ToolName,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<(Claim, Seen)>, StoreError> {
        let key = Key { partition: claims(tenant, tool, key), table: Table::Claims, id: CLAIM };
        self.one(key, now).await
    }

    /// The record of a call.
    pub(crate) async fn record(
        &self,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        call: CallId,
        now: Timestamp,
    ) -> Result<Option<CallRecord>, StoreError> {
        let partition = Partition::of_call(tenant.clone(), thread, call);
        let found = self.one(Key { partition, table: Table::Calls, id: call.into() }, now).await?;
        Ok(found.map(|(record, _)| record))
    }

    /// What a thread has achieved, as it was seen.
    pub(crate) async fn evidence(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        now: Timestamp,
    ) -> Result<(Evidence, Option<Seen>), StoreError> {
        let partition = Partition::of_thread(tenant.clone(), thread.clone());
        let keys = [Key { partition, table: Table::Evidence, id: EVIDENCE }];
        let row = self.store.load(&keys, now).await?.pop().flatten();
        // Evidence that cannot be read is none: whoever waits for it waits again, and the next success takes its place.
        Ok(row.map_or_else(Default::default, |row| {
            let evidence = decode(Table::Evidence, &EVIDENCE, LAYOUT, &row).inspect_err(StoreError::passed_over);
            (evidence.map(|(evidence, _)| evidence).unwrap_or_default(), Some(row.seen))
        }))
    }

    /// The write that keeps what a thread has achieved.
    pub(crate) fn prove(&self, evidence: &Evidence, over: Option<Seen>) -> Result<Write, StoreError> {
        let value = encode(Table::Evidence, &EVIDENCE, evidence)?;
        Ok(Write {
            table: Table::Evidence,
            id: EVIDENCE,
            expect: over.map_or(Expect::Absent, Expect::Same),
            change: Change::Put { value, schema: LAYOUT, expires: None },
            durability: Durability::KillSafe,
        })
    }

    async fn one<T: DeserializeOwned>(&self, key: Key, now: Timestamp) -> Result<Option<(T, Seen)>, StoreError> {
        let keys = [key];
        let row = self.store.load(&keys, now).await?.pop().flatten();
        let [key] = keys;
        row.map(|row| decode(key.table, &key.id, LAYOUT, &row)).transpose()
    }
}

/// Where the claim on a key lies.
pub(crate) fn claims(tenant: &Tenant, tool: &ToolName, key: &IdempotencyKey) -> Partition {
    Partition { tenant: tenant.clone(), place: Place::Key(tool.clone(), key.clone()) }
}

impl CallRecord {
    /// A call that is about to run.
    pub(crate) fn opened(call: &Call, tool: &ToolName, now: Timestamp) -> Self {
        Self {
            id: call.id,
            tool: tool.clone(),
            caller: call.caller.clone(),
            thread: call.thread.clone(),
            run: call.run,
            key: call.key.clone(),
            arguments: call.arguments.clone(),
            status: Status::Executing,
            opened_at: now,
            outcome: None,
        }
    }

    /// The same call with its end.
    pub(crate) fn closed(self, outcome: Outcome) -> Self {
        Self { status: outcome.status, outcome: Some(outcome), ..self }
    }
}
