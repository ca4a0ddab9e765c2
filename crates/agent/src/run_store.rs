//! Where conversations and runs are kept: rows beside the other records of their thread.
//!
//! In: what was said and how far a run is. Out: rows in one batch, on the condition that nobody else has written meanwhile, so a
//! step is there whole or not at all, and two processes never drive one run. A thread has a head (how long its conversation
//! is), its messages by number, its runs by id, and while a run is open the run itself.

mod queries;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use smol_str::{SmolStr, format_smolstr};
use toolhub_core::{
    TraceContext,
    backend::{
        Backend, Batch, Change, Durability, Expect, Row, RowKey, RowVersion, StoreError, Table, Write, decode, encode,
    },
    clock::Timestamp,
    ids::{Caller, IdempotencyKey, RunId, ThreadId, ThreadKey},
};

use crate::{
    message::{Message, UserMessage},
    record::RunRecord,
    run::Run,
    window::{SizedMessage, message_tokens},
};

pub use queries::KeptMessage;

/// The layout of all these rows.
const SCHEMA_VERSION: u32 = 1;
/// The row that says how long a conversation is.
const HEAD_ROW_ID: SmolStr = SmolStr::new_static("~");
/// The row of an open run.
const OPEN_RUN_ROW_ID: SmolStr = SmolStr::new_static(Table::OPEN_RUN);
/// How often a message is written down anew because somebody else was quicker.
const MAX_COMMIT_ATTEMPTS: usize = 8;
/// How long the key of a message is remembered.
const IDEMPOTENCY_KEY_TTL: Duration = Duration::from_secs(24 * 3600);

/// How long a conversation is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversationHead {
    /// The number of the last message.
    pub(crate) last: u64,
    /// How large all of it is, in tokens.
    pub(crate) upto: u64,
    /// The agent that was spoken to last.
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
}

impl OpenRun {
    /// The run as others see it.
    pub(crate) fn record(&self, thread: &ThreadId, now: Timestamp) -> RunRecord {
        let trace_id = self.trace.as_ref().map(|trace| trace.trace_id);
        RunRecord { trace_id, ..RunRecord::of(&self.run, thread, &self.agent, now) }
    }
}

/// Which run a key belongs to.
#[derive(Serialize, Deserialize)]
struct Claim {
    run: RunId,
    /// Of what was said, so that a reused key is noticed.
    digest: String,
}

/// A run that is open, and the writings it was read from. Only whoever knows the last ones can go on with it.
#[derive(Debug, Clone)]
pub(crate) struct RunCheckout {
    pub(crate) open_run: OpenRun,
    pub(crate) head: ConversationHead,
    head_version: Option<RowVersion>,
    open_version: RowVersion,
    /// The batches that were to write the next step, and are not known to have done so.
    unconfirmed_stamps: Vec<u64>,
}

impl RunCheckout {
    /// Whether what is written down is this, or what whoever holds it has tried to write: a store whose answer was lost may write
    /// late.
    pub(crate) fn may_continue_from(&self, found: &Self) -> bool {
        let own =
            found.open_version == self.open_version || self.unconfirmed_stamps.contains(&found.open_version.stamp);
        own && found.open_run.run.id == self.open_run.run.id
    }

    /// Goes on from what is written down.
    pub(crate) fn continue_from(&mut self, found: Self) {
        let tried = std::mem::take(&mut self.unconfirmed_stamps);
        *self = Self { unconfirmed_stamps: tried, ..found };
    }
}

/// What became of a message that was to begin a run.
pub(crate) enum BeginResult {
    /// A run was begun.
    New(Box<RunCheckout>),
    /// The same message had begun this one before.
    Replayed(RunId),
    /// Another one is open.
    Busy(RunId),
    /// The key was used for another message.
    KeyReused,
}

/// What a key was used for.
pub(crate) enum ClaimMatch {
    /// The same message, which began this run.
    Same(RunId),
    /// Another one.
    Other,
}

/// What somebody says to an agent.
pub(crate) struct NewRun<'a> {
    pub(crate) message: &'a UserMessage,
    pub(crate) open_run: OpenRun,
}

