//! Flusher thread: writes buffered batches, and batches that must be written through.
//!
//! In: tasks, and the flush interval. Out: batches committed to the inner store. It has its own runtime, so that it can
//! finish while its owner is being dropped, and so that a dropped caller cannot cancel a write halfway.

use std::{
    collections::HashSet,
    io,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt,
    stream::{self, StreamExt},
};
use tokio::{
    runtime::{self, Runtime},
    sync::{
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    time::{Instant, timeout_at},
};
use toolhub_storage::{
    backend::{Batch, Change, Durability, Partition, RowKey, RowVersion, StoreError, Write},
    clock::Timestamp,
};

use super::{Shared, buffer::PendingBatch, clean_shutdown};
use crate::{
    epoch, failpoint,
    worker_thread::{Work, WorkerThread},
};

/// How many partitions are flushed concurrently, so that the inner store can group their commits.
const FLUSH_CONCURRENCY: usize = 64;
/// Retry delay after a failure, unless the interval is shorter.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longer intervals are capped to this.
const MAX_FLUSH_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3600);

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum FlusherTask {
    /// Write the pending batches of one partition or of all.
    Flush(Option<Partition>, Reply<()>),
    /// Write this batch now, after the pending batches of its partition.
    WriteThrough(Batch, Timestamp, Reply<Vec<u64>>),
    Sweep(usize, Timestamp, Reply<usize>),
    /// Flush soon; no reply.
    FlushSoon,
    /// Write everything and record a clean shutdown.
    Close(Reply<()>),
}

/// Handle of the flusher thread. Dropping it waits until everything is written or has failed.
pub(super) struct Flusher {
    // Unbounded, but each task has a waiting caller, except for at most one `FlushSoon`.
    tasks: UnboundedSender<FlusherTask>,
    /// Whether a `FlushSoon` is queued.
    flush_requested: Arc<AtomicBool>,
    _thread: WorkerThread,
}

