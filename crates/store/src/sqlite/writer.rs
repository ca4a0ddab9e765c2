//! The one thread that writes: takes whatever waits, makes it in one transaction, answers when that is committed.
//!
//! In: batches, sweeps, rows somebody could not read. Out: versions and counts, or an error that says whether nothing was written or nobody knows.
//! `file` is the connection with its levels of safety and its troubles; `apply` is one batch; `heads` is what it remembers of rows.

mod apply;
mod row_head_cache;
mod write_connection;

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
    error,
    quarantine::{Quarantine, Suspect},
};
use crate::{
    failpoint,
    queue::{self, Queue},
    watch::ChangeFeed,
};
use row_head_cache::RowHeadCache;
use write_connection::WriteConnection;

/// How many are made in one transaction at most.
const MAX_GROUP_SIZE: usize = 256;
/// SQLite keeps nothing longer than a thousand million bytes; this leaves room for the rest of the row.
const MAX_VALUE_BYTES: usize = 999_000_000;
/// The part of a sync that may be spent on waiting for company.
const GROUP_WAIT_DIVISOR: u32 = 8;

/// The way to the thread. Dropped, it waits until everything that was sent is written.
pub(super) struct Writer(Queue<Task>);

/// What the thread works with, besides its connection.
pub(super) struct Setup {
    pub(super) path: PathBuf,
    pub(super) max_bytes: Option<u64>,
    /// How many pages the log has.
    pub(super) wal_pages: Arc<AtomicU32>,
    pub(super) change_feed: ChangeFeed,
    pub(super) quarantine: Arc<Quarantine>,
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
    pub(super) fn spawn(setup: Setup, first: Connection) -> io::Result<Self> {
        let Setup { path, max_bytes: at_most, wal_pages: log, change_feed: news, quarantine: aside, floor } = setup;
        let file = WriteConnection::new(&path, at_most, first, log);
        let work = move |waiting| {
            WriterThread {
                jobs: waiting,
                file,
                row_heads: RowHeadCache::new(),
                change_feed: news,
                quarantine: aside,
                floor,
                last_group_size: 1,
            }
            .run();
        };
        Queue::spawn("toolhub-sqlite", work).map(Self)
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.find_duplicate_write() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        for Write { table, id, change, .. } in &batch.writes {
            let (Change::Put { value, .. } | Change::Restore { value, .. }) = change else { continue };
            if value.len() > MAX_VALUE_BYTES {
                return Err(StoreError::Refused(format!("the {table} record `{id}` is longer than SQLite can keep")));
            }
        }
        let weight = queue::weight(&batch);
        self.0.submit(Task::Commit(batch, now), weight).await
    }

    pub(super) async fn sweep(&self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.0.submit(Task::Sweep(most, now), 1).await.map(|answer| queue::swept_count(&answer))
    }

    /// Has somebody look at rows that could not be read. Nobody waits for it, and when there is much to do it is left
    /// to whoever comes upon them next.
    pub(super) fn inspect(&self, suspects: Vec<Suspect>, now: Timestamp) {
        if !suspects.is_empty() {
            self.0.try_submit_detached(Task::Inspect(suspects, now));
        }
    }

    /// Returns when all that was asked for before is done.
    pub(super) async fn wait_for_inspections(&self) -> Result<(), StoreError> {
        self.0.submit(Task::Inspect(Vec::new(), Timestamp::from_millis(0)), 1).await.map(|_| ())
    }
}

struct WriterThread {
    jobs: Receiver<Job>,
    file: WriteConnection,
    row_heads: RowHeadCache,
    change_feed: ChangeFeed,
    quarantine: Arc<Quarantine>,
    floor: u64,
    /// How many the last group had.
    last_group_size: usize,
}

impl WriterThread {
    fn run(mut self) {
        while let Ok(first) = self.jobs.recv() {
            let group = self.collect_group(first);
            self.last_group_size = group.len();
            let served = panic::catch_unwind(AssertUnwindSafe(|| self.run_group(group)));
            if served.is_err() {
                tracing::error!("the writer of the store fell over; it begins anew");
                self.file.discard_connection();
                self.row_heads.clear();
            }
            self.file.checkpoint_if_needed();
        }
    }

    /// Everything that waits. Before a sync, those of the last group get a moment to come back: otherwise they would
    /// form a second group, and every other sync would be for a few.
    fn collect_group(&self, first: Job) -> Vec<Job> {
        let mut group = vec![first];
        let mut until = None;
        while group.len() < MAX_GROUP_SIZE {
            if let Ok(job) = self.jobs.try_recv() {
                group.push(job);
                continue;
            }
            if group.len() >= self.last_group_size || !needs_sync(&group) {
                break;
            }
            let left =
                *until.get_or_insert_with(|| Instant::now() + self.file.last_sync_duration() / GROUP_WAIT_DIVISOR);
            let Ok(job) = self.jobs.recv_timeout(left.saturating_duration_since(Instant::now())) else { break };
            group.push(job);
        }
        group
    }

    fn run_group(&mut self, group: Vec<Job>) {
        let level = group.iter().map(durability).max().unwrap_or(Durability::KillSafe);
        let done = self.file.transact(level, |connection| {
            let hand = apply::TxWriter::new(connection, &self.quarantine, &mut self.row_heads, self.floor);
            let mut hand = hand.map_err(|error| error::unavailable(&error))?;
            failpoint::reach("writer: before a write");
            let made = group.iter().map(|job| apply::run_task(&mut hand, &job.task, &self.change_feed));
            let made = made.collect::<Result<Vec<_>, _>>();
            failpoint::reach("writer: before the commit");
            made
        });
        if done.is_err() {
            self.row_heads.clear();
        }
        match done {
            Ok(answers) => {
                failpoint::reach("writer: after the commit");
                for (job, answer) in group.into_iter().zip(answers) {
                    let answer = answer.map(|apply::TaskOutput { versions, changes: news, released_keys: freed }| {
                        self.quarantine.forget_released(&freed);
                        news.into_iter().for_each(|(key, version)| self.change_feed.emit(key, version));
                        versions
                    });
                    // Nobody may wait for it any more; it is written all the same.
                    let _ = job.reply.send(answer);
                }
                failpoint::reach("writer: after the answers");
            }
            // Nothing was written, because of one of them: each for itself.
            Err(StoreError::Unavailable(_) | StoreError::Damaged { .. }) if group.len() > 1 && self.file.is_open() => {
                group.into_iter().for_each(|job| self.run_group(vec![job]));
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
