//! Writer thread: takes all queued jobs, groups batches by partition, and replies after they are written.
//!
//! In: batches, sweeps, and snapshot requests. Out: versions and counts, or an error that says whether nothing was written or
//! the outcome is unknown. `stage` applies batches in memory, `file_writer` writes the resulting files; `snapshot` hard-links
//! all files for a backup.

mod file_writer;
mod snapshot;
mod stage;

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
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
    change_feed::ChangeFeed,
    queue::{self, Queue, Reply},
    worker_thread::Work,
};

/// Maximum number of jobs taken at a time.
const MAX_GROUP_SIZE: usize = 256;

/// Handle of the writer thread. Dropping it waits until all submitted jobs are done.
pub(super) struct Writer {
    queue: Queue<Task>,
    is_poisoned: Arc<AtomicBool>,
}

/// Parameters of the writer thread.
pub(super) struct Setup {
    pub(super) documents: Arc<DocumentStore>,
    /// Whether new files are compressed.
    pub(super) compressed: bool,
    /// The sequence number of the last write.
    pub(super) last_write_seq: u64,
    /// The lowest version to assign.
    pub(super) floor: u64,
    pub(super) change_feed: ChangeFeed,
}

type WriteJob = queue::Job<Task>;

enum Task {
    /// A batch, and its partition key.
    Commit(Batch, Arc<str>, Timestamp),
    /// Replies with one number: how many rows were removed.
    Sweep(usize, Timestamp),
    /// Hard-links all files into this folder; stops early once the flag is set.
    LinkSnapshot(PathBuf, Arc<AtomicBool>, SyncSender<Result<Timestamp, BackupError>>),
}

impl Writer {
    pub(super) fn spawn(
        Setup { documents, compressed, last_write_seq, floor, change_feed }: Setup,
    ) -> io::Result<Self> {
        let file_writer = FileWriter::new(documents.clone(), compressed, last_write_seq);
        let is_poisoned = Arc::<AtomicBool>::default();
        let poisoned = is_poisoned.clone();
        let work = |jobs| {
            let deferred = VecDeque::new();
            WriterThread { jobs, documents, file_writer, floor, change_feed, deferred, is_poisoned }
        };
        Ok(Self { queue: Queue::spawn("toolhub-files", work)?, is_poisoned: poisoned })
    }

    /// Whether the thread panicked: all writes fail until the store is reopened.
    pub(super) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Relaxed)
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        batch.check_duplicate_writes()?;
        if let Some(Write { table, id, .. }) = batch.writes.iter().find(|write| table_index(write.table).is_none()) {
            return Err(StoreError::Refused(format!(
                "it writes the {table} row `{id}`, but the file store supports only the tables state, versions and history; \
                 use SQLite or the in-memory store for {table}"
            )));
        }
        let Some(partition_key) = context::partition_key(&batch.partition) else {
            return Err(StoreError::Refused(format!(
                "it writes to `{}`, but the file store supports only states of threads and shared states; \
                 use SQLite or the in-memory store for others",
                batch.partition
            )));
        };
        let weight = queue::weight(&batch);
        self.queue.submit(Task::Commit(batch, partition_key, now), weight).await
    }

    pub(super) async fn sweep(&self, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.queue.submit(Task::Sweep(limit, now), 1).await.map(|reply| queue::swept_count(&reply))
    }

    /// Hard-links all files into a folder, between two writes; returns the time of the snapshot. Blocks until it is done.
    pub(super) fn link_snapshot(&self, folder: &Path, stop: &Arc<AtomicBool>) -> Result<Timestamp, BackupError> {
        let (reply, result) = mpsc::sync_channel(1);
        self.queue.submit_detached(Task::LinkSnapshot(folder.to_owned(), stop.clone(), reply));
        // The reply is dropped when the writer panicked, or when the store is closing.
        let no_reply = || if stop.load(Ordering::Relaxed) { BackupError::Closed } else { BackupError::Panicked };
        result.recv().unwrap_or_else(|_| Err(no_reply()))
    }
}

struct WriterThread {
    jobs: Receiver<WriteJob>,
    documents: Arc<DocumentStore>,
    file_writer: FileWriter,
    floor: u64,
    change_feed: ChangeFeed,
    /// Jobs other than commits that arrived during a sweep.
    deferred: VecDeque<WriteJob>,
    /// It panicked once, so the index in memory may not match the files.
    is_poisoned: Arc<AtomicBool>,
}

/// Batches on one partition, in order of arrival.
struct PartitionBatches {
    partition_key: Arc<str>,
    batches: Vec<(Batch, Timestamp, Reply)>,
}

impl Work for WriterThread {
    fn run(&mut self) {
        while let Some(first) = self.deferred.pop_front().or_else(|| self.jobs.recv().ok()) {
            let mut group = vec![first];
            group.extend(self.jobs.try_iter().take(MAX_GROUP_SIZE - 1));
            self.run_group(group);
        }
    }

