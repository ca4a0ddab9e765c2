//! Write-behind batching of the records of plain read-only calls, which are not opened in the journal.
//!
//! In: such a call when it has ended, from the caller's own task, so recording must be cheap. Out: its record in the
//! store within milliseconds, batched with others. A crash may lose the records of that interval, but never contradicts
//! what a caller saw. The buffer is bounded; records beyond its capacity are counted and dropped.
//!
//! The record has the arguments and the outcome but not the output, which may be large and can be requested again.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify},
};
use tokio_util::sync::CancellationToken;

use crate::{
    call::Call,
    execution::CallContext,
    journal::{CallRecord, LAYOUT},
};
use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Partition, StoreError, Table, Write, encode},
    clock::Clock,
};
use toolhub_types::{
    effect::Effect,
    error::CallError,
    outcome::{Outcome, Status, WriteDurability},
    timestamp::Timestamp,
};

/// Capacity of the buffer, in records of normal size.
const CAPACITY: usize = 10_000;
/// A record with larger arguments than this counts as several.
const WEIGHT_UNIT_BYTES: usize = 16 * 1024;
/// How long records are collected, so that they are in the store within fifty milliseconds.
const FLUSH_DELAY: Duration = Duration::from_millis(30);
/// Number of buffer shards. Callers on different cores use different shards, to avoid contention. A power of two.
const SHARDS: usize = 16;
/// Number of rows per batch.
const BATCH_SIZE: usize = 200;
/// Number of concurrent batches, so that a store with group commit can group them.
const WRITE_CONCURRENCY: usize = 64;

/// Counts of the records of plain read-only calls on this hub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JournalStats {
    /// Number of records written to the store.
    pub written: u64,
    /// Number of records dropped because the buffer was full or a write failed.
    pub dropped: u64,
}

/// Buffer of ended plain calls that are not in the store yet.
pub(crate) struct BatchedRecords {
    shards: [Mutex<Vec<EndedCall>>; SHARDS],
    /// The used part of the capacity.
    used_capacity: AtomicUsize,
    written: AtomicU64,
    dropped: AtomicU64,
    warned: AtomicBool,
    /// Notified when a call is added to the empty buffer.
    flush_needed: Notify,
    /// Serializes writers, so that a flush also waits for a write in progress.
    write_lock: AsyncMutex<()>,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    retention: Duration,
}

/// A call that has ended. Owns the call's context: nothing is copied, and the writer task drops it.
struct EndedCall {
    context: CallContext,
    weight: usize,
    status: Status,
    effect: Effect,
    error: Option<Box<CallError>>,
    attempts: u32,
    queued: Duration,
    duration: Duration,
    ended_at: Timestamp,
}

impl BatchedRecords {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, retention: Duration) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            used_capacity: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            warned: AtomicBool::new(false),
            flush_needed: Notify::new(),
            write_lock: AsyncMutex::default(),
            store,
            clock,
            retention,
        }
    }

    /// Buffers a call that has ended.
    pub(crate) fn note(&self, context: CallContext, outcome: &Outcome) {
        let weight = 1 + estimated_bytes(&context.envelope().call.arguments) / WEIGHT_UNIT_BYTES;
        let used = self.used_capacity.fetch_add(weight, Ordering::Relaxed);
        if used + weight > CAPACITY {
            self.used_capacity.fetch_sub(weight, Ordering::Relaxed);
            self.count_dropped(1, "the buffer of call records is full");
            return;
        }
        let ended = EndedCall {
            context,
            weight,
            status: outcome.status,
            effect: outcome.effect,
            error: outcome.error.clone().map(Box::new),
            attempts: outcome.attempts,
            queued: outcome.queued,
            duration: outcome.duration,
            ended_at: outcome.ended_at,
        };
        let shard = &self.shards[toolhub_storage::latency::thread_index() % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        if used == 0 {
            self.flush_needed.notify_one();
        }
    }

    /// Writes all buffered records. In a separate task, so that dropping this future does not interrupt the write.
    pub(crate) async fn flush(self: &Arc<Self>, runtime: &Handle) {
        if self.used_capacity.load(Ordering::Relaxed) > 0 {
            let records = self.clone();
            let _ = runtime.spawn(async move { records.write_all().await }).await;
        }
    }

    async fn write_all(&self) {
        let _guard = self.write_lock.lock().await;
        let mut ended: Vec<EndedCall> = Vec::new();
        for shard in &self.shards {
            ended.append(&mut std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        let now = self.clock.now();
        let mut writes = FuturesUnordered::new();
        let weight = ended.iter().map(|call| call.weight).sum();
        let mut flushed = FlushedRecords { records: self, weight, uncounted: ended.len() };
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

    /// Writes the records of one partition; returns their number and the result.
    async fn write(
        &self,
        partition: Partition,
        records: Vec<CallRecord>,
        now: Timestamp,
    ) -> (usize, Result<(), StoreError>) {
        let mut batch = Batch::new(partition);
        let count = records.len();
        batch.writes.reserve_exact(count);
        for record in records {
            let id = record.id.into();
            match encode(Table::Calls, &id, &record) {
                Err(error) => return (count, Err(error)),
                Ok(value) => {
                    let change = Change::Put { value, schema: LAYOUT, expires: Some(now + self.retention) };
                    let (expect, durability) = (Expect::Any, Durability::KillSafe);
                    batch.writes.push(Write { table: Table::Calls, id, expect, change, durability });
                }
            }
        }
        (count, self.store.commit(batch, now).await.map(|_| ()))
    }

    fn count_dropped(&self, count: u64, reason: &str) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%reason, "dropped records of read-only calls; further drops are only counted");
        }
    }
}

