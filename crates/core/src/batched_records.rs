//! Write-behind batching of the records of plain read-only calls, which are not opened in the journal.
//!
//! In: such a call when it has ended, from the caller's own task, so recording must be cheap. Out: its record in the
//! store within milliseconds, batched with others. A crash may lose the records of that interval, but never contradicts
//! what a caller saw. The buffer is bounded: while it is full, calls wait a moment before they end (backpressure). Only if the
//! store does not keep up even so are records dropped; drops are counted and logged.
//!
//! The record has the arguments and the outcome but not the output, which may be large and can be requested again; it refers to
//! the artifacts of the output, so that they go with it.

mod ended_call;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify, Semaphore},
};
use tokio_util::sync::CancellationToken;

pub(crate) use ended_call::EndedCall;
use ended_call::{RecordBatch, by_partition};

use crate::journal::{ENDED_CALL_LAYOUT, terms_of_record};
use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Partition, StoreError, Table, Write, encode},
    clock::Clock,
};
use toolhub_types::{outcome::Outcome, timestamp::Timestamp};

/// Capacity of the buffer, in KiB. A record takes one, plus the size of its arguments.
const CAPACITY_KIB: usize = 64 * 1024;
/// How long a call waits for a full buffer before its record is dropped. Only a store that has stalled takes that long.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// From this part of the memory of the store's server on, plain read-only calls are not recorded: the rest is for what must be stored.
const MAX_MEMORY_PRESSURE: f64 = 0.9;
const MEMORY_WARNING: &str = "the memory of the store's server is 90 % full";
/// Minimum time between two warnings about dropped records.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// How long records are collected. Short, because writing competes with calls for the cores: long bursts raise their latency.
const FLUSH_DELAY: Duration = Duration::from_millis(10);
/// Number of buffer shards. Callers on different cores use different shards, to avoid contention. A power of two.
const SHARDS: usize = 16;
/// Number of rows per batch.
const BATCH_SIZE: usize = 200;
/// Number of concurrent batches: as many as a store with group commit puts into one transaction. A call without a thread has
/// a batch of its own, so this decides how many of them are written per second.
const WRITE_CONCURRENCY: usize = 512;

/// Which plain read-only calls are recorded in the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadOnlyCalls {
    /// All of them.
    #[default]
    All,
    /// Those that did not succeed.
    Failed,
    /// None.
    None,
}

/// Counts of the records of plain read-only calls on this hub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JournalStats {
    /// Number of records written to the store.
    pub written: u64,
    /// Number of records dropped because a write failed, or the store was so slow that the buffer stayed full.
    pub dropped: u64,
}

/// Buffer of ended plain calls that are not in the store yet.
pub(crate) struct BatchedRecords {
    shards: [Mutex<Vec<EndedCall>>; SHARDS],
    /// The free part of the capacity. Permits are returned when their records are written or dropped.
    free_kib: Semaphore,
    written: AtomicU64,
    dropped: AtomicU64,
    warnings: Mutex<WarningState>,
    /// Whether a call was added since the last flush began.
    has_unflushed: AtomicBool,
    /// Notified when the first call is added after a flush began.
    flush_needed: Notify,
    /// Serializes writers, so that a flush also waits for a write in progress.
    write_lock: AsyncMutex<()>,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    retention: Duration,
    recorded: ReadOnlyCalls,
}

/// When dropped records were last logged.
#[derive(Default)]
struct WarningState {
    last: Option<Timestamp>,
    /// Number of records dropped since then.
    unreported: u64,
    /// Why the last of them was dropped.
    reason: String,
}

impl WarningState {
    fn log(&mut self, now: Timestamp) {
        let (dropped, reason) = (std::mem::take(&mut self.unreported), &self.reason);
        self.last = Some(now);
        tracing::warn!(dropped, %reason, "journal records of read-only calls were dropped; check the store");
    }
}

