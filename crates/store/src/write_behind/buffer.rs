//! What was acknowledged and is not written yet: batches in their order, and the rows as they will be.
//!
//! In: batches, and what the store behind has of the rows they write. Out: the answers that store would give. Pure but for
//! the news; who holds the lock and who writes is decided elsewhere.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem::{Discriminant, discriminant},
};

use smol_str::SmolStr;
use toolhub_storage::{
    backend::{
        Action, Applied, Batch, Change, Expect, Partition, PartitionKind, PriorRow, Row, RowKey, StoreError, Table,
        Write, WriteContext,
    },
    clock::Timestamp,
};

use crate::{epoch, watch::ChangeFeed};

/// What a batch takes besides its records, about.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// The rows of a store behind.
pub(super) type LoadedRows = HashMap<RowKey, Option<Row>>;

pub(super) struct WriteBuffer {
    partitions: HashMap<Partition, PartitionBuffer>,
    bytes: usize,
    /// Grows with every change, so that a change is noticed.
    generation: u64,
    /// The count when rows last left: from then on the store behind has them.
    last_removal: u64,
    /// The lowest version a row is written with.
    floor: u64,
    /// What the store behind has taken: tables, and the sorts of partitions they lie in.
    accepted: HashSet<(Table, Discriminant<PartitionKind>)>,
}

/// What waits in one partition.
struct PartitionBuffer {
    batches: VecDeque<PendingBatch>,
    rows: HashMap<(Table, SmolStr), BufferedRow>,
    generation: u64,
}

/// A row as it will be, and the batch that makes it so.
struct BufferedRow {
    row: Option<Row>,
    by: u64,
}

/// A batch to be written. It expects nothing, since that was seen to, and its rows get the versions that were told.
#[derive(Clone)]
pub(super) struct PendingBatch {
    pub(super) batch: Batch,
    pub(super) now: Timestamp,
    pub(super) number: u64,
    bytes: usize,
}

/// How things stood in some partitions.
pub(super) struct Generations(Vec<(Partition, u64)>);

impl WriteBuffer {
    pub(super) fn new(epoch: u64) -> Self {
        let floor = epoch::version_floor(epoch);
        Self { partitions: HashMap::new(), bytes: 0, generation: 0, last_removal: 0, floor, accepted: HashSet::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the store behind has taken every sort of row that is in the batch before.
    pub(super) fn has_accepted(&self, batch: &Batch) -> bool {
        let sort = discriminant(&batch.partition.kind);
        batch.writes.iter().all(|write| self.accepted.contains(&(write.table, sort)))
    }

    /// The store behind has taken a batch that did not wait here.
    pub(super) fn record_write_through(&mut self, batch: &Batch) {
        let sort = discriminant(&batch.partition.kind);
        self.accepted.extend(batch.writes.iter().map(|write| (write.table, sort)));
        self.generation += 1;
        self.last_removal = self.generation;
    }

    /// A partition in which nothing waits has no count of its own: anything may have been written in it since.
    fn generations<'a>(&self, partitions: impl Iterator<Item = &'a Partition>) -> Generations {
        Generations(partitions.map(|partition| (partition.clone(), self.generation_of(partition))).collect())
    }

    fn generation_of(&self, partition: &Partition) -> u64 {
        self.partitions.get(partition).map_or(self.last_removal, |drawer| drawer.generation)
    }

    pub(super) fn is_current(&self, moment: &Generations) -> bool {
        moment.0.iter().all(|(partition, changed)| self.generation_of(partition) == *changed)
    }

    fn buffered_row(&self, key: &RowKey) -> Option<&BufferedRow> {
        self.partitions.get(&key.partition)?.rows.get(&(key.table, key.id.clone()))
    }

    /// The rows that wait here, and the keys of those that do not.
    pub(super) fn lookup(&self, keys: &[RowKey], now: Timestamp) -> (Vec<Option<Row>>, Vec<RowKey>, Generations) {
        let mut missing = Vec::new();
        let found = keys.iter().map(|key| match self.buffered_row(key) {
            Some(entry) => entry.row.clone().filter(|row| !row.is_expired(now)),
            None => {
                missing.push(key.clone());
                None
            }
        });
        let found = found.collect();
        // Where nothing waits, the store behind gives all rows of one moment by itself.
        let partitions = keys.iter().map(|key| &key.partition);
        let moment = self.generations(partitions.filter(|partition| self.partitions.contains_key(partition)));
        (found, missing, moment)
    }

    /// The keys of a batch whose rows do not wait here.
    pub(super) fn missing_keys(&self, batch: &Batch) -> (Vec<RowKey>, Generations) {
        let key =
            |write: &Write| RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() };
        let missing = batch.writes.iter().map(key).filter(|key| self.buffered_row(key).is_none()).collect();
        (missing, self.generations(std::iter::once(&batch.partition)))
    }

