//! The records of calls that need no opening: plain read-only ones.
//!
//! In: such a call when it has ended, from the caller's own task, so it must cost next to nothing. Out: its record in the
//! store, a moment later and together with others. A crash may lose what was noted in that moment; what the caller saw is
//! never contradicted. There is room for so many; a rush beyond that is counted and not kept.
//!
//! The record says what was asked and how it ended. The output is not in it: it may be large, and it can be asked again.

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
    outcome::{Acknowledged, Outcome, Status},
    timestamp::Timestamp,
};

/// How many calls are noted at most.
const CAPACITY: usize = 10_000;
/// One with more arguments than this takes the room of several.
const WEIGHT_UNIT_BYTES: usize = 16 * 1024;
/// How long calls are collected. They are in the store before fifty milliseconds are over.
const FLUSH_DELAY: Duration = Duration::from_millis(30);
/// Callers on different cores note in different parts, so that they seldom meet. A power of two.
const SHARDS: usize = 16;
/// How many rows are written in one batch.
const BATCH_SIZE: usize = 200;
/// How many batches are written beside each other: a store that writes in groups has something to group.
const WRITE_CONCURRENCY: usize = 64;

/// What became of the records of plain read-only calls on this hub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JournalStats {
    /// How many are in the store.
    pub written: u64,
    /// How many were lost, because more came than could be noted or the store did not take them.
    pub dropped: u64,
}

/// Plain calls that have ended and are not in the store yet.
pub(crate) struct BatchedRecords {
    shards: [Mutex<Vec<EndedCall>>; SHARDS],
    /// How much of the room is taken.
    used_capacity: AtomicUsize,
    written: AtomicU64,
    dropped: AtomicU64,
    warned: AtomicBool,
    /// Told when the first call is noted after all were written.
    flush_needed: Notify,
    /// Whoever waits for everything to be written must also wait for what somebody else is writing.
    write_lock: AsyncMutex<()>,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    retention: Duration,
}

/// A call that has ended. Its context is handed over whole: nothing is copied, and it is cleared away elsewhere.
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
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, keep: Duration) -> Self {
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
            retention: keep,
        }
    }

    /// Notes a call that has ended.
    pub(crate) fn note(&self, context: CallContext, outcome: &Outcome) {
        let room = 1 + estimated_bytes(&context.envelope().call.arguments) / WEIGHT_UNIT_BYTES;
        let taken = self.used_capacity.fetch_add(room, Ordering::Relaxed);
        if taken + room > CAPACITY {
            self.used_capacity.fetch_sub(room, Ordering::Relaxed);
            self.count_dropped(1, "more calls ended than can be noted");
            return;
        }
        let noted = EndedCall {
            context,
            weight: room,
            status: outcome.status,
            effect: outcome.effect,
            error: outcome.error.clone().map(Box::new),
            attempts: outcome.attempts,
            queued: outcome.queued,
            duration: outcome.duration,
            ended_at: outcome.ended_at,
        };
        let part = &self.shards[toolhub_storage::latency::thread_index() % SHARDS];
        part.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
        if taken == 0 {
            self.flush_needed.notify_one();
        }
    }

    /// Writes down everything that was noted before. On a task of its own: whoever waits for it may go away.
    pub(crate) async fn flush(self: &Arc<Self>, runtime: &Handle) {
        if self.used_capacity.load(Ordering::Relaxed) > 0 {
            let plain = self.clone();
            let _ = runtime.spawn(async move { plain.write_all().await }).await;
        }
    }

    async fn write_all(&self) {
        let _alone = self.write_lock.lock().await;
        let mut noted: Vec<EndedCall> = Vec::new();
        for part in &self.shards {
            noted.append(&mut std::mem::take(&mut *part.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        let now = self.clock.now();
        let mut writing = FuturesUnordered::new();
        let room: usize = noted.iter().map(|noted| noted.weight).sum();
        let mut noted = noted.into_iter();
        while noted.len() > 0 {
            let some: Vec<EndedCall> = noted.by_ref().take(BATCH_SIZE).collect();
            for (partition, records) in by_partition(some) {
                if writing.len() >= WRITE_CONCURRENCY {
                    self.count_written(writing.next().await);
                }
                writing.push(self.write(partition, records, now));
            }
            // Callers come first: a store in memory would let them wait until all of it is written.
            tokio::task::yield_now().await;
        }
        while let Some(written) = writing.next().await {
            self.count_written(Some(written));
        }
        self.used_capacity.fetch_sub(room, Ordering::Relaxed);
        if self.used_capacity.load(Ordering::Relaxed) > 0 {
            // Noted meanwhile, by callers who found that others had been told of already.
            self.flush_needed.notify_one();
        }
    }

    pub(crate) fn stats(&self) -> JournalStats {
        JournalStats { written: self.written.load(Ordering::Relaxed), dropped: self.dropped.load(Ordering::Relaxed) }
    }

    /// Writes records of one partition; answers how many, and whether they are in the store.
    async fn write(
        &self,
        partition: Partition,
        records: Vec<CallRecord>,
        now: Timestamp,
    ) -> (usize, Result<(), StoreError>) {
        let mut batch = Batch::new(partition);
        let many = records.len();
        batch.writes.reserve_exact(many);
        for record in records {
            let id = record.id.into();
            match encode(Table::Calls, &id, &record) {
                Err(error) => return (many, Err(error)),
                Ok(value) => {
                    let change = Change::Put { value, schema: LAYOUT, expires: Some(now + self.retention) };
                    let (expect, durability) = (Expect::Any, Durability::KillSafe);
                    batch.writes.push(Write { table: Table::Calls, id, expect, change, durability });
                }
            }
        }
        (many, self.store.commit(batch, now).await.map(|_| ()))
    }

    fn count_written(&self, written: Option<(usize, Result<(), StoreError>)>) {
        match written {
            None => {}
            Some((many, Ok(()))) => {
                self.written.fetch_add(many as u64, Ordering::Relaxed);
            }
            Some((many, Err(error))) => self.count_dropped(many as u64, &error.to_string()),
        }
    }

    fn count_dropped(&self, many: u64, reason: &str) {
        self.dropped.fetch_add(many, Ordering::Relaxed);
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%reason, "records of read-only calls are lost; from here on they are only counted");
        }
    }
}

/// The records, those of one thread together. A call without a thread is by itself.
fn by_partition(noted: Vec<EndedCall>) -> impl Iterator<Item = (Partition, Vec<CallRecord>)> {
    let (mut threads, mut alone) = (HashMap::<Partition, Vec<CallRecord>>::new(), Vec::new());
    for noted in noted {
        let EndedCall { context, status, effect, error, attempts, queued, duration, ended_at, .. } = noted;
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
            durability: Acknowledged::Durable,
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
            None => alone.push((partition, vec![record])),
        }
    }
    alone.into_iter().chain(threads)
}

/// About how many bytes a value takes.
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

/// Writes down what is noted until the hub is gone, and then the rest.
pub(crate) async fn write_batched(records: Arc<BatchedRecords>, gone: CancellationToken) {
    while gone.run_until_cancelled(records.flush_needed.notified()).await.is_some() {
        let _ = gone.run_until_cancelled(tokio::time::sleep(FLUSH_DELAY)).await;
        records.write_all().await;
    }
    records.write_all().await;
}
