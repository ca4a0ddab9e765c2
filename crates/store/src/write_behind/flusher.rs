//! The thread that writes what waits, and everything that must not be worked out ahead.
//!
//! In: tasks, and the interval. Out: batches written to the store behind. It has a runtime of its own, so that it can
//! finish while its owner is being dropped, and so that nobody who stops waiting can stop a write halfway.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use futures_util::stream::{self, StreamExt};
use tokio::{
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
use crate::{epoch, failpoint};

/// How many partitions are written at a time, so that their commits share what they cost.
const FLUSH_CONCURRENCY: usize = 64;
/// After a failure it is tried again this soon, or after the interval if that is shorter.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// An interval beyond all measure means this.
const MAX_FLUSH_INTERVAL: Duration = Duration::from_secs(30 * 24 * 3600);

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum FlusherTask {
    /// Write what waits, in one partition or in all.
    Flush(Option<Partition>, Reply<()>),
    /// Write this now, behind everything that waits in its partition.
    WriteThrough(Batch, Timestamp, Reply<Vec<u64>>),
    Sweep(usize, Timestamp, Reply<usize>),
    /// Write what waits soon; nobody waits for that.
    FlushSoon,
    /// Write everything and the mark of a clean end.
    Close(Reply<()>),
}

/// The way to the thread. Dropped, it waits until everything is written, or cannot be.
pub(super) struct Flusher {
    // Not bounded by itself: each task has somebody who waits for it, but for one to hurry.
    tasks: Option<UnboundedSender<FlusherTask>>,
    /// Whether it was told to hurry and has not heard it yet.
    flush_requested: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(super) fn spawn(shared: Arc<Shared>, every: Duration, epoch: u64) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (tasks, waiting) = mpsc::unbounded_channel();
        let hurried = Arc::<AtomicBool>::default();
        let every = every.clamp(Duration::from_millis(1), MAX_FLUSH_INTERVAL);
        let desk = Worker {
            shared,
            tasks: waiting,
            flush_requested: hurried.clone(),
            flush_interval: every,
            epoch,
            unconfirmed: Mutex::default(),
        };
        let work = move || runtime.block_on(desk.run());
        let thread = std::thread::Builder::new().name("toolhub-behind".into()).spawn(work)?;
        Ok(Self { tasks: Some(tasks), flush_requested: hurried, thread: Some(thread) })
    }

    /// Has something done, and waits for it. It is done also when nobody waits any more.
    pub(super) async fn request<T>(&self, task: impl FnOnce(Reply<T>) -> FlusherTask) -> Result<T, StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".into());
        let (reply, answer) = oneshot::channel();
        let tasks = self.tasks.as_ref().ok_or_else(closed)?;
        tasks.send(task(reply)).map_err(|_| closed())?;
        if let Ok(answer) = answer.await {
            return answer;
        }
        // Whoever is told so finds it gone.
        tasks.closed().await;
        Err(StoreError::Unknown("the writer fell over".into()))
    }

    /// Whether it fell over: nothing that waits will ever be written.
    pub(super) fn is_stopped(&self) -> bool {
        self.tasks.as_ref().is_none_or(UnboundedSender::is_closed)
    }

    /// Has it write soon.
    pub(super) fn request_flush(&self) {
        if !self.flush_requested.swap(true, Ordering::Relaxed)
            && let Some(tasks) = &self.tasks
        {
            let _ = tasks.send(FlusherTask::FlushSoon);
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    tasks: UnboundedReceiver<FlusherTask>,
    flush_requested: Arc<AtomicBool>,
    flush_interval: Duration,
    epoch: u64,
    /// Batches whose answer was lost: they may be written already.
    unconfirmed: Mutex<HashSet<u64>>,
}

impl Worker {
    async fn run(mut self) {
        let mut next = Instant::now() + self.flush_interval;
        loop {
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
                Ok(Some(FlusherTask::Sweep(most, now, reply))) => drop(reply.send(self.sweep(most, now).await)),
                Ok(Some(FlusherTask::Close(reply))) => return drop(reply.send(self.close().await)),
                Ok(None) => {
                    if let Err(error) = self.close().await {
                        let bytes = self.shared.lock_buffer().bytes();
                        tracing::error!(%error, bytes, "what was acknowledged could not be written and is lost");
                    }
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Writes all that waits; answers when to do so again.
    async fn flush_on_schedule(&self) -> Duration {
        let Err(error) = self.flush(None).await else { return self.flush_interval };
        let bytes = self.shared.lock_buffer().bytes();
        tracing::warn!(%error, bytes, "what was acknowledged cannot be written yet");
        self.flush_interval.min(RETRY_INTERVAL)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.flush(None).await?;
        failpoint::reach("behind: before the mark");
        clean_shutdown::record_clean_shutdown(&*self.shared.inner, self.epoch).await
    }

    /// Nobody works out anything meanwhile, so no row is swept that somebody is just giving more time.
    async fn sweep(&self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        let _closed = self.shared.write_through_lock.write().await;
        self.flush(None).await?;
        self.shared.inner.sweep(most, now).await
    }

    async fn write_through(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let _closed = self.shared.write_through_lock.write().await;
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

    /// Writes what waits. What cannot be written goes on waiting.
    async fn flush(&self, only: Option<Partition>) -> Result<(), StoreError> {
        let partitions = only.map_or_else(|| self.shared.lock_buffer().partitions(), |only| vec![only]);
        // None is begun after one has failed; those that were begun are seen to their end.
        let failed = &Mutex::new(None);
        let write = async |partition: Partition| {
            if lock(failed).is_none()
                && let Err(error) = self.flush_partition(&partition).await
            {
                *lock(failed) = Some(error);
            }
        };
        stream::iter(partitions).map(write).buffer_unordered(FLUSH_CONCURRENCY).collect::<()>().await;
        lock(failed).take().map_or(Ok(()), Err)
    }

    /// Writes the batches of one partition, one after the other. The last makes those before it as safe as itself.
    async fn flush_partition(&self, partition: &Partition) -> Result<(), StoreError> {
        let batches = self.shared.lock_buffer().batches(partition);
        let strictest = batches.iter().map(|pending| pending.batch.durability()).max();
        for (at, pending) in batches.iter().enumerate() {
            let last = at + 1 == batches.len();
            let level = strictest.filter(|_| last).unwrap_or(Durability::KillSafe);
            self.write_batch(pending, level).await?;
            self.shared.lock_buffer().remove_written(pending);
        }
        Ok(())
    }

    async fn write_batch(&self, pending: &PendingBatch, level: Durability) -> Result<(), StoreError> {
        let unsure = lock(&self.unconfirmed).contains(&pending.number);
        if unsure {
            let is_written = self.is_written(pending).await?;
            lock(&self.unconfirmed).remove(&pending.number);
            if is_written {
                return Ok(());
            }
        }
        let mut batch = pending.batch.clone();
        batch.writes.iter_mut().for_each(|write| write.durability = level);
        while !batch.writes.is_empty() {
            failpoint::reach("behind: before a write");
            match self.shared.inner.commit(batch.clone(), pending.now).await {
                Ok(_) => break,
                // A row that was damaged meanwhile cannot be given more time; the others of its batch can be written.
                Err(StoreError::Damaged { table, id, .. })
                    if batch.writes.iter().any(|write| write.table == table && write.id == id) =>
                {
                    batch.writes.retain(|write| write.table != table || write.id != id);
                }
                Err(error @ StoreError::Unknown(_)) => {
                    lock(&self.unconfirmed).insert(pending.number);
                    return Err(error);
                }
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    tracing::error!(%error, "what was acknowledged was refused by the store behind and is lost");
                    break;
                }
            }
        }
        failpoint::reach("behind: after a write");
        Ok(())
    }

    /// Whether a batch whose answer was lost is written. One that puts nothing may be written twice.
    async fn is_written(&self, pending: &PendingBatch) -> Result<bool, StoreError> {
        let put = pending.batch.writes.iter().find_map(|write| match write.change {
            Change::Restore { version, .. } => Some((row_key(&pending.batch, write), version)),
            _ => None,
        });
        let Some((key, version)) = put else { return Ok(false) };
        let row = match self.shared.inner.load(&[key], pending.now).await {
            // What cannot be read is replaced.
            Err(StoreError::Damaged { .. }) => None,
            loaded => loaded?.pop().flatten(),
        };
        Ok(row.is_some_and(|row| row.version == RowVersion { number: version, stamp: pending.batch.stamp }))
    }
}

fn row_key(batch: &Batch, write: &Write) -> RowKey {
    RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() }
}

/// The same batch, whose rows get no lower version than this.
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
