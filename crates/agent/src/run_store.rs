//! Stores conversations and runs, in the partition of their thread.
//!
//! In: messages and the state of a run. Out: one batch with optimistic concurrency control (expected row versions), so
//! that a step is committed atomically and two processes never drive one run. A thread has a head row (the length of
//! its conversation), its messages by number, its run records by id, and, while a run is open, the state of that run.

mod ownership;
mod queries;
mod sealed_calls;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use smol_str::{SmolStr, format_smolstr};
use toolhub_core::{
    Sealer, TraceContext,
    alerts::{AlertSignals, Condition},
    backend::{
        Backend, Batch, Change, Durability, Expect, Row, RowKey, RowVersion, StoreError, Table, Write, decode, encode,
    },
    clock::Timestamp,
    digest,
    ids::{Caller, IdempotencyKey, RunId, ThreadId, ThreadKey},
};

use crate::{
    message::{Message, UserMessage},
    record::RunRecord,
    run::Run,
    window::{SizedMessage, message_tokens},
};

pub(crate) use ownership::cancelled_run;
pub use queries::StoredMessage;
use sealed_calls::CallSealer;

/// The schema version of all these rows.
const SCHEMA_VERSION: u32 = 1;
/// The row of the conversation head.
const HEAD_ROW_ID: SmolStr = SmolStr::new_static("~");
/// The row of an open run.
const OPEN_RUN_ROW_ID: SmolStr = SmolStr::new_static(Table::OPEN_RUN);
/// How often the commit of a message is attempted when it conflicts.
const MAX_COMMIT_ATTEMPTS: usize = 8;
/// How long the idempotency key of a message is kept.
const IDEMPOTENCY_KEY_TTL: Duration = Duration::from_secs(24 * 3600);

/// The length of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversationHead {
    /// The number of the last message.
    #[serde(rename = "last")]
    pub(crate) last_seq: u64,
    /// The size of the conversation, in tokens.
    #[serde(rename = "upto")]
    pub(crate) tokens_so_far: u64,
    /// The agent that got the last message.
    pub(crate) agent: SmolStr,
}

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenRun {
    pub(crate) run: Run,
    pub(crate) agent: SmolStr,
    pub(crate) caller: Caller,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceContext>,
    /// The node that drives it. Runs of earlier versions have none; their process is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<SmolStr>,
}

impl OpenRun {
    /// The public record of the run.
    pub(crate) fn record(&self, thread: &ThreadId, now: Timestamp) -> RunRecord {
        let trace_id = self.trace.as_ref().map(|trace| trace.trace_id);
        RunRecord { trace_id, ..RunRecord::of(&self.run, thread, &self.agent, now) }
    }
}

/// The run that an idempotency key belongs to.
#[derive(Serialize, Deserialize)]
struct Claim {
    run: RunId,
    /// Digest of the message, to detect a reused key.
    digest: String,
}

/// An open run with the row versions it was read at. Only the holder of the current versions can commit its next step.
#[derive(Debug, Clone)]
pub(crate) struct RunCheckout {
    pub(crate) open_run: OpenRun,
    pub(crate) head: ConversationHead,
    head_version: Option<RowVersion>,
    open_version: RowVersion,
    /// Stamps of batches whose commit is unconfirmed.
    unconfirmed_stamps: Vec<u64>,
}

impl RunCheckout {
    /// Whether the stored run is this one, or one that this holder tried to write: a store whose response was lost may
    /// have committed late.
    pub(crate) fn may_continue_from(&self, found: &Self) -> bool {
        let is_own =
            found.open_version == self.open_version || self.unconfirmed_stamps.contains(&found.open_version.stamp);
        is_own && found.open_run.run.id == self.open_run.run.id
    }

    /// Continues from the stored run.
    pub(crate) fn continue_from(&mut self, found: Self) {
        let unconfirmed_stamps = std::mem::take(&mut self.unconfirmed_stamps);
        *self = Self { unconfirmed_stamps, ..found };
    }
}

