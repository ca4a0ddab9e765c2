//! The one thread that writes: takes whatever waits, puts what concerns one partition together, and answers when it is
//! written.
//!
//! In: batches, sweeps, and requests for second names of all files. Out: versions and counts, or an error that says whether nothing was written or nobody knows.
//! `stage` makes batches in memory, `put` makes files of what came out; `moment` gives files second names.

mod moment;
mod put;
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
    put::{Replacement, Workshop},
    stage::{Made, Stage},
};
use super::{
    doc::{Doc, place},
    name,
    shelf::{Content, Shelf},
};
use crate::{
    backup::BackupError,
    queue::{self, Queue, Reply},
    watch::News,
};

/// How many are taken at once at most.
const TOGETHER: usize = 256;

/// The way to the thread. Dropped, it waits until everything that was sent is written.
pub(super) struct Writer(Queue<Task>);

/// What the thread works with.
pub(super) struct Setup {
    pub(super) shelf: Arc<Shelf>,
    /// Whether it compresses.
    pub(super) packed: bool,
    /// The number of the last write.
    pub(super) write: u64,
    /// The lowest version a row is written with.
    pub(super) floor: u64,
    pub(super) news: News,
}

type Job = queue::Job<Task>;

enum Task {
    /// A batch, and the text of its partition.
    Commit(Batch, Arc<str>, Timestamp),
    /// Answered with one number: how many rows went.
    Sweep(usize, Timestamp),
    /// Second names for all files, in this folder; the flag says when they are not wanted any more.
    Copy(PathBuf, Arc<AtomicBool>, SyncSender<Result<Timestamp, BackupError>>),
}

impl Writer {
    pub(super) fn begin(Setup { shelf, packed, write, floor, news }: Setup) -> io::Result<Self> {
        let workshop = Workshop::new(shelf.clone(), packed, write);
        let put_off = VecDeque::new();
        let work = move |waiting| Thread { waiting, shelf, workshop, floor, news, put_off, broken: false }.run();
        Queue::begin("toolhub-files", work).map(Self)
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.written_twice() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        if let Some(Write { table, id, .. }) = batch.writes.iter().find(|write| place(write.table).is_none()) {
            return Err(StoreError::Refused(format!(
                "it writes the {table} row `{id}`, and files keep only what tools remember (state, versions, history); \
                 keep {table} in SQLite or in memory"
            )));
        }
        let Some(home) = name::home(&batch.partition) else {
            return Err(StoreError::Refused(format!(
                "it writes to `{}`, and files keep only what threads remember, or share; keep the rest in SQLite or in memory",
                batch.partition
            )));
        };
        let weight = queue::weight(&batch);
        self.0.ask(Task::Commit(batch, home, now), weight).await
    }

    pub(super) async fn sweep(&self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.0.ask(Task::Sweep(most, now), 1).await.map(|answer| queue::swept(&answer))
    }

    /// Gives all files second names in a folder, between two writes; answers the moment that was. Blocks until it is done.
    pub(super) fn copy(&self, into: &Path, stop: &Arc<AtomicBool>) -> Result<Timestamp, BackupError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.0.tell(Task::Copy(into.to_owned(), stop.clone(), reply));
        answer.recv().unwrap_or(Err(BackupError::Closed))
    }
}

struct Thread {
    waiting: Receiver<Job>,
    shelf: Arc<Shelf>,
    workshop: Workshop,
    floor: u64,
    news: News,
    /// Sweeps that came while another was made.
    put_off: VecDeque<Job>,
    /// It fell over once, and what is known in memory may not be what the files hold.
    broken: bool,
}

/// Batches on one partition, in the order they came.
struct Unit {
    home: Arc<str>,
    batches: Vec<(Batch, Timestamp, Reply)>,
}

impl Thread {
    fn run(mut self) {
        while let Some(first) = self.put_off.pop_front().or_else(|| self.waiting.recv().ok()) {
            let mut group = vec![first];
            group.extend(self.waiting.try_iter().take(TOGETHER - 1));
            let served = panic::catch_unwind(AssertUnwindSafe(|| self.serve(group)));
            if served.is_err() {
                tracing::error!("the writer of the store fell over; nothing more is written until it is opened again");
                self.broken = true;
            }
        }
    }

