//! The way to the one thread that writes a store: only so much waits there, and whoever asks waits for the answer.
//!
//! In: jobs, each with what it weighs. Out: what the thread answers. What the jobs are, and how many are taken at once, is the
//! affair of the thread.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use toolhub_storage::backend::{Batch, Change, StoreError};

/// How much may wait: so many jobs, each of a long record counted more than once.
const CAPACITY: u32 = 1024;
/// The bytes that count as one more.
const BYTES_PER_PERMIT: usize = 64 * 1024;

/// The versions of rows, or one number: how many went.
pub(crate) type Reply = oneshot::Sender<Result<Vec<u64>, StoreError>>;

/// Something to do, and who waits for it.
pub(crate) struct Job<T> {
    pub(crate) task: T,
    pub(crate) reply: Reply,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The way to the thread. Dropped, it waits until everything that was sent is done.
pub(crate) struct Queue<T> {
    // Not bounded by itself: a job is sent with its room, and of that there is only so much.
    jobs: Option<Sender<Job<T>>>,
    permits: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Queue<T> {
    /// Begins a thread that does what waits until nobody can send anything any more.
    pub(crate) fn spawn(name: &str, work: impl FnOnce(Receiver<Job<T>>) + Send + 'static) -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(waiting))?;
        Ok(Self { jobs: Some(jobs), permits: Arc::new(Semaphore::new(CAPACITY as usize)), thread: Some(thread) })
    }

    /// Has something done when there is room for it, and waits for the answer. It is done also when nobody waits any more.
    pub(crate) async fn submit(&self, task: T, weight: u32) -> Result<Vec<u64>, StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".into());
        let room = self.permits.clone().acquire_many_owned(weight.clamp(1, CAPACITY)).await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        self.send(Job { task, reply, _permit: Some(room) }).map_err(|_| closed())?;
        // No answer comes when the thread fell over while the job was in its hands.
        answer.await.unwrap_or_else(|_| Err(StoreError::Unknown("the writer fell over".into())))
    }

    /// Has something done that nobody waits for, unless there is much to do.
    pub(crate) fn try_submit_detached(&self, task: T) {
        if let Ok(room) = self.permits.clone().try_acquire_owned() {
            let _ = self.send(Job { task, reply: oneshot::channel().0, _permit: Some(room) });
        }
    }

    /// Has something done, whatever else waits; for somebody who asks for one thing at a time, and hears of its end in another way.
    pub(crate) fn submit_detached(&self, task: T) {
        let _ = self.send(Job { task, reply: oneshot::channel().0, _permit: None });
    }

    fn send(&self, job: Job<T>) -> Result<(), ()> {
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or(())
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Whoever opens the store next finds everything written and the lock free. A panic was told already.
            let _ = thread.join();
        }
    }
}

/// What a batch weighs in the queue.
pub(crate) fn weight(batch: &Batch) -> u32 {
    let bytes = batch.writes.iter().map(|write| match &write.change {
        Change::Put { value, .. } | Change::Restore { value, .. } => value.len() / BYTES_PER_PERMIT,
        _ => 0,
    });
    u32::try_from(bytes.sum::<usize>()).unwrap_or(CAPACITY).saturating_add(1)
}

/// How many rows went, in the answer to a sweep.
pub(crate) fn swept_count(answer: &[u64]) -> usize {
    answer.first().map_or(0, |swept| usize::try_from(*swept).unwrap_or(usize::MAX))
}
