//! The one thread that writes: takes whatever waits, makes it in one transaction, answers when that is committed.
//!
//! In: batches and sweeps. Out: versions and counts, or an error that says whether nothing was written or nobody knows.
//! `file` is the connection with its levels of safety and its troubles; `apply` is one batch.

mod apply;
mod file;

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{
        Arc,
        atomic::AtomicU32,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
};

use rusqlite::Connection;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};
use toolhub_core::{
    backend::{Batch, Change, Durability, StoreError, Write},
    clock::Timestamp,
};

use super::error;
use crate::watch::News;
use file::File;

/// How much may wait: so many batches, each of a long record counted more than once.
const ROOM: u32 = 1024;
/// The bytes that count as one more.
const HEAVY: usize = 64 * 1024;
/// How many are made in one transaction at most.
const TOGETHER: usize = 256;
/// SQLite keeps nothing longer than a thousand million bytes; this leaves room for the rest of the row.
const LONGEST: usize = 999_000_000;
/// The part of a sync that may be spent on waiting for company.
const COMPANY: u32 = 8;

/// The way to the thread. Dropped, it waits until everything that was sent is written.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

/// Something to do, and who waits for it.
struct Job {
    task: Task,
    now: Timestamp,
    reply: oneshot::Sender<Result<Vec<u64>, StoreError>>,
    _room: OwnedSemaphorePermit,
}

enum Task {
    Commit(Batch),
    /// Answered with one number: how many rows went.
    Sweep(usize),
}

impl Writer {
    pub(super) fn begin(
        path: &Path,
        at_most: Option<u64>,
        first: Connection,
        log: Arc<AtomicU32>,
        news: News,
    ) -> io::Result<Self> {
        // Not bounded by itself: a job is sent with its room, and of that there is only so much.
        let (jobs, waiting) = mpsc::channel();
        let file = File::new(path, at_most, first, log);
        let work = move || Thread { waiting, file, news, before: 1 }.run();
        let thread = std::thread::Builder::new().name("toolhub-sqlite".into()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), room: Arc::new(Semaphore::new(ROOM as usize)), thread: Some(thread) })
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.written_twice() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        let mut weight = 0;
        for Write { table, id, change, .. } in &batch.writes {
            let (Change::Put { value, .. } | Change::Restore { value, .. }) = change else { continue };
            if value.len() > LONGEST {
                return Err(StoreError::Refused(format!("the {table} record `{id}` is longer than SQLite can keep")));
            }
            weight += value.len() / HEAVY;
        }
        self.ask(Task::Commit(batch), weight, now).await
    }

    pub(super) async fn sweep(&self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        let swept = self.ask(Task::Sweep(most), 0, now).await?;
        Ok(swept.first().map_or(0, |swept| usize::try_from(*swept).unwrap_or(most)))
    }

    async fn ask(&self, task: Task, weight: usize, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".into());
        let weight = u32::try_from(weight).unwrap_or(ROOM).saturating_add(1).min(ROOM);
        let room = self.room.clone().acquire_many_owned(weight).await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        jobs.send(Job { task, now, reply, _room: room }).map_err(|_| closed())?;
        // No answer comes when the thread fell over while the job was in its hands.
        answer.await.unwrap_or_else(|_| Err(StoreError::Unknown("the writer fell over".into())))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Whoever opens the file next finds everything written and the lock free. A panic was told already.
            let _ = thread.join();
        }
    }
}

struct Thread {
    waiting: Receiver<Job>,
    file: File,
    news: News,
    /// How many the last group had.
    before: usize,
}

impl Thread {
    fn run(mut self) {
        while let Ok(first) = self.waiting.recv() {
            let group = self.gather(first);
            self.before = group.len();
            let served = panic::catch_unwind(AssertUnwindSafe(|| self.serve(group)));
            if served.is_err() {
                tracing::error!("the writer of the store fell over; it begins anew");
                self.file.distrust();
            }
            self.file.tidy();
        }
    }

    /// Everything that waits. Before a sync, those of the last group get a moment to come back: otherwise they would
    /// form a second group, and every other sync would be for a few.
    fn gather(&self, first: Job) -> Vec<Job> {
        let mut group = vec![first];
        let mut until = None;
        while group.len() < TOGETHER {
            if let Ok(job) = self.waiting.try_recv() {
                group.push(job);
                continue;
            }
            if group.len() >= self.before || !needs_sync(&group) {
                break;
            }
            let left = *until.get_or_insert_with(|| Instant::now() + self.file.sync_took() / COMPANY);
            let Ok(job) = self.waiting.recv_timeout(left.saturating_duration_since(Instant::now())) else { break };
            group.push(job);
        }
        group
    }

    fn serve(&mut self, group: Vec<Job>) {
        let level = group.iter().map(Job::durability).max().unwrap_or(Durability::KillSafe);
        let done = self.file.transact(level, |connection| {
            let mut hand = apply::Hand::new(connection).map_err(|error| error::nothing(&error))?;
            let made = group.iter().map(|job| apply::job(&mut hand, &job.task, job.now, &self.news));
            made.collect::<Result<Vec<_>, _>>()
        });
        match done {
            Ok(answers) => {
                for (job, answer) in group.into_iter().zip(answers) {
                    let answer = answer.map(|apply::Made { versions, news }| {
                        news.into_iter().for_each(|(key, version)| self.news.tell(key, version));
                        versions
                    });
                    // Nobody may wait for it any more; it is written all the same.
                    let _ = job.reply.send(answer);
                }
            }
            // Nothing was written, because of one of them: each for itself.
            Err(StoreError::Unavailable(_) | StoreError::Damaged { .. }) if group.len() > 1 && self.file.is_open() => {
                group.into_iter().for_each(|job| self.serve(vec![job]));
            }
            Err(error) => {
                for job in group {
                    let _ = job.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

impl Job {
    fn durability(&self) -> Durability {
        match &self.task {
            Task::Commit(batch) => batch.durability(),
            // What is expired is gone to everybody; after a loss of power it is swept again.
            Task::Sweep(_) => Durability::KillSafe,
        }
    }
}

fn needs_sync(group: &[Job]) -> bool {
    group.iter().any(|job| job.durability() == Durability::PowerSafe)
}
