//! Bounded job queue of a store's writer thread.
//!
//! In: jobs with a weight (backpressure by a semaphore). Out: the thread's replies. The thread defines the jobs and how many
//! it takes at a time.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use toolhub_storage::backend::{Batch, Change, StoreError};

use crate::worker_thread::{Work, WorkerThread};

/// Capacity in permits: a job takes one, plus more for large records.
const CAPACITY: u32 = 1024;
/// Each of these blocks of bytes takes one more permit.
const BYTES_PER_PERMIT: usize = 64 * 1024;

/// The versions of the rows; for a sweep a single number, the count of removed rows.
pub(crate) type Reply = oneshot::Sender<Result<Vec<u64>, StoreError>>;

/// A task and the channel for its result.
pub(crate) struct Job<T> {
    pub(crate) task: T,
    pub(crate) reply: Reply,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Handle of the writer thread. Dropping it waits until all submitted jobs are done.
pub(crate) struct Queue<T> {
    // The channel is unbounded, but every job holds semaphore permits, which bounds the queue.
    jobs: Sender<Job<T>>,
    permits: Arc<Semaphore>,
    _thread: WorkerThread,
}

impl<T: Send + 'static> Queue<T> {
    /// Starts the thread, which takes jobs from the receiver until the queue is dropped.
    pub(crate) fn spawn<W: Work>(name: &'static str, work: impl FnOnce(Receiver<Job<T>>) -> W) -> io::Result<Self> {
        let (jobs, receiver) = mpsc::channel();
        let thread = WorkerThread::spawn(name, work(receiver))?;
        Ok(Self { jobs, permits: Arc::new(Semaphore::new(CAPACITY as usize)), _thread: thread })
    }

    /// Submits a task when there is capacity, and waits for its result. A submitted task is executed even if the caller is dropped.
    pub(crate) async fn submit(&self, task: T, weight: u32) -> Result<Vec<u64>, StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".into());
        let permit = self.permits.clone().acquire_many_owned(weight.clamp(1, CAPACITY)).await.map_err(|_| closed())?;
        let (reply, result) = oneshot::channel();
        self.jobs.send(Job { task, reply, _permit: Some(permit) }).map_err(|_| closed())?;
        // The reply channel closes without a reply if the thread panicked while it executed the job.
        result.await.unwrap_or_else(|_| Err(StoreError::Unknown("the store writer panicked".into())))
    }

    /// Submits a task without waiting for its result; drops the task if the queue is full.
    pub(crate) fn try_submit_detached(&self, task: T) {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            let _ = self.jobs.send(Job { task, reply: oneshot::channel().0, _permit: Some(permit) });
        }
    }

    /// Submits a task regardless of the capacity; for a caller with at most one such task, which learns of its completion otherwise.
    pub(crate) fn submit_detached(&self, task: T) {
        let _ = self.jobs.send(Job { task, reply: oneshot::channel().0, _permit: None });
    }
}

/// The number of permits a batch takes.
pub(crate) fn weight(batch: &Batch) -> u32 {
    let bytes = batch.writes.iter().map(|write| match &write.change {
        Change::Put { value, .. } | Change::Restore { value, .. } => value.len() / BYTES_PER_PERMIT,
        _ => 0,
    });
    u32::try_from(bytes.sum::<usize>()).unwrap_or(CAPACITY).saturating_add(1)
}

/// The number of removed rows in the reply to a sweep.
pub(crate) fn swept_count(reply: &[u64]) -> usize {
    reply.first().map_or(0, |swept| usize::try_from(*swept).unwrap_or(usize::MAX))
}
