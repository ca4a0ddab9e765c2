//! Write-behind buffer: acknowledged, unwritten batches in order, and the rows they result in.
//!
//! In: batches, and the inner store's rows they write. Out: the results the inner store would return. Pure except for the
//! change feed; `write_behind` does the locking and `flusher` the writing.

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

use crate::{change_feed::ChangeFeed, epoch};

/// Approximate memory per batch and per row besides the value.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// Rows loaded from the inner store.
pub(super) type LoadedRows = HashMap<RowKey, Option<Row>>;

pub(super) struct WriteBuffer {
    partitions: HashMap<Partition, PartitionBuffer>,
    bytes: usize,
    /// Incremented with every change, so that a stale read is detected.
    generation: u64,
    /// The generation at which rows were last removed: since then the inner store has them.
    last_removal: u64,
    /// The lowest version to assign.
    floor: u64,
    /// The tables and partition kinds that the inner store has accepted before.
    accepted: HashSet<(Table, Discriminant<PartitionKind>)>,
}

/// The pending batches and rows of one partition.
struct PartitionBuffer {
    batches: VecDeque<PendingBatch>,
    rows: HashMap<(Table, SmolStr), BufferedRow>,
    generation: u64,
}

/// A row after the pending writes, and the number of the batch that last wrote it.
struct BufferedRow {
    row: Option<Row>,
    batch_number: u64,
}

/// A batch to be written. Its preconditions are removed, because they were checked, and its rows carry the versions that were
/// returned to the caller.
#[derive(Clone)]
pub(super) struct PendingBatch {
    pub(super) batch: Batch,
    pub(super) now: Timestamp,
    pub(super) number: u64,
    bytes: usize,
}

/// The generations of some partitions, to detect concurrent changes.
pub(super) struct Generations(Vec<(Partition, u64)>);

impl WriteBuffer {
    pub(super) fn new(epoch: u64) -> Self {
        let floor = epoch::version_floor(epoch);
        Self { partitions: HashMap::new(), bytes: 0, generation: 0, last_removal: 0, floor, accepted: HashSet::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the inner store has accepted every table of the batch in this kind of partition before.
    pub(super) fn has_accepted(&self, batch: &Batch) -> bool {
        let kind = discriminant(&batch.partition.kind);
        batch.writes.iter().all(|write| self.accepted.contains(&(write.table, kind)))
    }

    /// Records a batch that was written through to the inner store.
    pub(super) fn record_write_through(&mut self, batch: &Batch) {
        let kind = discriminant(&batch.partition.kind);
        self.accepted.extend(batch.writes.iter().map(|write| (write.table, kind)));
        self.generation += 1;
        self.last_removal = self.generation;
    }

    /// A partition without pending batches has no generation of its own; `last_removal` stands in, because any partition may have
    /// been written since.
    fn generations<'a>(&self, partitions: impl Iterator<Item = &'a Partition>) -> Generations {
        Generations(partitions.map(|partition| (partition.clone(), self.generation_of(partition))).collect())
    }

    fn generation_of(&self, partition: &Partition) -> u64 {
        self.partitions.get(partition).map_or(self.last_removal, |partition_buffer| partition_buffer.generation)
    }

    pub(super) fn is_current(&self, generations: &Generations) -> bool {
        generations.0.iter().all(|(partition, generation)| self.generation_of(partition) == *generation)
    }

    fn buffered_row(&self, key: &RowKey) -> Option<&BufferedRow> {
        self.partitions.get(&key.partition)?.rows.get(&(key.table, key.id.clone()))
    }

    /// The buffered rows, and the keys of those that are not buffered.
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
        // For a partition without pending batches, the inner store returns a consistent snapshot by itself.
        let partitions = keys.iter().map(|key| &key.partition);
        let generations = self.generations(partitions.filter(|partition| self.partitions.contains_key(partition)));
        (found, missing, generations)
    }

