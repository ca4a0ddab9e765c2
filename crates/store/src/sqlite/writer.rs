//! Writer thread with group commit: takes all queued jobs, executes them in one transaction, replies after the commit.
//!
//! In: batches, sweeps, suspect rows. Out: versions and counts, or an error that says whether nothing was written or the
//! outcome is unknown. `write_connection` is the connection with its durability levels and recovery; `apply` executes one
//! task; `row_head_cache` and `term_block_cache` cache what was written recently.

mod apply;
mod row_head_cache;
mod term_block_cache;
mod write_connection;

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, atomic::AtomicU32, mpsc::Receiver},
};

use rusqlite::Connection;
use tokio::time::Instant;
use toolhub_storage::{
    backend::{Batch, Change, Durability, SizeLimit, StoreError, Table, Write},
    clock::Timestamp,
};

use super::{
    error,
    quarantine::{Quarantine, Suspect},
    store_file::StoreFile,
};
use crate::{
    change_feed::ChangeFeed,
    failpoint,
    queue::{self, Queue},
    worker_thread::Work,
};
use row_head_cache::RowHeadCache;
use term_block_cache::TermBlockCache;
use write_connection::WriteConnection;

/// Maximum number of jobs per transaction.
const MAX_GROUP_SIZE: usize = 512;
/// SQLite limits a row to 10^9 bytes; this leaves room for the other columns.
const MAX_VALUE_BYTES: usize = 999_000_000;
/// The writer waits at most this fraction of a sync's duration for more jobs to join a group.
const GROUP_WAIT_DIVISOR: u32 = 8;

/// Handle of the writer thread. Dropping it waits until all submitted jobs are done.
pub(super) struct Writer(Queue<Task>);

/// Parameters of the writer thread.
pub(super) struct Setup {
    pub(super) file: Arc<StoreFile>,
    pub(super) size_limit: Option<Arc<SizeLimit>>,
    /// The current number of WAL pages.
    pub(super) wal_pages: Arc<AtomicU32>,
    pub(super) change_feed: ChangeFeed,
    pub(super) quarantine: Arc<Quarantine>,
    /// The lowest version to assign.
    pub(super) floor: u64,
}

type WriteJob = queue::Job<Task>;

enum Task {
    Commit(Batch, Timestamp),
    /// Replies with one number: how many rows were removed.
    Sweep(usize, Timestamp),
    /// Quarantines those that are damaged. Replies with an empty list.
    Inspect(Vec<Suspect>, Timestamp),
}

impl Writer {
    pub(super) fn spawn(setup: Setup, connection: Connection) -> io::Result<Self> {
        let Setup { file, size_limit, wal_pages, change_feed, quarantine, floor } = setup;
        let caches = Caches::new(&connection).map_err(io::Error::other)?;
        let mut connection = WriteConnection::new(file, size_limit, connection, wal_pages);
        connection.measure(None);
        let work = |jobs| WriterThread { jobs, connection, caches, change_feed, quarantine, floor, last_group_size: 1 };
        Queue::spawn("toolhub-sqlite", work).map(Self)
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        batch.check_duplicate_writes()?;
        for Write { table, id, change, .. } in &batch.writes {
            let (Change::Put { value, .. } | Change::Restore { value, .. }) = change else { continue };
            if value.len() > MAX_VALUE_BYTES {
                return Err(StoreError::Refused(format!(
                    "the {table} record `{id}` exceeds the maximum record size of SQLite"
                )));
            }
        }
        let weight = queue::weight(&batch);
        self.0.submit(Task::Commit(batch, now), weight).await
    }

    pub(super) async fn sweep(&self, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.0.submit(Task::Sweep(limit, now), 1).await.map(|reply| queue::swept_count(&reply))
    }

    /// Submits rows that could not be read for verification, without waiting. Skipped if the queue is full; the next reader of
    /// these rows submits them again.
    pub(super) fn inspect(&self, suspects: Vec<Suspect>, now: Timestamp) {
        if !suspects.is_empty() {
            self.0.try_submit_detached(Task::Inspect(suspects, now));
        }
    }

    /// Waits until all jobs submitted before are done.
    pub(super) async fn wait_for_inspections(&self) -> Result<(), StoreError> {
        self.0.submit(Task::Inspect(Vec::new(), Timestamp::from_millis(0)), 1).await.map(|_| ())
    }
}

