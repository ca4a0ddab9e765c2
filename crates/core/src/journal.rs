//! The call journal: records of opened and ended calls, idempotency claims, and recovery after a crash.
//!
//! In: calls that must be recorded, and their outcomes. Out: the writes of their rows, and reads of records and claims.
//! The pipeline commits the writes in its batches; this module defines their format. Open calls are in a separate
//! table, `open`, so that recovery finds the calls of a crashed process without a full scan; closing moves a call to
//! `calls`. `record` is the data format, `tracker` and `live_calls` track the calls that run on this node, `query` lists calls, `terms` are what they are found by, `call_index` adds them to calls of earlier versions,
//! `recent_stats` aggregates. `batched_records.rs` writes the records of plain read-only calls.

mod call_index;
mod live_calls;
mod query;
mod recent_stats;
mod record;
mod terms;
mod tracker;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::de::DeserializeOwned;
use smol_str::SmolStr;
use tokio::sync::Notify;

use crate::sealing::{Sealer, UnsealError};
pub(crate) use call_index::CallIndex;
pub(crate) use live_calls::LiveCalls;
pub(crate) use query::with_live_status;
pub use query::{CallPage, CallQuery, CallQueryError};
pub use recent_stats::RecentStats;
pub use record::CallRecord;
pub(crate) use record::{CallSummary, Claim, ENDED_CALL_LAYOUT, OpenCall, Opening};
pub use terms::index_terms;
pub(crate) use terms::of_record as terms_of_record;
use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, RowVersion, StoreError, Table, Write,
    decode, encode,
};
use toolhub_types::{
    ids::{CallId, IdempotencyKey, Tenant, ThreadId},
    json::CompactJson,
    outcome::Outcome,
    status::Evidence,
    timestamp::Timestamp,
    tool::ToolName,
};
pub(crate) use tracker::CallTracker;

/// How long an idempotency key is retained.
const KEY_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The layout version of all these records but those of ended calls.
pub(crate) const LAYOUT: u32 = 1;
/// Maximum number of outcomes buffered because the store could not be written. They may be large.
const MAX_UNWRITTEN_OUTCOMES: usize = 200;
/// The only row in the partition of an idempotency key.
const CLAIM_ROW_ID: SmolStr = SmolStr::new_static("claim");
/// A thread's evidence is one row, because the order of its successes is known only when all are read together.
const EVIDENCE_ROW_ID: SmolStr = SmolStr::new_static("evidence");

/// Calls of this hub whose outcome could not be written.
#[derive(Default)]
struct UnwrittenOutcomes {
    /// Their outcomes.
    outcomes: HashMap<CallId, Outcome>,
    /// Those that are still registered as running, so this is bounded by the number of running calls.
    still_running: HashSet<CallId>,
    /// Those that were refused because the store did not answer when they were opened. It may still open them.
    unconfirmed: HashMap<CallId, (Tenant, OpenCall)>,
}

#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) index: Arc<CallIndex>,
    /// How long records of ended calls are retained.
    pub(crate) retention: Duration,
    /// The id of this hub, unique among all that ever used the store.
    pub(crate) node: SmolStr,
    /// Notified when a call of this hub may have been left open, or may be open again.
    pub(crate) recovery_needed: Arc<Notify>,
    /// Seals the secret arguments of open calls.
    sealer: Sealer,
    unwritten: Arc<Mutex<UnwrittenOutcomes>>,
    /// Number of calls removed because the store was near its size limit.
    trimmed: Arc<AtomicU64>,
}

impl Journal {
    /// The journal of a new hub.
    pub(crate) fn new(
        store: Arc<dyn Backend>,
        index: CallIndex,
        retention: Duration,
        node: SmolStr,
        sealer: Sealer,
    ) -> Self {
        Self {
            store,
            index: Arc::new(index),
            retention,
            node,
            recovery_needed: Arc::default(),
            sealer,
            unwritten: Arc::default(),
            trimmed: Arc::default(),
        }
    }

    /// Counts calls that were removed because the store was near its size limit.
    pub(crate) fn count_trimmed(&self, calls: usize) {
        self.trimmed.fetch_add(calls as u64, Ordering::Relaxed);
    }