    /// The restarted thread refuses all writes.
    fn recover(&mut self) {
        self.is_poisoned.store(true, Ordering::Relaxed);
        let folder = self.documents.contexts.display();
        tracing::error!(
            %folder,
            "store writer panicked; all writes fail until the store is reopened; restart the process"
        );
    }
}

impl WriterThread {
    fn run_group(&mut self, group: Vec<WriteJob>) {
        let is_poisoned = self.is_poisoned.load(Ordering::Relaxed);
        let mut units: Vec<PartitionBatches> = Vec::new();
        for WriteJob { task, reply, .. } in group {
            match task {
                _ if is_poisoned => {
                    let _ = reply
                        .send(Err(StoreError::Unavailable("the store writer panicked; restart the process".into())));
                }
                Task::Commit(batch, partition_key, now) => {
                    match units.iter_mut().find(|unit| unit.partition_key == partition_key) {
                        Some(unit) => unit.batches.push((batch, now, reply)),
                        None => units.push(PartitionBatches { partition_key, batches: vec![(batch, now, reply)] }),
                    }
                }
                Task::Sweep(limit, now) => {
                    units.drain(..).for_each(|unit| self.commit(unit));
                    let _ = reply.send(self.sweep(limit, now).map(|swept| vec![swept as u64]));
                }
                Task::LinkSnapshot(folder, stop, reply) => {
                    units.drain(..).for_each(|unit| self.commit(unit));
                    let _ = reply.send(self.link_snapshot(&folder, &stop));
                }
            }
        }
        units.into_iter().for_each(|unit| self.commit(unit));
    }

    /// Writes all batches of a partition together; a refused batch does not affect the others.
    fn commit(&mut self, PartitionBatches { partition_key, batches }: PartitionBatches) {
        let mut stage = Stage::new(&self.documents, partition_key.clone(), self.floor);
        let mut applied: Vec<(Batch, Timestamp, Reply, BatchOutput)> = Vec::new();
        for (batch, now, reply) in batches {
            match stage.apply(&batch, now) {
                Ok(output) => applied.push((batch, now, reply, output)),
                Err(refusal) => drop(reply.send(Err(refusal))),
            }
        }
        let (replacements, durability) = stage.replacements();
        match self.file_writer.put(replacements, durability) {
            Ok(()) => applied.into_iter().for_each(|(_, _, reply, output)| {
                self.emit_changes(&output);
                // The caller may have been dropped; the batch is written all the same.
                let _ = reply.send(Ok(output.versions));
            }),
            // Nothing was written, and one batch may have caused it: retry each batch by itself.
            Err(StoreError::Unavailable(_)) if applied.len() > 1 => {
                for (batch, now, reply, _) in applied {
                    self.commit(PartitionBatches {
                        partition_key: partition_key.clone(),
                        batches: vec![(batch, now, reply)],
                    });
                }
            }
            Err(error) => {
                for (_, _, reply, output) in applied {
                    if matches!(error, StoreError::Unknown(_)) {
                        // The new content is visible to readers, only its durability is unknown.
                        self.emit_changes(&output);
                    }
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    fn link_snapshot(&mut self, folder: &Path, stop: &AtomicBool) -> Result<Timestamp, BackupError> {
        // A pending intent was acknowledged, so it belongs to the snapshot.
        self.file_writer.complete_intent().map_err(BackupError::io(&self.documents.contexts))?;
        snapshot::link_all(&self.documents, folder, stop)
    }

    fn emit_changes(&self, output: &BatchOutput) {
        for (key, version) in output.changes.iter().filter(|(key, _)| self.change_feed.has_subscribers(key.table)) {
            self.change_feed.emit(key.clone(), *version);
        }
    }

    fn sweep(&mut self, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
        let (mut swept, mut last) = (0, None);
        while swept < limit {
            let Some(found) = self.documents.lock_index().next_expired(last.as_ref(), now) else { break };
            if let Content::Doc(before) = self.documents.get(&found.1)? {
                let mut doc = Doc::clone(&before);
                swept += doc.sweep(limit - swept, now);
                let (context, doc) = (found.1.clone(), Some(doc).filter(|doc| !doc.is_empty()));
                // Losing this in a power failure is harmless: expired rows are invisible and are swept again.
                let replacement = Replacement { context, before: Some(before), after: doc };
                self.file_writer.put(vec![replacement], Durability::KillSafe)?;
            }
            last = Some(found);
            self.yield_to_commits();
        }
        Ok(swept)
    }

    /// A sweep may write a thousand files; a queued commit waits for at most one of them.
    fn yield_to_commits(&mut self) {
        let queued = self.jobs.try_iter().take(MAX_GROUP_SIZE);
        let (commits, sweeps): (Vec<WriteJob>, Vec<WriteJob>) =
            queued.partition(|job| matches!(job.task, Task::Commit(..)));
        self.deferred.extend(sweeps);
        self.run_group(commits);
    }
}