/// What the writer knows about the file without reading it.
struct Caches {
    row_heads: RowHeadCache,
    term_blocks: TermBlockCache,
    /// The tables whose rows may have terms.
    tables_with_terms: BTreeSet<Table>,
}

impl Caches {
    fn new(connection: &Connection) -> rusqlite::Result<Self> {
        let mut has_terms = connection.prepare("SELECT EXISTS (SELECT 1 FROM term_blocks WHERE tab = ?1)")?;
        let mut tables_with_terms = BTreeSet::new();
        for table in Table::ALL {
            if has_terms.query_row([table.as_str()], |row| row.get(0))? {
                tables_with_terms.insert(table);
            }
        }
        Ok(Self { row_heads: RowHeadCache::new(), term_blocks: TermBlockCache::new(), tables_with_terms })
    }

    /// Forgets what may be wrong after a transaction that failed. A table that had terms may still have some.
    fn clear(&mut self) {
        self.row_heads.clear();
        self.term_blocks.clear();
    }
}

struct WriterThread {
    jobs: Receiver<WriteJob>,
    connection: WriteConnection,
    caches: Caches,
    change_feed: ChangeFeed,
    quarantine: Arc<Quarantine>,
    floor: u64,
    /// The number of jobs in the last group.
    last_group_size: usize,
}

impl Work for WriterThread {
    fn run(&mut self) {
        while let Ok(first) = self.jobs.recv() {
            let group = self.collect_group(first);
            self.last_group_size = group.len();
            self.run_group(group);
            self.connection.checkpoint_if_needed();
        }
    }

    /// The next write reopens the file.
    fn recover(&mut self) {
        tracing::error!(store = %self.connection.path().display(), "store writer panicked; restarting");
        self.connection.discard_connection();
        self.caches.clear();
    }
}

impl WriterThread {
    /// Takes all queued jobs. Before a sync, the callers of the last group get a short time to submit again: otherwise they
    /// would form a second group, and every other sync would serve only a few jobs.
    fn collect_group(&self, first: WriteJob) -> Vec<WriteJob> {
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
            let deadline = *until
                .get_or_insert_with(|| Instant::now() + self.connection.last_sync_duration() / GROUP_WAIT_DIVISOR);
            let Ok(job) = self.jobs.recv_timeout(deadline.saturating_duration_since(Instant::now())) else { break };
            group.push(job);
        }
        group
    }

    fn run_group(&mut self, group: Vec<WriteJob>) {
        let durability = group.iter().map(job_durability).max().unwrap_or(Durability::KillSafe);
        let committed = self.connection.transact(durability, |connection| {
            let tx = apply::TxWriter::new(connection, &self.quarantine, &mut self.caches, self.floor);
            let mut tx = tx.map_err(|error| error::unavailable(&error))?;
            failpoint::reach("writer: before a write");
            let outputs = group.iter().map(|job| apply::run_task(&mut tx, &job.task, &self.change_feed));
            let outputs = outputs.collect::<Result<Vec<_>, _>>();
            failpoint::reach("writer: before the commit");
            outputs
        });
        if committed.is_err() {
            self.caches.clear();
        }
        // Before the replies: a caller that removes rows then knows how much room it has made.
        self.connection.measure(committed.as_ref().err());
        match committed {
            Ok(outputs) => {
                failpoint::reach("writer: after the commit");
                for (job, output) in group.into_iter().zip(outputs) {
                    let reply = output.map(|apply::TaskOutput { versions, changes, released_keys }| {
                        self.quarantine.forget_released(&released_keys);
                        changes.into_iter().for_each(|(key, version)| self.change_feed.emit(key, version));
                        versions
                    });
                    // The caller may have been dropped; the job is written all the same.
                    let _ = job.reply.send(reply);
                }
                failpoint::reach("writer: after the replies");
            }
            // Nothing was written, and one job may have caused it: retry each job in its own transaction.
            Err(StoreError::Unavailable(_) | StoreError::Damaged { .. })
                if group.len() > 1 && self.connection.is_open() =>
            {
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

fn job_durability(job: &WriteJob) -> Durability {
    match &job.task {
        Task::Commit(batch, _) => batch.durability(),
        // Losing these in a power failure is harmless: expired rows are invisible anyway, and damage is detected again.
        Task::Sweep(..) | Task::Inspect(..) => Durability::KillSafe,
    }
}

fn needs_sync(group: &[WriteJob]) -> bool {
    group.iter().any(|job| job_durability(job) == Durability::PowerSafe)
}