    /// Acknowledges a batch, or refuses it. Gives it back when things have changed since the moment.
    #[expect(clippy::needless_pass_by_value, reason = "a moment is over when it was used")]
    pub(super) fn commit(
        &mut self,
        batch: Batch,
        now: Timestamp,
        behind: LoadedRows,
        moment: Generations,
        news: &ChangeFeed,
    ) -> Result<Result<Vec<u64>, StoreError>, Box<Batch>> {
        if !self.is_current(&moment) {
            return Err(Box::new(batch));
        }
        let key =
            |write: &Write| RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() };
        let writing = WriteContext { stamp: batch.stamp, floor: self.floor, now };
        let mut made = Vec::with_capacity(batch.writes.len());
        for write in &batch.writes {
            let key = key(write);
            let row =
                self.buffered_row(&key).map_or_else(|| behind.get(&key).cloned().flatten(), |entry| entry.row.clone());
            match apply_write(write, row.filter(|row| !row.is_expired(now)), writing) {
                Ok(change) => made.push(change),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let mut versions = Vec::with_capacity(made.len());
        let mut changes = Vec::new();
        for (write, (after, told)) in batch.writes.iter().zip(made) {
            versions.push(after.as_ref().map_or(0, |row| row.version.number));
            if told && news.has_subscribers(write.table) {
                news.emit(key(write), after.as_ref().map(|row| row.version.number));
            }
            changes.push(after);
        }
        self.push(batch, now, changes);
        Ok(Ok(versions))
    }

    /// Notes a batch that was acknowledged, and the rows it makes.
    fn push(&mut self, mut batch: Batch, now: Timestamp, after: Vec<Option<Row>>) {
        self.generation += 1;
        let number = self.generation;
        let mut bytes = ENTRY_OVERHEAD_BYTES;
        let mut writes = Vec::with_capacity(batch.writes.len());
        let new = || PartitionBuffer { batches: VecDeque::new(), rows: HashMap::new(), generation: 0 };
        let drawer = self.partitions.entry(batch.partition.clone()).or_insert_with(new);
        for (mut write, after) in batch.writes.into_iter().zip(after) {
            if write.change == Change::Keep {
                continue;
            }
            let name = (write.table, write.id.clone());
            write.expect = Expect::Any;
            if let Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. } =
                write.change
            {
                bytes += value.len() + ENTRY_OVERHEAD_BYTES;
                let version = after.as_ref().map_or(0, |row| row.version.number);
                write.change = Change::Restore { value, schema, expires, version };
            }
            writes.push(write);
            drawer.rows.insert(name, BufferedRow { row: after, by: number });
        }
        batch.writes = writes;
        drawer.generation = number;
        drawer.batches.push_back(PendingBatch { batch, now, number, bytes });
        self.bytes += bytes;
    }

    /// The partitions in which something waits.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        self.partitions.keys().cloned().collect()
    }

    /// The batches that wait in a partition, in their order.
    pub(super) fn batches(&self, partition: &Partition) -> Vec<PendingBatch> {
        self.partitions.get(partition).map_or_else(Vec::new, |drawer| drawer.batches.iter().cloned().collect())
    }

    /// The first batch of a partition is written, or never will be.
    pub(super) fn remove_written(&mut self, written: &PendingBatch) {
        let partition = &written.batch.partition;
        let Some(drawer) = self.partitions.get_mut(partition) else { return };
        drawer.batches.retain(|pending| pending.number != written.number);
        for write in &written.batch.writes {
            let name = (write.table, write.id.clone());
            if drawer.rows.get(&name).is_some_and(|entry| entry.by == written.number) {
                drawer.rows.remove(&name);
            }
        }
        self.bytes -= written.bytes;
        self.generation += 1;
        drawer.generation = self.generation;
        if drawer.batches.is_empty() {
            self.partitions.remove(partition);
        }
        self.last_removal = self.generation;
    }
}

/// Puts what was loaded between what was found.
pub(super) fn merge_loaded(
    keys: &[RowKey],
    found: Vec<Option<Row>>,
    missing: Vec<RowKey>,
    loaded: Vec<Option<Row>>,
) -> Vec<Option<Row>> {
    let loaded: LoadedRows = missing.into_iter().zip(loaded).collect();
    let either = |(key, found): (&RowKey, Option<Row>)| found.or_else(|| loaded.get(key).cloned().flatten());
    keys.iter().zip(found).map(either).collect()
}

/// The row after a write, and whether watchers are told; or why the write is refused.
fn apply_write(write: &Write, before: Option<Row>, writing: WriteContext) -> Result<(Option<Row>, bool), StoreError> {
    let head = PriorRow::from_found(before.as_ref().map(|row| (row.version, row.created)));
    let Applied { changed, action, .. } = write.apply(&head, writing)?;
    let after = match (action, &write.change) {
        (
            Action::Put { row_version: seen, created },
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
        ) => {
            let (schema, value, expires) = (*schema, value.clone(), *expires);
            Some(Row { version: seen, schema, value, expires, created, updated: writing.now })
        }
        (Action::Touch, Change::Touch { expires }) => before.map(|row| Row { expires: *expires, ..row }),
        (Action::Remove, _) => None,
        (Action::Keep | Action::Put { .. } | Action::Touch, _) => before,
    };
    Ok((after, changed))
}