/// Records that left the buffer. On drop, also when the store panicked, it returns their capacity, because the buffer would
/// otherwise stay full for ever, and counts those without a result as dropped.
struct FlushedRecords<'a> {
    records: &'a BatchedRecords,
    weight: usize,
    /// Number of records without a result.
    uncounted: usize,
}

impl FlushedRecords<'_> {
    fn count(&mut self, written: Option<(usize, Result<(), StoreError>)>) {
        let Some((count, result)) = written else { return };
        self.uncounted -= count;
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
        let used = self.records.used_capacity.fetch_sub(self.weight, Ordering::Relaxed);
        if used > self.weight {
            // Calls added during the write found the buffer not empty and did not notify.
            self.records.flush_needed.notify_one();
        }
    }
}

/// Builds the records, grouped by thread. A call without a thread has its own partition.
fn by_partition(calls: Vec<EndedCall>) -> impl Iterator<Item = (Partition, Vec<CallRecord>)> {
    let (mut threads, mut without_thread) = (HashMap::<Partition, Vec<CallRecord>>::new(), Vec::new());
    for call in calls {
        let EndedCall { context, status, effect, error, attempts, queued, duration, ended_at, .. } = call;
        let (tool, redactor) = (context.tool().clone(), context.services().redactor.clone());
        let Call { head, mut arguments, .. } = context.into_call();
        redactor.redact(&mut arguments);
        let head = Arc::unwrap_or_clone(head);
        let trace_id = head.trace_id();
        let partition = Partition::for_call(head.tenant, head.thread.as_ref(), head.id);
        let outcome = Outcome {
            id: head.id,
            tool: head.tool,
            thread: head.thread.clone(),
            model_call: head.model_call,
            status,
            effect,
            output: Value::Null,
            content: Vec::new(),
            error: error.map(|error| *error),
            attempts,
            replayed: false,
            cached: false,
            durability: WriteDurability::Durable,
            approval: None,
            trace_id,
            queued,
            duration,
            started_at: head.arrived_at,
            ended_at,
        };
        let record = CallRecord {
            id: head.id,
            tool,
            caller: head.caller,
            thread: head.thread,
            run: head.run,
            key: None,
            arguments,
            status,
            approval: None,
            external_until: None,
            trace_id,
            opened_at: head.arrived_at,
            outcome: Some(outcome),
            opening: None,
        };
        match record.thread {
            Some(_) => threads.entry(partition).or_default().push(record),
            None => without_thread.push((partition, vec![record])),
        }
    }
    without_thread.into_iter().chain(threads)
}

/// Estimated size of a value in memory.
fn estimated_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 32,
        Value::String(text) => 32 + text.len(),
        Value::Array(items) => 32 + items.iter().map(estimated_bytes).sum::<usize>(),
        Value::Object(fields) => {
            32 + fields.iter().map(|(name, value)| 64 + name.len() + estimated_bytes(value)).sum::<usize>()
        }
    }
}

/// Writes buffered records until the hub stops, then flushes the rest.
pub(crate) async fn write_batched(records: Arc<BatchedRecords>, stopped: CancellationToken) {
    while stopped.run_until_cancelled(records.flush_needed.notified()).await.is_some() {
        let _ = stopped.run_until_cancelled(tokio::time::sleep(FLUSH_DELAY)).await;
        records.write_all().await;
    }
    records.write_all().await;
}