    /// Number of calls that were removed because the store was near its size limit.
    pub(crate) fn trimmed(&self) -> u64 {
        self.trimmed.load(Ordering::Relaxed)
    }

    /// Records that the outcome of an opened call could not be written. Must be followed by
    /// [`mark_stopped`](Self::mark_stopped) when the call is no longer registered as running.
    pub(crate) fn note_unwritten(&self, outcome: &Outcome) {
        let mut unwritten = self.lock_unwritten();
        if unwritten.outcomes.len() < MAX_UNWRITTEN_OUTCOMES {
            unwritten.outcomes.insert(outcome.id, outcome.clone());
        }
        unwritten.still_running.insert(outcome.id);
    }

    /// Records that the store did not say whether it has opened a call, up to the limit.
    pub(crate) fn note_unconfirmed(&self, tenant: &Tenant, open: &OpenCall) {
        let unconfirmed = &mut self.lock_unwritten().unconfirmed;
        if unconfirmed.len() < MAX_UNWRITTEN_OUTCOMES {
            unconfirmed.insert(open.record.id, (tenant.clone(), open.clone()));
        }
    }

    /// The calls that the store may have opened, or may still open. Without those whose outcomes are still to be
    /// [taken](Self::take_unwritten): they can be closed then.
    pub(crate) fn unconfirmed(&self) -> Vec<(Tenant, OpenCall)> {
        let UnwrittenOutcomes { outcomes, unconfirmed, .. } = &*self.lock_unwritten();
        let of_taken = unconfirmed.iter().filter(|(call, _)| !outcomes.contains_key(call));
        of_taken.map(|(_, call)| call.clone()).collect()
    }

    /// Records that the store has opened a call, or never will.
    pub(crate) fn confirm(&self, call: CallId) {
        self.lock_unwritten().unconfirmed.remove(&call);
    }

    /// Records that a failed call has stopped. Triggers recovery if the call may still be open in the store.
    pub(crate) fn mark_stopped(&self, call: CallId) {
        if self.lock_unwritten().still_running.remove(&call) {
            self.recovery_needed.notify_one();
        }
    }

    /// Puts back outcomes that were taken and could not be written, up to the limit. A newer outcome of the same call stays.
    pub(crate) fn put_back_unwritten(&self, outcomes: impl IntoIterator<Item = (CallId, Outcome)>) {
        let buffered = &mut self.lock_unwritten().outcomes;
        let capacity = MAX_UNWRITTEN_OUTCOMES.saturating_sub(buffered.len());
        for (call, outcome) in outcomes.into_iter().take(capacity) {
            buffered.entry(call).or_insert(outcome);
        }
    }

    /// Takes the buffered outcomes to write them.
    pub(crate) fn take_unwritten(&self) -> HashMap<CallId, Outcome> {
        std::mem::take(&mut self.lock_unwritten().outcomes)
    }

    fn lock_unwritten(&self) -> MutexGuard<'_, UnwrittenOutcomes> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The write that opens a call. The row never expires: the call is still running, or its caller must learn that it
    /// was interrupted.
    pub(crate) fn open(&self, tenant: &Tenant, record: &CallRecord<CompactJson>) -> Result<Write, StoreError> {
        self.put_open(tenant, record, Expect::Absent)
    }

    /// The precondition of opening a call: none with this id has ended. The caller may have minted the id; and an opening that arrives
    /// after its call was closed must not open it.
    pub(crate) fn expect_never_ended(&self, call: CallId) -> Write {
        expect_absent(Table::Calls, call)
    }

    /// The precondition of closing a call that is not open.
    pub(crate) fn expect_not_open(&self, call: CallId) -> Write {
        expect_absent(Table::OpenCalls, call)
    }

    /// The write that takes over an open call to run it again.
    pub(crate) fn take_over(&self, tenant: &Tenant, call: &OpenCall) -> Result<Write, StoreError> {
        self.put_open(tenant, &call.record, Expect::Same(call.row_version))
    }