/// The rows of all conversations in a store.
#[derive(Clone)]
pub(crate) struct RunStore {
    pub(crate) store: Arc<dyn Backend>,
}

fn row_key(thread_key: &ThreadKey, table: Table, id: SmolStr) -> RowKey {
    RowKey { partition: thread_key.into(), table, id }
}

impl RunStore {
    /// Writes down what a user says, with the run it begins. It is safe when this returns.
    pub(crate) async fn begin(
        &self,
        thread_key: &ThreadKey,
        opening: NewRun<'_>,
        now: Timestamp,
    ) -> Result<BeginResult, StoreError> {
        let NewRun { message: said, open_run: open } = opening;
        let claim = said.key.as_ref().map(|key| (claim_id(key), message_digest(said)));
        let mut tries = 0;
        loop {
            tries += 1;
            let mut keys = vec![
                row_key(thread_key, Table::Messages, HEAD_ROW_ID),
                row_key(thread_key, Table::Runs, OPEN_RUN_ROW_ID),
            ];
            keys.extend(claim.iter().map(|(id, _)| row_key(thread_key, Table::Runs, id.clone())));
            let rows = self.store.load(&keys, now).await?;
            let row = |at: usize| rows.get(at).and_then(Option::as_ref);
            let found = row(1).map(|row| decode_row::<OpenRun>(&keys[1], row)).transpose()?;
            let head: Option<(ConversationHead, RowVersion)> =
                row(0).map(|row| decode_row(&keys[0], row)).transpose()?;
            let (mut head, head_seen) = head.map_or_else(Default::default, |(head, seen)| (head, Some(seen)));
            if let Some((_, open_seen)) = found.as_ref().filter(|(found, _)| found.run.id == open.run.id) {
                // It was written down although that was not heard.
                let open_seen = *open_seen;
                return Ok(BeginResult::New(Box::new(RunCheckout {
                    open_run: open,
                    head,
                    head_version: head_seen,
                    open_version: open_seen,
                    unconfirmed_stamps: Vec::new(),
                })));
            }
            if let Some(row) = row(2) {
                return Ok(match match_claim(&keys[2], row, said)? {
                    ClaimMatch::Same(run) => BeginResult::Replayed(run),
                    ClaimMatch::Other => BeginResult::KeyReused,
                });
            }
            if let Some((found, _)) = found {
                return Ok(BeginResult::Busy(found.run.id));
            }
            head.agent.clone_from(&open.agent);
            let mut batch = Batch::new(thread_key.into());
            let message = Message::User { content: said.content.clone() };
            append_message(&mut batch, &mut head, open.run.id, &message, now)?;
            let record = open.record(&thread_key.thread, now);
            batch.writes.push(put_record(Table::Runs, open.run.id.to_string().into(), Expect::Absent, &record)?);
            if let Some((id, digest)) = &claim {
                let claim = Claim { run: open.run.id, digest: digest.clone() };
                let mut write = put_record(Table::Runs, id.clone(), Expect::Absent, &claim)?;
                if let Change::Put { expires, .. } = &mut write.change {
                    *expires = Some(now + IDEMPOTENCY_KEY_TTL);
                }
                batch.writes.push(write);
            }
            batch.writes.push(put_record(Table::Runs, OPEN_RUN_ROW_ID, Expect::Absent, &open)?);
            let expect = head_seen.map_or(Expect::Absent, Expect::Same);
            batch.writes.push(put_record(Table::Messages, HEAD_ROW_ID, expect, &head)?);
            for write in &mut batch.writes {
                write.durability = Durability::PowerSafe;
            }
            let stamp = batch.stamp;
            match self.store.commit(batch, now).await {
                Ok(versions) => {
                    let (head_seen, open_seen) = head_and_open_versions(&versions, stamp);
                    let head_seen = Some(head_seen);
                    return Ok(BeginResult::New(Box::new(RunCheckout {
                        open_run: open,
                        head,
                        head_version: head_seen,
                        open_version: open_seen,
                        unconfirmed_stamps: Vec::new(),
                    })));
                }
                // Somebody else was quicker, or the answer was lost; what that was is seen when we look again.
                Err(StoreError::Conflict { .. } | StoreError::Unknown(_)) if tries < MAX_COMMIT_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a key was used in a thread before, and for the same message.
    pub(crate) async fn find_claim(
        &self,
        thread_key: &ThreadKey,
        key: &IdempotencyKey,
        said: &UserMessage,
        now: Timestamp,
    ) -> Result<Option<ClaimMatch>, StoreError> {
        let key = row_key(thread_key, Table::Runs, claim_id(key));
        let row = self.store.load(std::slice::from_ref(&key), now).await?.pop().flatten();
        row.map(|row| match_claim(&key, &row, said)).transpose()
    }

    /// Writes down how far a run is, with what was said meanwhile; or that it is over. All of it or nothing.
    pub(crate) async fn commit_step(
        &self,
        thread_key: &ThreadKey,
        held: &mut RunCheckout,
        said: &[Message],
        now: Timestamp,
    ) -> Result<RunRecord, StoreError> {
        let mut batch = Batch::new(thread_key.into());
        let (mut head, open) = (held.head.clone(), &held.open_run);
        for message in said {
            append_message(&mut batch, &mut head, open.run.id, message, now)?;
        }
        let record = open.record(&thread_key.thread, now);
        batch.writes.push(put_record(Table::Runs, open.run.id.to_string().into(), Expect::Any, &record)?);
        let mut open_write = put_record(Table::Runs, OPEN_RUN_ROW_ID, Expect::Same(held.open_version), open)?;
        let over = record.status.is_end();
        if over {
            open_write.change = Change::Remove;
            open_write.durability = Durability::PowerSafe;
        }
        batch.writes.push(open_write);
        // A thread that was deleted meanwhile has no head, and must not come back to life by this.
        let expect = held.head_version.map_or(Expect::Absent, Expect::Same);
        batch.writes.push(put_record(Table::Messages, HEAD_ROW_ID, expect, &head)?);
        let stamp = batch.stamp;
        held.unconfirmed_stamps.push(stamp);
        let versions = self.store.commit(batch, now).await?;
        let (head_seen, open_seen) = head_and_open_versions(&versions, stamp);
        (held.head, held.head_version, held.open_version) = (head, Some(head_seen), open_seen);
        held.unconfirmed_stamps.clear();
        Ok(record)
    }
}

/// The writings of the last two rows of a batch: the head and the open run.
fn head_and_open_versions(versions: &[u64], stamp: u64) -> (RowVersion, RowVersion) {
    let seen = |from_end: usize| {
        let version = versions.len().checked_sub(from_end).and_then(|at| versions.get(at)).copied().unwrap_or_default();
        RowVersion { number: version, stamp }
    };
    (seen(1), seen(2))
}

/// Adds a message to a conversation.
fn append_message(
    batch: &mut Batch,
    head: &mut ConversationHead,
    run: RunId,
    said: &Message,
    now: Timestamp,
) -> Result<(), StoreError> {
    head.last += 1;
    head.upto += message_tokens(said);
    let kept = KeptMessage { seq: head.last, run_id: run, at: now, tokens_so_far: head.upto, message: said.clone() };
    // Expected to be absent: no message is ever written over.
    batch.writes.push(put_record(Table::Messages, message_row_id(head.last), Expect::Absent, &kept)?);
    Ok(())
}

/// A message's number as the id of its row: in the order of the texts.
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

fn match_claim(key: &RowKey, row: &Row, said: &UserMessage) -> Result<ClaimMatch, StoreError> {
    let (claim, _): (Claim, _) = decode_row(key, row)?;
    Ok(if claim.digest == message_digest(said) { ClaimMatch::Same(claim.run) } else { ClaimMatch::Other })
}

/// What makes a message the same: its words, and whom they are for where that is said.
fn message_digest(said: &UserMessage) -> String {
    let mut sum = Sha256::new();
    if let Some(agent) = &said.agent {
        sum.update(format!("to {agent}\0"));
    }
    sum.update(said.content.as_bytes());
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl From<&KeptMessage> for SizedMessage {
    fn from(kept: &KeptMessage) -> Self {
        Self { message: kept.message.clone(), tokens_so_far: kept.tokens_so_far }
    }
}
