//! The one thread that writes: takes whatever waits, puts what concerns one partition together, and answers when it is
//! written.
//!
//! In: batches, sweeps, and requests for second names of all files. Out: versions and counts, or an error that says whether nothing was written or nobody knows.
//! `stage` makes batches in memory, `put` makes files of what came out; `moment` gives files second names.

mod file_writer;
mod snapshot;
mod stage;

use std::{
    collections::VecDeque,
    io,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{self, Receiver, SyncSender},
    },
};

use toolhub_storage::{
    backend::{Batch, Durability, StoreError, Write},
    clock::Timestamp,
};

use self::{
    file_writer::{FileWriter, Replacement},
    stage::{BatchOutput, Stage},
};
use super::{
    context,
    doc::{Doc, table_index},
    document_store::{Content, DocumentStore},
};
use crate::{
    backup::BackupError,
    queue::{self, Queue, Reply},
    watch::ChangeFeed,
};

/// How many are taken at once at most.
const MAX_GROUP_SIZE: usize = 256;

/// The way to the thread. Dropped, it waits until everything that was sent is written.
pub(super) struct Writer(Queue<Task>);

/// What the thread works with.
pub(super) struct Setup {
    pub(super) documents: Arc<DocumentStore>,
    /// Whether it compresses.
    pub(super) compressed: bool,
    /// The number of the last write.
    pub(super) last_write_seq: u64,
    /// The lowest version a row is written with.
    pub(super) floor: u64,
    pub(super) change_feed: ChangeFeed,
}

type Job = queue::Job<Task>;

enum Task {
    /// A batch, and the text of its partition.
    Commit(Batch, Arc<str>, Timestamp),
    /// Answered with one number: how many rows went.
    Sweep(usize, Timestamp),
    /// Second names for all files, in this folder; the flag says when they are not wanted any more.
    LinkSnapshot(PathBuf, Arc<AtomicBool>, SyncSender<Result<Timestamp, BackupError>>),
}

impl Writer {
    pub(super) fn spawn(
        Setup { documents: shelf, compressed: packed, last_write_seq: write, floor, change_feed: news }: Setup,
    ) -> io::Result<Self> {
        let workshop = FileWriter::new(shelf.clone(), packed, write);
        let put_off = VecDeque::new();
        let work = move |waiting| {
            WriterThread {
                jobs: waiting,
                documents: shelf,
                file_writer: workshop,
                floor,
                change_feed: news,
                deferred: put_off,
                is_poisoned: false,
            }
            .run();
        };
        Queue::spawn("toolhub-files", work).map(Self)
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.find_duplicate_write() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        if let Some(Write { table, id, .. }) = batch.writes.iter().find(|write| table_index(write.table).is_none()) {
            return Err(StoreError::Refused(format!(
                "it writes the {table} row `{id}`, and files keep only what tools remember (state, versions, history); \
                 keep {table} in SQLite or in memory"
            )));
        }
        let Some(home) = context::partition_key(&batch.partition) else {
            return Err(StoreError::Refused(format!(
                "it writes to `{}`, and files keep only what threads remember, or share; keep the rest in SQLite or in memory",
                batch.partition
            )));
        };
        let weight = queue::weight(&batch);
        self.0.submit(Task::Commit(batch, home, now), weight).await
    }

    pub(super) async fn sweep(&self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.0.submit(Task::Sweep(most, now), 1).await.map(|answer| queue::swept_count(&answer))
    }

    /// Gives all files second names in a folder, between two writes; answers the moment that was. Blocks until it is done.
    pub(super) fn link_snapshot(&self, into: &Path, stop: &Arc<AtomicBool>) -> Result<Timestamp, BackupError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.0.submit_detached(Task::LinkSnapshot(into.to_owned(), stop.clone(), reply));
        answer.recv().unwrap_or(Err(BackupError::Closed))
    }
}

struct WriterThread {
    jobs: Receiver<Job>,
    documents: Arc<DocumentStore>,
    file_writer: FileWriter,
    floor: u64,
    change_feed: ChangeFeed,
    /// Sweeps that came while another was made.
    deferred: VecDeque<Job>,
    /// It fell over once, and what is known in memory may not be what the files hold.
    is_poisoned: bool,
}

/// Batches on one partition, in the order they came.
struct PartitionBatches {
    partition_key: Arc<str>,
    batches: Vec<(Batch, Timestamp, Reply)>,
}

