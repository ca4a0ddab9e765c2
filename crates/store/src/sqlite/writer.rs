//! The one thread that writes: takes whatever waits, makes it in one transaction, answers when that is committed.
//!
//! In: batches, sweeps, rows somebody could not read. Out: versions and counts, or an error that says whether nothing was written or nobody knows.
//! `file` is the connection with its levels of safety and its troubles; `apply` is one batch; `heads` is what it remembers of rows.

mod apply;
mod file;
mod heads;

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{Arc, atomic::AtomicU32, mpsc::Receiver},
};

use rusqlite::Connection;
use tokio::time::Instant;
use toolhub_storage::{
    backend::{Batch, Change, Durability, StoreError, Write},
    clock::Timestamp,
};

use super::{
    aside::{Aside, Suspect},
    error,
};
use crate::{
    failpoint,
    queue::{self, Queue},
    watch::News,
};
use file::File;
use heads::Heads;

/// How many are made in one transaction at most.
const TOGETHER: usize = 256;
/// SQLite keeps nothing longer than a thousand million bytes; this leaves room for the rest of the row.
const LONGEST: usize = 999_000_000;
/// The part of a sync that may be spent on waiting for company.
const COMPANY: u32 = 8;

/// The way to the thread. Dropped, it waits until everything that was sent is written.
pub(super) struct Writer(Queue<Task>);

/// What the thread works with, besides its connection.
pub(super) struct Setup {
    pub(super) path: PathBuf,
    pub(super) at_most: Option<u64>,
    /// How many pages the log has.
    pub(super) log: Arc<AtomicU32>,
    pub(super) news: News,
    pub(super) aside: Arc<Aside>,
    /// The lowest version a row is written with.
    pub(super) floor: u64,
}

type Job = queue::Job<Task>;

enum Task {
    Commit(Batch, Timestamp),
    /// Answered with one number: how many rows went.
    Sweep(usize, Timestamp),
    /// Sets those aside that are damaged. Answered with nothing.
    Inspect(Vec<Suspect>, Timestamp),
}

impl Writer {
    pub(super) fn begin(setup: Setup, first: Connection) -> io::Result<Self> {
        let Setup { path, at_most, log, news, aside, floor } = setup;
        let file = File::new(&path, at_most, first, log);
        let work = move |waiting| Thread { waiting, file, heads: Heads::new(), news, aside, floor, before: 1 }.run();
        Queue::begin("toolhub-sqlite", work).map(Self)
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.written_twice() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        for Write { table, id, change, .. } in &batch.writes {
            let (Change::Put { value, .. } | Change::Restore { value, .. }) = change else { continue };
            if value.len() > LONGEST {
                return Err(StoreError::Refused(format!("the {table} record `{id}` is longer than SQLite can keep")));
            }
        }
        let weight = queue::weight(&batch);
        self.0.ask(Task::Commit(batch, now), weight).await
    }

    pub(super) async fn sweep(&self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.0.ask(Task::Sweep(most, now), 1).await.map(|answer| queue::swept(&answer))
    }

    /// Has somebody look at rows that could not be read. Nobody waits for it, and when there is much to do it is left
    /// to whoever comes upon them next.
    pub(super) fn inspect(&self, suspects: Vec<Suspect>, now: Timestamp) {
        if !suspects.is_empty() {
            self.0.offer(Task::Inspect(suspects, now));
        }
    }

    /// Returns when all that was asked for before is done.
    pub(super) async fn inspect_and_wait(&self) -> Result<(), StoreError> {
        self.0.ask(Task::Inspect(Vec::new(), Timestamp::from_millis(0)), 1).await.map(|_| ())
    }
}

struct Thread {
    waiting: Receiver<Job>,
    file: File,
    heads: Heads,
    news: News,
    aside: Arc<Aside>,
    floor: u64,
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
                self.heads.forget_all();
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
        let level = group.iter().map(durability).max().unwrap_or(Durability::KillSafe);
        let done = self.file.transact(level, |connection| {
            let hand = apply::Hand::new(connection, &self.aside, &mut self.heads, self.floor);
            let mut hand = hand.map_err(|error| error::nothing(&error))?;
            failpoint::reach("writer: before a write");
            let made = group.iter().map(|job| apply::job(&mut hand, &job.task, &self.news));
            let made = made.collect::<Result<Vec<_>, _>>();
            failpoint::reach("writer: before the commit");
            made
        });
        if done.is_err() {
            self.heads.forget_all();
        }
        match done {
            Ok(answers) => {
                failpoint::reach("writer: after the commit");
                for (job, answer) in group.into_iter().zip(answers) {
                    let answer = answer.map(|apply::Made { versions, news, freed }| {
                        self.aside.freed(&freed);
                        news.into_iter().for_each(|(key, version)| self.news.tell(key, version));
                        versions
                    });
                    // Nobody may wait for it any more; it is written all the same.
                    let _ = job.reply.send(answer);
                }
                failpoint::reach("writer: after the answers");
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

fn durability(job: &Job) -> Durability {
    match &job.task {
        Task::Commit(batch, _) => batch.durability(),
        // What is expired is gone to everybody, and what is damaged stays so: after a loss of power it is done again.
        Task::Sweep(..) | Task::Inspect(..) => Durability::KillSafe,
    }
}

fn needs_sync(group: &[Job]) -> bool {
    group.iter().any(|job| durability(job) == Durability::PowerSafe)
}