impl BatchedRecords {
    pub(crate) fn new(
        store: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        retention: Duration,
        recorded: ReadOnlyCalls,
    ) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            free_kib: Semaphore::new(CAPACITY_KIB),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            warnings: Mutex::default(),
            has_unflushed: AtomicBool::new(false),
            flush_needed: Notify::new(),
            write_lock: AsyncMutex::default(),
            store,
            clock,
            retention,
            recorded,
        }
    }

    /// Whether a call with this outcome is recorded.
    pub(crate) fn accepts(&self, outcome: &Outcome) -> bool {
        match self.recorded {
            ReadOnlyCalls::All => true,
            ReadOnlyCalls::Failed => !outcome.is_success(),
            ReadOnlyCalls::None => false,
        }
    }

    /// Buffers a call that has ended; returns it if the buffer is full.
    pub(crate) fn try_add(&self, ended: EndedCall) -> Result<(), Box<EndedCall>> {
        if self.skips_for_memory() {
            return Ok(());
        }
        let Ok(permits) = self.free_kib.try_acquire_many(ended.permits()) else { return Err(Box::new(ended)) };
        permits.forget();
        self.push(ended);
        Ok(())
    }

    /// Buffers a call when there is room for it, or drops its record if the store does not make room in time.
    pub(crate) async fn add(&self, ended: Box<EndedCall>) {
        if self.skips_for_memory() {
            return;
        }
        let mut waiting = WaitingRecord(Some(self));
        let waited = tokio::time::timeout(MAX_WAIT, self.free_kib.acquire_many(ended.permits())).await;
        waiting.0 = None;
        match waited {
            Ok(Ok(permits)) => {
                permits.forget();
                self.push(*ended);
            }
            _ => self.count_dropped(1, "the buffer is full: the store is too slow"),
        }
    }

    /// Buffers a call whose caller is gone and cannot wait, or drops its record if the buffer is full.
    pub(crate) fn add_now(&self, ended: EndedCall) {
        if self.try_add(ended).is_err() {
            self.count_dropped(1, "the buffer is full: the store is too slow");
        }
    }

    fn is_memory_short(&self) -> bool {
        self.store.memory_pressure().is_some_and(|used| used >= MAX_MEMORY_PRESSURE)
    }

    /// Whether the memory is too short to record a call. Counts the call then.
    fn skips_for_memory(&self) -> bool {
        let is_short = self.is_memory_short();
        if is_short {
            self.count_dropped(1, MEMORY_WARNING);
        }
        is_short
    }

    /// Why calls are not recorded at present.
    pub(crate) fn warning(&self) -> Option<String> {
        self.is_memory_short().then(|| format!("{MEMORY_WARNING}: plain read-only calls are not recorded"))
    }

    fn push(&self, ended: EndedCall) {
        let shard = &self.shards[toolhub_storage::latency::thread_index() % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        // The read keeps the cache line shared between cores in the common case.
        if !self.has_unflushed.load(Ordering::Relaxed) && !self.has_unflushed.swap(true, Ordering::AcqRel) {
            self.flush_needed.notify_one();
        }
    }

    /// Writes all buffered records. In a separate task, so that dropping this future does not interrupt the write.
    pub(crate) async fn flush(self: &Arc<Self>, runtime: &Handle) {
        if self.free_kib.available_permits() < CAPACITY_KIB {
            let records = self.clone();
            let _ = runtime.spawn(async move { records.write_all().await }).await;
        }
    }

    async fn write_all(&self) {
        let _guard = self.write_lock.lock().await;
        // Cleared first: a call that is added from now on requests another flush.
        self.has_unflushed.swap(false, Ordering::AcqRel);
        let mut ended: Vec<EndedCall> = Vec::new();
        for shard in &self.shards {
            ended.append(&mut std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        let now = self.clock.now();
        let mut writes = FuturesUnordered::new();
        let weight_kib = ended.iter().map(|call| call.weight_kib).sum();
        let mut flushed = FlushedRecords { records: self, weight_kib, uncounted: ended.len() };
        let mut ended = ended.into_iter();
        while ended.len() > 0 {
            let calls: Vec<EndedCall> = ended.by_ref().take(BATCH_SIZE).collect();
            for (partition, records) in by_partition(calls) {
                if writes.len() >= WRITE_CONCURRENCY {
                    flushed.count(writes.next().await);
                }
                writes.push(self.write(partition, records, now));
            }
            // Yield to callers: with an in-memory store they would otherwise wait until all is written.
            tokio::task::yield_now().await;
        }
        while let Some(written) = writes.next().await {
            flushed.count(Some(written));
        }
    }

    pub(crate) fn stats(&self) -> JournalStats {
        JournalStats { written: self.written.load(Ordering::Relaxed), dropped: self.dropped.load(Ordering::Relaxed) }
    }

    /// Writes the records of one partition.
    async fn write(
        &self,
        partition: Partition,
        RecordBatch { records, weight_kib }: RecordBatch,
        now: Timestamp,
    ) -> WriteResult {
        let mut batch = Batch::new(partition);
        let count = records.len();
        batch.writes.reserve_exact(count);
        for record in records {
            let id: SmolStr = record.id.into();
            match encode(Table::Calls, &id, &record) {
                Err(error) => return WriteResult { count, weight_kib, result: Err(error) },
                Ok(value) => {
                    let change = Change::Put { value, schema: ENDED_CALL_LAYOUT, expires: Some(now + self.retention) };
                    let (expect, durability) = (Expect::Any, Durability::KillSafe);
                    batch.terms.insert((Table::Calls, id.clone()), terms_of_record(&record));
                    batch.writes.push(Write { table: Table::Calls, id, expect, change, durability });
                }
            }
        }
        WriteResult { count, weight_kib, result: self.store.commit(batch, now).await.map(|_| ()) }
    }

    /// Counts dropped records, and logs them at most once a minute.
    fn count_dropped(&self, count: u64, reason: &str) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        let now = self.clock.now();
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.unreported += count;
        if warnings.reason != reason {
            reason.clone_into(&mut warnings.reason);
        }
        if warnings.last.is_none_or(|last| now.since(last) >= WARN_INTERVAL) {
            warnings.log(now);
        } else {
            // The writer task logs it after the interval.
            self.flush_needed.notify_one();
        }
    }

    /// Logs the dropped records that were not logged yet, if there are any. Returns whether there are some whose turn has not
    /// come.
    fn log_dropped(&self, is_last: bool) -> bool {
        let now = self.clock.now();
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.unreported == 0 {
            return false;
        }
        let is_due = is_last || warnings.last.is_none_or(|last| now.since(last) >= WARN_INTERVAL);
        if is_due {
            warnings.log(now);
        }
        !is_due
    }
}

/// A record that waits for room in the buffer. Counted as dropped if its caller goes away meanwhile.
struct WaitingRecord<'a>(Option<&'a BatchedRecords>);