/// The result of storing a message that starts a run.
pub(crate) enum BeginResult {
    /// A run was started.
    New(Box<RunCheckout>),
    /// The same message started this run before, or did now and another node has taken the run over meanwhile.
    Replayed(RunId),
    /// Another run is open.
    Busy(RunId),
    /// The idempotency key was used for another message.
    KeyReused,
}

/// What an idempotency key was used for.
pub(crate) enum ClaimMatch {
    /// The same message, which started this run.
    Same(RunId),
    /// Another message.
    Other,
}

/// A message and the run it starts.
pub(crate) struct NewRun<'a> {
    pub(crate) message: &'a UserMessage,
    pub(crate) open_run: OpenRun,
}

/// The rows of all conversations in a store.
#[derive(Clone)]
pub(crate) struct RunStore {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) sealer: Sealer,
    /// The node of this hub.
    pub(crate) node: SmolStr,
    pub(crate) alerts: AlertSignals,
}

fn row_key(thread_key: &ThreadKey, table: Table, id: SmolStr) -> RowKey {
    RowKey { partition: thread_key.into(), table, id }
}

impl RunStore {
    /// Commits a user message with the run it starts. It is durable when this returns.
    pub(crate) async fn begin(
        &self,
        thread_key: &ThreadKey,
        new_run: NewRun<'_>,
        now: Timestamp,
    ) -> Result<BeginResult, StoreError> {
        let NewRun { message: user_message, open_run } = new_run;
        let claim = user_message.key.as_ref().map(|key| (claim_id(key), message_digest(user_message)));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut keys = vec![
                row_key(thread_key, Table::Messages, HEAD_ROW_ID),
                row_key(thread_key, Table::Runs, OPEN_RUN_ROW_ID),
            ];
            let record_id: SmolStr = open_run.run.id.to_string().into();
            keys.push(row_key(thread_key, Table::Runs, record_id.clone()));
            keys.extend(claim.iter().map(|(id, _)| row_key(thread_key, Table::Runs, id.clone())));
            let rows = self.store.load(&keys, now).await?;
            let row = |index: usize| rows.get(index).and_then(Option::as_ref);
            let found = row(1).map(|row| decode_row::<OpenRun>(&keys[1], row)).transpose()?;
            let head: Option<(ConversationHead, RowVersion)> =
                row(0).map(|row| decode_row(&keys[0], row)).transpose()?;
            let (mut head, head_version) = head.map_or_else(Default::default, |(head, version)| (head, Some(version)));
            if row(2).is_some() {
                // An earlier attempt was committed, but the store's response was lost.
                let run = open_run.run.id;
                let is_own = |found: &OpenRun| found.run.id == run && found.node == open_run.node;
                let Some((open_run, open_version)) = found.filter(|(found, _)| is_own(found)) else {
                    // Other nodes took this one for dead, and one of them goes on with the run or has ended it.
                    return Ok(BeginResult::Replayed(run));
                };
                let unconfirmed_stamps = Vec::new();
                let checkout = RunCheckout { open_run, head, head_version, open_version, unconfirmed_stamps };
                return Ok(BeginResult::New(Box::new(checkout)));
            }
            if let Some(row) = row(3) {
                return Ok(match match_claim(&keys[3], row, user_message)? {
                    ClaimMatch::Same(run) => BeginResult::Replayed(run),
                    ClaimMatch::Other => BeginResult::KeyReused,
                });
            }
            if let Some((found, _)) = found {
                return Ok(BeginResult::Busy(found.run.id));
            }
            head.agent.clone_from(&open_run.agent);
            let mut batch = Batch::new(thread_key.into());
            let message = Message::User { content: user_message.content.clone() };
            let sealer = CallSealer::new(&self.sealer, thread_key);
            append_message(&mut batch, &mut head, (open_run.run.id, &sealer), &message, now)?;
            let record = open_run.record(&thread_key.thread, now);
            batch.writes.push(put_record(Table::Runs, record_id, Expect::Absent, &record)?);
            if let Some((id, digest)) = &claim {
                let claim = Claim { run: open_run.run.id, digest: digest.clone() };
                let mut write = put_record(Table::Runs, id.clone(), Expect::Absent, &claim)?;
                if let Change::Put { expires, .. } = &mut write.change {
                    *expires = Some(now + IDEMPOTENCY_KEY_TTL);
                }
                batch.writes.push(write);
            }
            // A new run has no calls to seal.
            batch.writes.push(put_record(Table::Runs, OPEN_RUN_ROW_ID, Expect::Absent, &open_run)?);
            let expect = head_version.map_or(Expect::Absent, Expect::Same);
            batch.writes.push(put_record(Table::Messages, HEAD_ROW_ID, expect, &head)?);
            for write in &mut batch.writes {
                write.durability = Durability::PowerSafe;
            }
            let stamp = batch.stamp;
            match self.store.commit(batch, now).await {
                Ok(versions) => {
                    let (head_version, open_version) = head_and_open_versions(&versions, stamp);
                    let (head_version, unconfirmed_stamps) = (Some(head_version), Vec::new());
                    let checkout = RunCheckout { open_run, head, head_version, open_version, unconfirmed_stamps };
                    return Ok(BeginResult::New(Box::new(checkout)));
                }
                // A concurrent commit, or a lost response; the next iteration loads the rows again and tells which.
                Err(StoreError::Conflict { .. } | StoreError::Unknown(_)) if attempts < MAX_COMMIT_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether an idempotency key was used in a thread before, and for the same message.
    pub(crate) async fn find_claim(
        &self,
        thread_key: &ThreadKey,
        key: &IdempotencyKey,
        message: &UserMessage,
        now: Timestamp,
    ) -> Result<Option<ClaimMatch>, StoreError> {
        let key = row_key(thread_key, Table::Runs, claim_id(key));
        let row = self.store.load(std::slice::from_ref(&key), now).await?.pop().flatten();
        row.map(|row| match_claim(&key, &row, message)).transpose()
    }

    /// Commits the state of a run with its new messages, or its end, atomically.
    pub(crate) async fn commit_step(
        &self,
        thread_key: &ThreadKey,
        checkout: &mut RunCheckout,
        messages: &[Message],
        now: Timestamp,
    ) -> Result<RunRecord, StoreError> {
        let mut batch = Batch::new(thread_key.into());
        let (mut head, open_run) = (checkout.head.clone(), &checkout.open_run);
        let sealer = CallSealer::new(&self.sealer, thread_key);
        for message in messages {
            append_message(&mut batch, &mut head, (open_run.run.id, &sealer), message, now)?;
        }
        let record = open_run.record(&thread_key.thread, now);
        batch.writes.push(put_record(Table::Runs, open_run.run.id.to_string().into(), Expect::Any, &record)?);
        let expect = Expect::Same(checkout.open_version);
        let mut open_write = put_record(Table::Runs, OPEN_RUN_ROW_ID, expect, &sealer.seal_run(open_run.clone()))?;
        if record.status.is_end() {
            open_write.change = Change::Remove;
            open_write.durability = Durability::PowerSafe;
        }
        batch.writes.push(open_write);
        // A thread that was deleted meanwhile has no head, and this commit must not recreate it.
        let expect = checkout.head_version.map_or(Expect::Absent, Expect::Same);
        batch.writes.push(put_record(Table::Messages, HEAD_ROW_ID, expect, &head)?);
        let stamp = batch.stamp;
        checkout.unconfirmed_stamps.push(stamp);
        if let Some(error) = record.error.as_ref().filter(|_| record.status.is_end()) {
            let signal = self.failure_signal(thread_key, &record, &error.code, now)?;
            // The versions of the last rows are read from the answer.
            signal.into_iter().for_each(|write| batch.writes.insert(0, write));
        }
        let versions = self.store.commit(batch, now).await?;
        let (head_version, open_version) = head_and_open_versions(&versions, stamp);
        (checkout.head, checkout.head_version, checkout.open_version) = (head, Some(head_version), open_version);
        checkout.unconfirmed_stamps.clear();
        Ok(record)
    }
}

impl RunStore {
    /// The signal that a run failed, for alerts. Names the error only: its message may quote what a model or a tool wrote.
    fn failure_signal(
        &self,
        thread_key: &ThreadKey,
        record: &RunRecord,
        code: &str,
        now: Timestamp,
    ) -> Result<Option<Write>, StoreError> {
        let is_budget = matches!(code, "max_steps" | "token_budget" | "time_budget");
        let condition = if is_budget { Condition::RunBudget } else { Condition::RunFailed };
        let reason = format!("a run of agent `{}` in thread `{}` ended with `{code}`", record.agent, record.thread);
        self.alerts.happened(condition, (&thread_key.tenant, record.id.to_string()), reason, now)
    }
}

/// The versions of the last two rows of a batch: the head and the open run.
fn head_and_open_versions(versions: &[u64], stamp: u64) -> (RowVersion, RowVersion) {
    let version = |from_end: usize| {
        let index = versions.len().checked_sub(from_end);
        let number = index.and_then(|index| versions.get(index)).copied().unwrap_or_default();
        RowVersion { number, stamp }
    };
    (version(1), version(2))
}

/// Adds a message to a conversation.
fn append_message(
    batch: &mut Batch,
    head: &mut ConversationHead,
    (run, sealer): (RunId, &CallSealer<'_>),
    message: &Message,
    now: Timestamp,
) -> Result<(), StoreError> {
    head.last_seq += 1;
    head.tokens_so_far += message_tokens(message);
    let (seq, tokens_so_far) = (head.last_seq, head.tokens_so_far);
    let stored =
        StoredMessage { seq, run_id: run, at: now, tokens_so_far, message: sealer.seal_message(message.clone()) };
    // `Expect::Absent`: no message is ever overwritten.
    batch.writes.push(put_record(Table::Messages, message_row_id(seq), Expect::Absent, &stored)?);
    Ok(())
}

/// A message's number as a row id: zero-padded, so that ids sort in the order of the messages.
fn message_row_id(seq: u64) -> SmolStr {
    format_smolstr!("{seq:012}")
}

fn put_record<T: Serialize>(table: Table, id: SmolStr, expect: Expect, record: &T) -> Result<Write, StoreError> {
    let change = Change::Put { value: encode(table, &id, record)?, schema: SCHEMA_VERSION, expires: None };
    Ok(Write { table, id, expect, change, durability: Durability::KillSafe })
}

fn decode_row<T: DeserializeOwned>(key: &RowKey, row: &Row) -> Result<(T, RowVersion), StoreError> {
    decode(key.table, &key.id, SCHEMA_VERSION, row)
}

fn claim_id(key: &IdempotencyKey) -> SmolStr {
    format_smolstr!("key/{key}")
}

fn match_claim(key: &RowKey, row: &Row, message: &UserMessage) -> Result<ClaimMatch, StoreError> {
    let (claim, _): (Claim, _) = decode_row(key, row)?;
    Ok(if claim.digest == message_digest(message) { ClaimMatch::Same(claim.run) } else { ClaimMatch::Other })
}

/// Digest of what identifies a message: its content, and its agent if it names one.
fn message_digest(message: &UserMessage) -> String {
    let agent = message.agent.as_ref().map_or(String::new(), |agent| format!("to {agent}\0"));
    digest::concat_sha256_hex([agent.as_bytes(), message.content.as_bytes()])
}

impl From<&StoredMessage> for SizedMessage {
    fn from(stored: &StoredMessage) -> Self {
        Self { message: stored.message.clone(), tokens_so_far: stored.tokens_so_far }
    }
}
