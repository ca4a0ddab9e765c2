//! The book of calls: what was opened, and how it ended.
//!
//! In: calls that must not be forgotten, and their outcomes. Out: records, and the answer to "was this call made
//! before?". Rows go to the store in the batches the pipeline makes; this room knows their form. An open call lies in a
//! table of its own, `open`, so that those a dead process left behind are found without reading all others; closing
//! moves it to `calls`. `record` is what is written, `tracker` and `live` know the calls that run here, `nodes` tells who is alive, `query`
//! answers questions, `recent` counts. Records of plain read-only calls are written by `batched_records.rs`.

mod live_calls;
mod nodes;
mod query;
mod recent_stats;
mod record;
mod tracker;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::de::DeserializeOwned;
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::Notify;

pub(crate) use live_calls::LiveCalls;
pub(crate) use nodes::{LEASE_RENEW_INTERVAL, LeaseMonitor, keep_lease};
pub(crate) use query::with_live_status;
pub use query::{CallPage, CallQuery, CallQueryError};
pub use recent_stats::RecentStats;
pub use record::CallRecord;
pub(crate) use record::{Claim, OpenCall, Opening};
use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, RowVersion, StoreError, Table, Write,
    decode, encode,
};
use toolhub_types::{
    ids::{CallId, IdempotencyKey, Tenant, ThreadId},
    outcome::Outcome,
    status::Evidence,
    timestamp::Timestamp,
    tool::ToolName,
};
pub(crate) use tracker::CallTracker;

/// How long an idempotency key is remembered.
const KEY_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The layout of all these records.
pub(crate) const LAYOUT: u32 = 1;
/// How many ends are remembered that could not be written down. They may be large.
const MAX_UNWRITTEN_OUTCOMES: usize = 200;
/// A key's partition holds one row.
const CLAIM_ROW_ID: SmolStr = SmolStr::new_static("claim");
/// A thread's evidence is one row: what succeeded first can be told only when all of it is seen together.
const EVIDENCE_ROW_ID: SmolStr = SmolStr::new_static("evidence");

/// Calls of this hub whose end could not be written down.
#[derive(Default)]
struct UnwrittenOutcomes {
    /// How they ended.
    outcomes: HashMap<CallId, Outcome>,
    /// Those that still count as running. There are never more than calls that run.
    still_running: HashSet<CallId>,
}

#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) store: Arc<dyn Backend>,
    /// How long ended calls are kept.
    pub(crate) retention: Duration,
    /// This hub, among all that ever used the store.
    pub(crate) node: SmolStr,
    /// Whether nobody else uses the store: then every open call of another node is one of the dead.
    pub(crate) store_is_exclusive: bool,
    /// Told when a call may have been left open here.
    pub(crate) recovery_needed: Arc<Notify>,
    unwritten: Arc<Mutex<UnwrittenOutcomes>>,
}

impl Journal {
    /// The journal of a new hub. `alone`: nobody else uses its store.
    pub(crate) fn new(store: Arc<dyn Backend>, keep: Duration, alone: bool) -> Self {
        let node = format_smolstr!("{:016x}", fastrand::u64(..));
        Self {
            store,
            retention: keep,
            node,
            store_is_exclusive: alone,
            recovery_needed: Arc::default(),
            unwritten: Arc::default(),
        }
    }

    /// The end of an opened call could not be written down. To be followed by `gone`, when the call does not count as
    /// running any more.
    pub(crate) fn note_unwritten(&self, outcome: &Outcome) {
        self.buffer_outcomes([(outcome.id, outcome.clone())]);
        self.lock_unwritten().still_running.insert(outcome.id);
    }

    /// A call that failed does not run here any more. If it may be open still, somebody looks after it.
    pub(crate) fn mark_stopped(&self, call: CallId) {
        if self.lock_unwritten().still_running.remove(&call) {
            self.recovery_needed.notify_one();
        }
    }

    /// Remembers ends that could not be written down, as many as there is room for.
    pub(crate) fn buffer_outcomes(&self, ends: impl IntoIterator<Item = (CallId, Outcome)>) {
        let ends_here = &mut self.lock_unwritten().outcomes;
        let room = MAX_UNWRITTEN_OUTCOMES.saturating_sub(ends_here.len());
        ends_here.extend(ends.into_iter().take(room));
    }

    /// The ends that are remembered, to be written down now.
    pub(crate) fn take_unwritten(&self) -> HashMap<CallId, Outcome> {
        std::mem::take(&mut self.lock_unwritten().outcomes)
    }

    fn lock_unwritten(&self) -> MutexGuard<'_, UnwrittenOutcomes> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The write that opens a call. It never expires: the call is still running, or somebody must be told that it was
    /// interrupted.
    pub(crate) fn open(&self, record: &CallRecord) -> Result<Write, StoreError> {
        self.put_open(record, Expect::Absent)
    }

    /// What must hold where the caller minted the id of a call that is opened: no call with it has ended.
    pub(crate) fn expect_never_ended(&self, call: CallId) -> Write {
        let (expect, durability) = (Expect::Absent, Durability::KillSafe);
        Write { table: Table::Calls, id: call.into(), expect, change: Change::Keep, durability }
    }