impl WriterThread {
    fn run(mut self) {
        while let Some(first) = self.deferred.pop_front().or_else(|| self.jobs.recv().ok()) {
            let mut group = vec![first];
            group.extend(self.jobs.try_iter().take(MAX_GROUP_SIZE - 1));
            let served = panic::catch_unwind(AssertUnwindSafe(|| self.run_group(group)));
            if served.is_err() {
                tracing::error!("the writer of the store fell over; nothing more is written until it is opened again");
                self.is_poisoned = true;
            }
        }
    }

    fn run_group(&mut self, group: Vec<Job>) {
        let mut units: Vec<PartitionBatches> = Vec::new();
        for Job { task, reply, .. } in group {
            match task {
                _ if self.is_poisoned => {
                    let _ = reply.send(Err(StoreError::Unavailable("the store must be opened again".into())));
                }
                Task::Commit(batch, home, now) => match units.iter_mut().find(|unit| unit.partition_key == home) {
                    Some(unit) => unit.batches.push((batch, now, reply)),
                    None => units.push(PartitionBatches { partition_key: home, batches: vec![(batch, now, reply)] }),
                },
                Task::Sweep(most, now) => {
                    units.drain(..).for_each(|unit| self.commit(unit));
                    let _ = reply.send(self.sweep(most, now).map(|swept| vec![swept as u64]));
                }
                Task::LinkSnapshot(into, stop, copied) => {
                    units.drain(..).for_each(|unit| self.commit(unit));
                    let _ = copied.send(self.link_snapshot(&into, &stop));
                }
            }
        }
        units.into_iter().for_each(|unit| self.commit(unit));
    }

    /// All batches of a unit are written together; those that are refused take no other with them.
    fn commit(&mut self, PartitionBatches { partition_key: home, batches }: PartitionBatches) {
        let mut stage = Stage::new(&self.documents, home.clone(), self.floor);
        let mut made: Vec<(Batch, Timestamp, Reply, BatchOutput)> = Vec::new();
        for (batch, now, reply) in batches {
            match stage.apply(&batch, now) {
                Ok(done) => made.push((batch, now, reply, done)),
                Err(refusal) => drop(reply.send(Err(refusal))),
            }
        }
        let (replacements, level) = stage.replacements();
        match self.file_writer.put(replacements, level) {
            Ok(()) => made.into_iter().for_each(|(_, _, reply, done)| {
                self.emit_changes(&done);
                // Nobody may wait for it any more; it is written all the same.
                let _ = reply.send(Ok(done.versions));
            }),
            // Nothing was written, because of one of them: each for itself.
            Err(StoreError::Unavailable(_)) if made.len() > 1 => {
                for (batch, now, reply, _) in made {
                    self.commit(PartitionBatches { partition_key: home.clone(), batches: vec![(batch, now, reply)] });
                }
            }
            Err(error) => {
                for (_, _, reply, done) in made {
                    if matches!(error, StoreError::Unknown(_)) {
                        // It is there for whoever looks.
                        self.emit_changes(&done);
                    }
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    fn link_snapshot(&mut self, into: &Path, stop: &AtomicBool) -> Result<Timestamp, BackupError> {
        // What is owed is acknowledged, and belongs to the moment.
        self.file_writer.complete_intent().map_err(BackupError::io(&self.documents.contexts))?;
        snapshot::link_all(&self.documents, into, stop)
    }

    fn emit_changes(&self, made: &BatchOutput) {
        for (key, version) in made.changes.iter().filter(|(key, _)| self.change_feed.has_subscribers(key.table)) {
            self.change_feed.emit(key.clone(), *version);
        }
    }

    fn sweep(&mut self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        let (mut swept, mut last) = (0, None);
        while swept < most {
            let Some(found) = self.documents.lock_index().next_expired(last.as_ref(), now) else { break };
            if let Content::Doc(before) = self.documents.get(&found.1)? {
                let mut doc = Doc::clone(&before);
                swept += doc.sweep(most - swept, now);
                let (context, doc) = (found.1.clone(), Some(doc).filter(|doc| !doc.is_empty()));
                // What is expired is gone to everybody; after a loss of power it is swept again.
                let one = Replacement { context, before: Some(before), after: doc };
                self.file_writer.put(vec![one], Durability::KillSafe)?;
            }
            last = Some(found);
            self.yield_to_commits();
        }
        Ok(swept)
    }

    /// A sweep may write a thousand files. Nobody who waits to write waits for more than one of them.
    fn yield_to_commits(&mut self) {
        let waiting = self.jobs.try_iter().take(MAX_GROUP_SIZE);
        let (commits, sweeps): (Vec<Job>, Vec<Job>) = waiting.partition(|job| matches!(job.task, Task::Commit(..)));
        self.deferred.extend(sweeps);
        self.run_group(commits);
    }
}