    /// The keys of a batch whose rows are not buffered.
    pub(super) fn missing_keys(&self, batch: &Batch) -> (Vec<RowKey>, Generations) {
        let key =
            |write: &Write| RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() };
        let missing = batch.writes.iter().map(key).filter(|key| self.buffered_row(key).is_none()).collect();
        (missing, self.generations(std::iter::once(&batch.partition)))
    }

    /// Acknowledges or refuses a batch. Returns it if the partition has changed since `generations`.
    #[expect(clippy::needless_pass_by_value, reason = "the generations must not be used again")]
    pub(super) fn commit(
        &mut self,
        batch: Batch,
        now: Timestamp,
        stored: LoadedRows,
        generations: Generations,
        change_feed: &ChangeFeed,
    ) -> Result<Result<Vec<u64>, StoreError>, Box<Batch>> {
        if !self.is_current(&generations) {
            return Err(Box::new(batch));
        }
        let key =
            |write: &Write| RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() };
        let context = WriteContext { stamp: batch.stamp, floor: self.floor, now };
        let mut results = Vec::with_capacity(batch.writes.len());
        for write in &batch.writes {
            let key = key(write);
            let row =
                self.buffered_row(&key).map_or_else(|| stored.get(&key).cloned().flatten(), |entry| entry.row.clone());
            match apply_write(write, row.filter(|row| !row.is_expired(now)), context) {
                Ok(result) => results.push(result),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let mut versions = Vec::with_capacity(results.len());
        let mut rows = Vec::new();
        for (write, (after, changed)) in batch.writes.iter().zip(results) {
            versions.push(after.as_ref().map_or(0, |row| row.version.number));
            if changed && change_feed.has_subscribers(write.table) {
                change_feed.emit(key(write), after.as_ref().map(|row| row.version.number));
            }
            rows.push(after);
        }
        self.push(batch, now, rows);
        Ok(Ok(versions))
    }

    /// Adds an acknowledged batch and the rows it results in.
    fn push(&mut self, mut batch: Batch, now: Timestamp, rows: Vec<Option<Row>>) {
        self.generation += 1;
        let number = self.generation;
        let mut bytes = ENTRY_OVERHEAD_BYTES;
        let mut writes = Vec::with_capacity(batch.writes.len());
        let new = || PartitionBuffer { batches: VecDeque::new(), rows: HashMap::new(), generation: 0 };
        let partition_buffer = self.partitions.entry(batch.partition.clone()).or_insert_with(new);
        for (mut write, after) in batch.writes.into_iter().zip(rows) {
            if write.change == Change::Keep {
                continue;
            }
            let row_id = (write.table, write.id.clone());
            write.expect = Expect::Any;
            if let Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. } =
                write.change
            {
                bytes += value.len() + ENTRY_OVERHEAD_BYTES;
                let version = after.as_ref().map_or(0, |row| row.version.number);
                write.change = Change::Restore { value, schema, expires, version };
            }
            writes.push(write);
            partition_buffer.rows.insert(row_id, BufferedRow { row: after, batch_number: number });
        }
        batch.writes = writes;
        partition_buffer.generation = number;
        partition_buffer.batches.push_back(PendingBatch { batch, now, number, bytes });
        self.bytes += bytes;
    }

    /// The partitions with pending batches.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        self.partitions.keys().cloned().collect()
    }

    /// The pending batches of a partition, in order.
    pub(super) fn batches(&self, partition: &Partition) -> Vec<PendingBatch> {
        self.partitions
            .get(partition)
            .map_or_else(Vec::new, |partition_buffer| partition_buffer.batches.iter().cloned().collect())
    }

    /// Removes the first batch of a partition after it was written or finally refused.
    pub(super) fn remove_written(&mut self, written: &PendingBatch) {
        let partition = &written.batch.partition;
        let Some(partition_buffer) = self.partitions.get_mut(partition) else { return };
        partition_buffer.batches.retain(|pending| pending.number != written.number);
        for write in &written.batch.writes {
            let row_id = (write.table, write.id.clone());
            if partition_buffer.rows.get(&row_id).is_some_and(|entry| entry.batch_number == written.number) {
                partition_buffer.rows.remove(&row_id);
            }
        }
        self.bytes -= written.bytes;
        self.generation += 1;
        partition_buffer.generation = self.generation;
        if partition_buffer.batches.is_empty() {
            self.partitions.remove(partition);
        }
        self.last_removal = self.generation;
    }
}

/// Merges the loaded rows into the buffered ones, in the order of the keys.
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

/// The row after a write, and whether watchers get an event; or why the write is refused.
fn apply_write(write: &Write, before: Option<Row>, context: WriteContext) -> Result<(Option<Row>, bool), StoreError> {
    let prior = PriorRow::from_found(before.as_ref().map(|row| (row.version, row.created)));
    let Applied { changed, action, .. } = write.apply(&prior, context)?;
    let after = match (action, &write.change) {
        (
            Action::Put { row_version: version, created },
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
        ) => {
            let (schema, value, expires) = (*schema, value.clone(), *expires);
            Some(Row { version, schema, value, expires, created, updated: context.now })
        }
        (Action::Touch, Change::Touch { expires }) => before.map(|row| Row { expires: *expires, ..row }),
        (Action::Remove, _) => None,
        (Action::Keep | Action::Put { .. } | Action::Touch, _) => before,
    };
    Ok((after, changed))
}