    fn serve(&mut self, group: Vec<Job>) {
        let mut units: Vec<Unit> = Vec::new();
        for Job { task, reply, .. } in group {
            match task {
                _ if self.broken => {
                    let _ = reply.send(Err(StoreError::Unavailable("the store must be opened again".into())));
                }
                Task::Commit(batch, home, now) => match units.iter_mut().find(|unit| unit.home == home) {
                    Some(unit) => unit.batches.push((batch, now, reply)),
                    None => units.push(Unit { home, batches: vec![(batch, now, reply)] }),
                },
                Task::Sweep(most, now) => {
                    units.drain(..).for_each(|unit| self.commit(unit));
                    let _ = reply.send(self.sweep(most, now).map(|swept| vec![swept as u64]));
                }
                Task::Copy(into, stop, copied) => {
                    units.drain(..).for_each(|unit| self.commit(unit));
                    let _ = copied.send(self.copy(&into, &stop));
                }
            }
        }
        units.into_iter().for_each(|unit| self.commit(unit));
    }

    /// All batches of a unit are written together; those that are refused take no other with them.
    fn commit(&mut self, Unit { home, batches }: Unit) {
        let mut stage = Stage::new(&self.shelf, home.clone(), self.floor);
        let mut made: Vec<(Batch, Timestamp, Reply, Made)> = Vec::new();
        for (batch, now, reply) in batches {
            match stage.make(&batch, now) {
                Ok(done) => made.push((batch, now, reply, done)),
                Err(refusal) => drop(reply.send(Err(refusal))),
            }
        }
        let (replacements, level) = stage.replacements();
        match self.workshop.put(replacements, level) {
            Ok(()) => made.into_iter().for_each(|(_, _, reply, done)| {
                self.tell(&done);
                // Nobody may wait for it any more; it is written all the same.
                let _ = reply.send(Ok(done.versions));
            }),
            // Nothing was written, because of one of them: each for itself.
            Err(StoreError::Unavailable(_)) if made.len() > 1 => {
                for (batch, now, reply, _) in made {
                    self.commit(Unit { home: home.clone(), batches: vec![(batch, now, reply)] });
                }
            }
            Err(error) => {
                for (_, _, reply, done) in made {
                    if matches!(error, StoreError::Unknown(_)) {
                        // It is there for whoever looks.
                        self.tell(&done);
                    }
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    fn copy(&mut self, into: &Path, stop: &AtomicBool) -> Result<Timestamp, BackupError> {
        // What is owed is acknowledged, and belongs to the moment.
        self.workshop.settle().map_err(BackupError::io(&self.shelf.contexts))?;
        moment::link_all(&self.shelf, into, stop)
    }

    fn tell(&self, made: &Made) {
        for (key, version) in made.news.iter().filter(|(key, _)| self.news.is_heard(key.table)) {
            self.news.tell(key.clone(), *version);
        }
    }

    fn sweep(&mut self, most: usize, now: Timestamp) -> Result<usize, StoreError> {
        let (mut swept, mut last) = (0, None);
        while swept < most {
            let Some(found) = self.shelf.lock().expired(last.as_ref(), now) else { break };
            if let Content::Doc(before) = self.shelf.get(&found.1)? {
                let mut doc = Doc::clone(&before);
                swept += doc.sweep(most - swept, now);
                let (context, doc) = (found.1.clone(), Some(doc).filter(|doc| !doc.is_empty()));
                // What is expired is gone to everybody; after a loss of power it is swept again.
                let one = Replacement { context, before: Some(before), now: doc };
                self.workshop.put(vec![one], Durability::KillSafe)?;
            }
            last = Some(found);
            self.let_others_write();
        }
        Ok(swept)
    }

    /// A sweep may write a thousand files. Nobody who waits to write waits for more than one of them.
    fn let_others_write(&mut self) {
        let waiting = self.waiting.try_iter().take(TOGETHER);
        let (commits, sweeps): (Vec<Job>, Vec<Job>) = waiting.partition(|job| matches!(job.task, Task::Commit(..)));
        self.put_off.extend(sweeps);
        self.serve(commits);
    }
}