    fn put_open(&self, tenant: &Tenant, record: &CallRecord<CompactJson>, expect: Expect) -> Result<Write, StoreError> {
        let id = record.id.into();
        let value = match self.sealer.sealed(&record.arguments, &sealed_for(tenant, record.id)) {
            Some(arguments) => encode(Table::OpenCalls, &id, &CallRecord { arguments, ..record.clone() })?,
            None => encode(Table::OpenCalls, &id, record)?,
        };
        let change = Change::Put { value, schema: LAYOUT, expires: None };
        Ok(Write { table: Table::OpenCalls, id, expect, change, durability: durability(record) })
    }

    /// Unseals the arguments of an open call.
    ///
    /// # Errors
    /// When the key that sealed them is gone; the call cannot run then.
    pub(crate) fn unseal_arguments(&self, tenant: &Tenant, call: &mut OpenCall) -> Result<(), UnsealError> {
        let mut arguments = call.record.arguments.to_value().into_owned();
        let unsealed = self.sealer.unseal(&mut arguments, &sealed_for(tenant, call.record.id));
        call.record.arguments = arguments.into();
        unsealed
    }

    /// Adds the writes that close a call to a batch; `opened` is the row version of its open record, if it was opened. The
    /// first close wins: a second one finds another row version and its whole batch fails.
    pub(crate) fn close(
        &self,
        batch: &mut Batch,
        record: &CallRecord,
        opened: Option<RowVersion>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let id: SmolStr = record.id.into();
        let expires = Some(self.expires_at(record, now));
        let change = Change::Put { value: encode(Table::Calls, &id, record)?, schema: ENDED_CALL_LAYOUT, expires };
        let ended = Write { table: Table::Calls, id, expect: Expect::Absent, change, durability: durability(record) };
        batch.terms.insert((Table::Calls, ended.id.clone()), terms::of_record(record));
        batch.writes.extend(opened.map(|row_version| self.remove_open(record.id, row_version)));
        batch.writes.push(ended);
        Ok(())
    }

    /// Maximum retention of the record of an ended call.
    pub(crate) fn max_retention(&self) -> Duration {
        self.retention.max(KEY_RETENTION)
    }

    /// When the record of an ended call expires. The outcome of a call with a key is retained as long as the key.
    fn expires_at(&self, record: &CallRecord, now: Timestamp) -> Timestamp {
        now + if record.key.is_some() { self.max_retention() } else { self.retention }
    }

    /// The write that removes an open call, because it is closed or did not get its idempotency key.
    pub(crate) fn remove_open(&self, call: CallId, row_version: RowVersion) -> Write {
        Write {
            table: Table::OpenCalls,
            id: call.into(),
            expect: Expect::Same(row_version),
            change: Change::Remove,
            durability: Durability::KillSafe,
        }
    }

    /// The write that claims a key for a call; `replaced` is the version of a claim whose call is no longer in the
    /// journal.
    pub(crate) fn claim(&self, claim: &Claim, replaced: Option<RowVersion>) -> Result<Write, StoreError> {
        let id = CLAIM_ROW_ID;
        let value = encode(Table::Claims, &id, claim)?;
        Ok(Write {
            table: Table::Claims,
            id,
            expect: replaced.map_or(Expect::Absent, Expect::Same),
            change: Change::Put { value, schema: LAYOUT, expires: Some(claim.at + KEY_RETENTION) },
            durability: Durability::PowerSafe,
        })
    }

    /// The write that removes a claim whose call was removed.
    pub(crate) fn remove_claim(&self, version: RowVersion) -> Write {
        let (expect, durability) = (Expect::Same(version), Durability::KillSafe);
        Write { table: Table::Claims, id: CLAIM_ROW_ID, expect, change: Change::Remove, durability }
    }