impl Flusher {
    pub(super) fn spawn(shared: Arc<Shared>, flush_interval: Duration, epoch: u64) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let (tasks, receiver) = mpsc::unbounded_channel();
        let flush_requested = Arc::<AtomicBool>::default();
        let flush_interval = flush_interval.clamp(Duration::from_millis(1), MAX_FLUSH_INTERVAL);
        let worker = Worker {
            shared,
            tasks: receiver,
            flush_requested: flush_requested.clone(),
            flush_interval,
            next_flush_delay: flush_interval,
            epoch,
            unconfirmed: Mutex::default(),
            is_closing: false,
        };
        let thread = WorkerThread::spawn("toolhub-flusher", (runtime, worker))?;
        Ok(Self { tasks, flush_requested, _thread: thread })
    }

    /// Submits a task and waits for its result. The task is executed even if the caller is dropped.
    pub(super) async fn request<T>(&self, task: impl FnOnce(Reply<T>) -> FlusherTask) -> Result<T, StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".into());
        let (reply, result) = oneshot::channel();
        self.tasks.send(task(reply)).map_err(|_| closed())?;
        // The reply channel closes without a reply if the thread panicked while it executed the task.
        result.await.unwrap_or_else(|_| Err(StoreError::Unknown("the write-behind flusher panicked".into())))
    }

    /// Requests a flush without waiting for it.
    pub(super) fn request_flush(&self) {
        if !self.flush_requested.swap(true, Ordering::Relaxed) {
            let _ = self.tasks.send(FlusherTask::FlushSoon);
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    tasks: UnboundedReceiver<FlusherTask>,
    flush_requested: Arc<AtomicBool>,
    flush_interval: Duration,
    /// The time from the start or restart of the thread until the first flush.
    next_flush_delay: Duration,
    epoch: u64,
    /// Batches that were started and have no known outcome: they may be written already.
    unconfirmed: Mutex<HashSet<u64>>,
    /// Whether the final flush has begun. It is not repeated after a panic, because the owner waits for the end of the thread.
    is_closing: bool,
}

impl Work for (Runtime, Worker) {
    fn run(&mut self) {
        let (runtime, worker) = self;
        runtime.block_on(worker.run());
    }

    /// The buffer still holds all unwritten batches.
    fn recover(&mut self) {
        let (_, worker) = self;
        worker.shared.flush_panicked.store(true, Ordering::Release);
        worker.next_flush_delay = worker.flush_interval.min(RETRY_INTERVAL);
        if worker.is_closing {
            let bytes = worker.shared.lock_buffer().bytes();
            tracing::error!(bytes, "write-behind flush panicked on close; acknowledged writes may be lost");
        } else {
            tracing::error!(
                "write-behind flusher panicked; restarting; commits are refused until everything is flushed"
            );
        }
    }
}

impl Worker {
    async fn run(&mut self) {
        let mut next = Instant::now() + self.next_flush_delay;
        while !self.is_closing {
            if Instant::now() >= next {
                next = Instant::now() + self.flush_on_schedule().await;
            }
            match timeout_at(next, self.tasks.recv()).await {
                Ok(Some(FlusherTask::FlushSoon)) => {
                    self.flush_requested.store(false, Ordering::Relaxed);
                    next = Instant::now();
                }
                Ok(Some(FlusherTask::Flush(only, reply))) => drop(reply.send(self.flush(only).await)),
                Ok(Some(FlusherTask::WriteThrough(batch, now, reply))) => {
                    drop(reply.send(self.write_through(batch, now).await));
                }
                Ok(Some(FlusherTask::Sweep(limit, now, reply))) => drop(reply.send(self.sweep(limit, now).await)),
                Ok(Some(FlusherTask::Close(reply))) => {
                    self.is_closing = true;
                    drop(reply.send(self.close().await));
                }
                Ok(None) => {
                    self.is_closing = true;
                    if let Err(error) = self.close().await {
                        let bytes = self.shared.lock_buffer().bytes();
                        tracing::error!(%error, bytes, "write-behind flush failed on close; acknowledged writes are lost");
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Flushes everything; returns the time until the next flush.
    async fn flush_on_schedule(&self) -> Duration {
        let Err(error) = self.flush(None).await else { return self.flush_interval };
        let bytes = self.shared.lock_buffer().bytes();
        tracing::warn!(%error, bytes, "write-behind flush failed; will retry");
        self.flush_interval.min(RETRY_INTERVAL)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.flush(None).await?;
        failpoint::reach("write-behind: before the shutdown record");
        clean_shutdown::record_clean_shutdown(&*self.shared.inner, self.epoch).await
    }

    /// Excludes concurrent commits, so that no row is swept whose expiry is just being extended.
    async fn sweep(&self, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
        let _exclusive = self.shared.write_through_lock.write().await;
        self.flush(None).await?;
        self.shared.inner.sweep(limit, now).await
    }

    async fn write_through(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let _exclusive = self.shared.write_through_lock.write().await;
        self.flush(Some(batch.partition.clone())).await?;
        let batch = with_version_floor(batch, epoch::version_floor(self.epoch));
        let versions = self.shared.inner.commit(batch.clone(), now).await?;
        self.shared.lock_buffer().record_write_through(&batch);
        for (write, version) in batch.writes.iter().zip(&versions) {
            if matches!(write.change, Change::Restore { .. } | Change::Remove) {
                self.shared.change_feed.emit(row_key(&batch, write), Some(*version).filter(|version| *version > 0));
            }
        }
        Ok(versions)
    }

    /// Writes the pending batches. Batches that fail stay in the buffer.
    async fn flush(&self, only: Option<Partition>) -> Result<(), StoreError> {
        let is_complete = only.is_none();
        let partitions = only.map_or_else(|| self.shared.lock_buffer().partitions(), |only| vec![only]);
        // After a failure or panic no further partition is started; those in progress run to completion, because the inner store
        // may execute a commit whose future was dropped, and a second one would get another version.
        let failed = &Mutex::new(None);
        let flush = async |partition: Partition| {
            if lock(failed).is_none() {
                let flushed = AssertUnwindSafe(self.flush_partition(&partition)).catch_unwind().await;
                if !matches!(flushed, Ok(Ok(()))) {
                    *lock(failed) = Some(flushed);
                }
            }
        };
        stream::iter(partitions).map(flush).buffer_unordered(FLUSH_CONCURRENCY).collect::<()>().await;
        let failed = lock(failed).take();
        let result = failed.unwrap_or(Ok(Ok(()))).unwrap_or_else(|panic| {
            // Before the caller gets its reply.
            self.shared.flush_panicked.store(true, Ordering::Release);
            resume_unwind(panic)
        });
        if is_complete && result.is_ok() {
            self.shared.flush_panicked.store(false, Ordering::Release);
        }
        result
    }

    /// Writes the batches of one partition in order. The last one is committed with the strictest durability, which covers those
    /// before it.
    async fn flush_partition(&self, partition: &Partition) -> Result<(), StoreError> {
        let batches = self.shared.lock_buffer().batches(partition);
        let strictest = batches.iter().map(|pending| pending.batch.durability()).max();
        for (at, pending) in batches.iter().enumerate() {
            let is_last = at + 1 == batches.len();
            let durability = strictest.filter(|_| is_last).unwrap_or(Durability::KillSafe);
            self.write_batch(pending, durability).await?;
            self.shared.lock_buffer().remove_written(pending);
        }
        Ok(())
    }

    async fn write_batch(&self, pending: &PendingBatch, durability: Durability) -> Result<(), StoreError> {
        let is_unconfirmed = !lock(&self.unconfirmed).insert(pending.number);
        let written = if is_unconfirmed && self.is_written(pending).await? {
            Ok(())
        } else {
            self.commit_batch(pending, durability).await
        };
        if !matches!(written, Err(StoreError::Unknown(_))) {
            lock(&self.unconfirmed).remove(&pending.number);
        }
        written
    }

    async fn commit_batch(&self, pending: &PendingBatch, durability: Durability) -> Result<(), StoreError> {
        let mut batch = pending.batch.clone();
        batch.writes.iter_mut().for_each(|write| write.durability = durability);
        while !batch.writes.is_empty() {
            failpoint::reach("write-behind: before a write");
            match self.shared.inner.commit(batch.clone(), pending.now).await {
                Ok(_) => break,
                // A row that was damaged meanwhile cannot be touched; the other writes of its batch still can be applied.
                Err(StoreError::Damaged { table, id, .. })
                    if batch.writes.iter().any(|write| write.table == table && write.id == id) =>
                {
                    batch.writes.retain(|write| write.table != table || write.id != id);
                }
                Err(error @ (StoreError::Unknown(_) | StoreError::Unavailable(_))) => return Err(error),
                Err(error) => {
                    tracing::error!(%error, "inner store refused an acknowledged write; the write is lost");
                    break;
                }
            }
        }
        failpoint::reach("write-behind: after a write");
        Ok(())
    }

    /// Whether a batch with an unknown outcome is written. A batch without a put may safely be written twice.
    async fn is_written(&self, pending: &PendingBatch) -> Result<bool, StoreError> {
        let put = pending.batch.writes.iter().find_map(|write| match write.change {
            Change::Restore { version, .. } => Some((row_key(&pending.batch, write), version)),
            _ => None,
        });
        let Some((key, version)) = put else { return Ok(false) };
        let row = match self.shared.inner.load(&[key], pending.now).await {
            // An unreadable row is overwritten.
            Err(StoreError::Damaged { .. }) => None,
            loaded => loaded?.pop().flatten(),
        };
        Ok(row.is_some_and(|row| row.version == RowVersion { number: version, stamp: pending.batch.stamp }))
    }
}

fn row_key(batch: &Batch, write: &Write) -> RowKey {
    RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() }
}

/// The same batch with a lower bound for the versions of its rows.
fn with_version_floor(mut batch: Batch, floor: u64) -> Batch {
    for write in &mut batch.writes {
        write.change = match std::mem::replace(&mut write.change, Change::Keep) {
            Change::Put { value, schema, expires } => Change::Restore { value, schema, expires, version: floor },
            Change::Restore { value, schema, expires, version } => {
                Change::Restore { value, schema, expires, version: version.max(floor) }
            }
            other => other,
        };
    }
    batch
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