impl Drop for WaitingRecord<'_> {
    fn drop(&mut self) {
        if let Some(records) = self.0 {
            records.count_dropped(1, "its caller went away while the buffer was full");
        }
    }
}

/// The result of writing a batch of records.
struct WriteResult {
    count: usize,
    weight_kib: usize,
    result: Result<(), StoreError>,
}

/// Records that left the buffer. Their capacity is returned as they are written; on drop, also when the store panicked, that of
/// the rest, because the buffer would otherwise stay full for ever. Those without a result count as dropped.
struct FlushedRecords<'a> {
    records: &'a BatchedRecords,
    /// The capacity that was not returned yet.
    weight_kib: usize,
    /// Number of records without a result.
    uncounted: usize,
}

impl FlushedRecords<'_> {
    fn count(&mut self, written: Option<WriteResult>) {
        let Some(WriteResult { count, weight_kib, result }) = written else { return };
        self.uncounted -= count;
        self.weight_kib -= weight_kib;
        self.records.free_kib.add_permits(weight_kib);
        match result {
            Ok(()) => {
                self.records.written.fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(error) => self.records.count_dropped(count as u64, &error.to_string()),
        }
    }
}

impl Drop for FlushedRecords<'_> {
    fn drop(&mut self) {
        if self.uncounted > 0 {
            self.records.count_dropped(self.uncounted as u64, "the write was interrupted");
        }
        self.records.free_kib.add_permits(self.weight_kib);
    }
}

/// Writes buffered records until the hub stops, then flushes the rest.
pub(crate) async fn write_batched(records: Arc<BatchedRecords>, stopped: CancellationToken) {
    loop {
        let next = async {
            if records.log_dropped(false) {
                let _ = tokio::time::timeout(WARN_INTERVAL, records.flush_needed.notified()).await;
            } else {
                records.flush_needed.notified().await;
            }
        };
        if stopped.run_until_cancelled(next).await.is_none() {
            break;
        }
        let _ = stopped.run_until_cancelled(tokio::time::sleep(FLUSH_DELAY)).await;
        records.write_all().await;
    }
    records.write_all().await;
    records.log_dropped(true);
}