    /// The claim on a key, and its row version.
    pub(crate) async fn find_claim(
        &self,
        tenant: &Tenant,
        tool: &ToolName,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<(Claim, RowVersion)>, StoreError> {
        let key = RowKey { partition: claim_partition(tenant, tool, key), table: Table::Claims, id: CLAIM_ROW_ID };
        self.load_one(key, now).await
    }

    /// The record of a call, open or ended.
    pub(crate) async fn find_record(
        &self,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        call: CallId,
        now: Timestamp,
    ) -> Result<Option<CallRecord>, StoreError> {
        let partition = Partition::for_call(tenant.clone(), thread, call);
        // Load both rows atomically: closing moves the call, and it must not be missed in between.
        let keys = [Table::Calls, Table::OpenCalls].map(|table| RowKey {
            partition: partition.clone(),
            table,
            id: call.into(),
        });
        let rows = self.store.load(&keys, now).await?;
        let found = keys.iter().zip(rows).find_map(|(key, row)| Some((key, row?)));
        let record = found.map(|(key, row)| record::decode_call(key.table, &key.id, &row)).transpose()?;
        Ok(record.map(|mut record| {
            if record.outcome.is_none() {
                // What cannot be unsealed is redacted.
                let _ = self.sealer.unseal(&mut record.arguments, &sealed_for(tenant, call));
            }
            record
        }))
    }

    /// The evidence of a thread, and its row version.
    pub(crate) async fn evidence(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        now: Timestamp,
    ) -> Result<(Evidence, Option<RowVersion>), StoreError> {
        let partition = Partition::for_thread(tenant.clone(), thread.clone());
        let keys = [RowKey { partition: partition.clone(), table: Table::Evidence, id: EVIDENCE_ROW_ID }];
        let row = match self.store.load(&keys, now).await {
            Err(damaged @ StoreError::Damaged { .. }) => {
                damaged.log_skipped();
                // Remove the damaged row: the store refuses writes to it until then.
                let (expect, durability) = (Expect::Any, Durability::KillSafe);
                let removal =
                    Write { table: Table::Evidence, id: EVIDENCE_ROW_ID, expect, change: Change::Remove, durability };
                self.store.commit(Batch::new(partition).with(removal), now).await?;
                None
            }
            loaded => loaded?.pop().flatten(),
        };
        let Some(row) = row else { return Ok(Default::default()) };
        match decode(Table::Evidence, &EVIDENCE_ROW_ID, LAYOUT, &row) {
            Ok((evidence, version)) => Ok((evidence, Some(version))),
            // The next success would overwrite it.
            Err(newer @ StoreError::NewerLayout { .. }) => Err(newer),
            // Evidence that cannot be read counts as none: the requirements apply again, and the next success replaces it.
            Err(error) => {
                error.log_skipped();
                Ok((Evidence::default(), Some(row.version)))
            }
        }
    }

    /// An unconditional change of a thread's evidence that stores no value.
    pub(crate) fn change_evidence(&self, change: Change) -> Write {
        let (expect, durability) = (Expect::Any, Durability::KillSafe);
        Write { table: Table::Evidence, id: EVIDENCE_ROW_ID, expect, change, durability }
    }

    /// The write of a thread's evidence; `replaced` is the row version it was based on.
    pub(crate) fn put_evidence(&self, evidence: &Evidence, replaced: Option<RowVersion>) -> Result<Write, StoreError> {
        let value = encode(Table::Evidence, &EVIDENCE_ROW_ID, evidence)?;
        Ok(Write {
            table: Table::Evidence,
            id: EVIDENCE_ROW_ID,
            expect: replaced.map_or(Expect::Absent, Expect::Same),
            change: Change::Put { value, schema: LAYOUT, expires: None },
            durability: Durability::KillSafe,
        })
    }

    async fn load_one<T: DeserializeOwned>(
        &self,
        key: RowKey,
        now: Timestamp,
    ) -> Result<Option<(T, RowVersion)>, StoreError> {
        let keys = [key];
        let row = self.store.load(&keys, now).await?.pop().flatten();
        let [key] = keys;
        row.map(|row| decode(key.table, &key.id, LAYOUT, &row)).transpose()
    }
}

fn expect_absent(table: Table, call: CallId) -> Write {
    let (expect, durability) = (Expect::Absent, Durability::KillSafe);
    Write { table, id: call.into(), expect, change: Change::Keep, durability }
}

/// The record that sealed arguments belong to.
fn sealed_for(tenant: &Tenant, call: CallId) -> String {
    format!("{tenant}/{call}")
}

/// The outcome of a call with a key must survive a power failure, because the caller relies on it.
fn durability<A>(record: &CallRecord<A>) -> Durability {
    if record.key.is_some() { Durability::PowerSafe } else { Durability::KillSafe }
}

/// The partition of the claim on a key.
pub(crate) fn claim_partition(tenant: &Tenant, tool: &ToolName, key: &IdempotencyKey) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::Key(tool.clone(), key.clone()) }
}