    /// The write that takes over an open call, to run it once more.
    pub(crate) fn take_over(&self, call: &OpenCall) -> Result<Write, StoreError> {
        self.put_open(&call.record, Expect::Same(call.row_version))
    }

    fn put_open(&self, record: &CallRecord, expect: Expect) -> Result<Write, StoreError> {
        let id = record.id.into();
        let change = Change::Put { value: encode(Table::OpenCalls, &id, record)?, schema: LAYOUT, expires: None };
        Ok(Write { table: Table::OpenCalls, id, expect, change, durability: durability(record) })
    }

    /// The writes that close a call; `opened` is the writing that opened it, if it was. Whoever closes it first has
    /// closed it: the second finds another row than it expects, and nothing of its batch is written.
    pub(crate) fn close(
        &self,
        record: &CallRecord,
        opened: Option<RowVersion>,
        now: Timestamp,
    ) -> Result<Vec<Write>, StoreError> {
        let id: SmolStr = record.id.into();
        let expires = Some(self.expires_at(record, now));
        let change = Change::Put { value: encode(Table::Calls, &id, record)?, schema: LAYOUT, expires };
        let ended = Write { table: Table::Calls, id, expect: Expect::Absent, change, durability: durability(record) };
        let opened = opened.map(|seen| self.remove_open(record.id, seen));
        Ok(opened.into_iter().chain([ended]).collect())
    }

    /// How long the record of an ended call is kept at most.
    pub(crate) fn max_retention(&self) -> Duration {
        self.retention.max(KEY_RETENTION)
    }

    /// When an ended call may be forgotten: the answer to a key must last as long as the key.
    fn expires_at(&self, record: &CallRecord, now: Timestamp) -> Timestamp {
        now + if record.key.is_some() { self.max_retention() } else { self.retention }
    }

    /// The write that takes an opened call away: it is closed, or it did not get its key.
    pub(crate) fn remove_open(&self, call: CallId, seen: RowVersion) -> Write {
        Write {
            table: Table::OpenCalls,
            id: call.into(),
            expect: Expect::Same(seen),
            change: Change::Remove,
            durability: Durability::KillSafe,
        }
    }

    /// The write that claims a key for a call; `over` is a claim whose call is no longer in the journal.
    pub(crate) fn claim(&self, claim: &Claim, over: Option<RowVersion>) -> Result<Write, StoreError> {
        let id = CLAIM_ROW_ID;
        let value = encode(Table::Claims, &id, claim)?;
        Ok(Write {
            table: Table::Claims,
            id,
            expect: over.map_or(Expect::Absent, Expect::Same),
            change: Change::Put { value, schema: LAYOUT, expires: Some(claim.at + KEY_RETENTION) },
            durability: Durability::PowerSafe,
        })
    }

    /// The claim on a key, as it was seen.
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
        // Both at one moment: a call is never in neither of them while it is closed.
        let keys = [Table::Calls, Table::OpenCalls].map(|table| RowKey {
            partition: partition.clone(),
            table,
            id: call.into(),
        });
        let rows = self.store.load(&keys, now).await?;
        let found = keys.iter().zip(rows).find_map(|(key, row)| Some((key, row?)));
        found.map(|(key, row)| decode(key.table, &key.id, LAYOUT, &row).map(|(record, _)| record)).transpose()
    }

    /// What a thread has achieved, as it was seen.
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
                // A store keeps the place of what it cannot read until somebody says that it is free.
                let (expect, durability) = (Expect::Any, Durability::KillSafe);
                let free =
                    Write { table: Table::Evidence, id: EVIDENCE_ROW_ID, expect, change: Change::Remove, durability };
                self.store.commit(Batch::new(partition).with(free), now).await?;
                None
            }
            loaded => loaded?.pop().flatten(),
        };
        // Evidence that cannot be read is none: whoever waits for it waits again, and the next success takes its place.
        Ok(row.map_or_else(Default::default, |row| {
            let evidence = decode(Table::Evidence, &EVIDENCE_ROW_ID, LAYOUT, &row).inspect_err(StoreError::log_skipped);
            (evidence.map(|(evidence, _)| evidence).unwrap_or_default(), Some(row.version))
        }))
    }

    /// The write that keeps what a thread has achieved.
    pub(crate) fn put_evidence(&self, evidence: &Evidence, over: Option<RowVersion>) -> Result<Write, StoreError> {
        let value = encode(Table::Evidence, &EVIDENCE_ROW_ID, evidence)?;
        Ok(Write {
            table: Table::Evidence,
            id: EVIDENCE_ROW_ID,
            expect: over.map_or(Expect::Absent, Expect::Same),
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

/// The answer to a repeated key must survive more than the process: the caller counts on it.
fn durability(record: &CallRecord) -> Durability {
    if record.key.is_some() { Durability::PowerSafe } else { Durability::KillSafe }
}

/// Where the claim on a key lies.
pub(crate) fn claim_partition(tenant: &Tenant, tool: &ToolName, key: &IdempotencyKey) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::Key(tool.clone(), key.clone()) }
}
