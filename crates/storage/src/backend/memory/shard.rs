//! One shard of the in-memory backend, under one lock: the partitions whose keys hash to it.
//!
//! In: a partition key and its hash, a change. Out: partitions, versions. Partitions are stored in a dense vector and found
//! through a hash table of `u32` indices: a hash table of the partitions themselves would be half empty and could not be
//! walked in steps.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;

use super::{
    chunked_vec::ChunkedVec,
    id_index::IdIndex,
    packed_row::{self, PackedRow, RowId},
    partition_rows::{NEVER, PartitionRows},
};
use crate::backend::{Action, Applied, Change, Expect, PriorRow, Row, StoreError, Table, Write, WriteContext};
use toolhub_types::timestamp::Timestamp;

/// How many partitions a sweep visits before it releases the lock.
const SWEEP_STEP: usize = 256;

pub(super) struct Shard {
    /// The same hasher in all shards of a store.
    hasher: RandomState,
    /// Maps a partition key to its index in `partitions`.
    index: HashTable<u32>,
    partitions: ChunkedVec<PartitionRows>,
    /// The same index in all shards of a store.
    ids: Arc<IdIndex>,
    /// Rows per table in this shard, so that a scan can skip a shard without rows of its table.
    counts: [usize; Table::ALL.len()],
    /// Approximate memory of the trimmable rows in this shard.
    trimmable_bytes: usize,
    /// No row of the shard expires before this.
    next_expiry: Timestamp,
    /// The position of an unfinished sweep. It walks from the end to the beginning: `swap_remove` moves only partitions
    /// that were visited already, and rows added meanwhile update `next_expiry` when they are added.
    sweep: Option<SweepPass>,
}

struct SweepPass {
    /// All partitions from this index on have been visited.
    at: usize,
    /// None of their rows expires before this.
    next_expiry: Timestamp,
}

impl Shard {
    pub(super) fn new(hasher: RandomState, ids: Arc<IdIndex>) -> Self {
        let counts = Table::ALL.map(|_| 0);
        Self {
            hasher,
            index: HashTable::new(),
            partitions: ChunkedVec::default(),
            ids,
            counts,
            trimmable_bytes: 0,
            next_expiry: NEVER,
            sweep: None,
        }
    }

    pub(super) fn find(&self, hash: u64, partition_key: &[u8]) -> Option<usize> {
        let at = self.index.find(hash, |at| self.partitions[*at as usize].key() == partition_key);
        at.map(|at| *at as usize)
    }

    /// Approximate memory of the trimmable rows.
    pub(super) fn trimmable_bytes(&self) -> usize {
        self.trimmable_bytes
    }

    pub(super) fn partition(&self, at: usize) -> &PartitionRows {
        &self.partitions[at]
    }

    /// The partitions that may hold rows of a table: all or none.
    pub(super) fn partitions_with(&self, table: Table) -> impl Iterator<Item = &PartitionRows> {
        self.partitions.iter().take(if self.counts[table as usize] > 0 { usize::MAX } else { 0 })
    }

    /// Checks the precondition of a write.
    pub(super) fn check_expectation(&self, at: Option<usize>, write: &Write, now: Timestamp) -> Result<(), StoreError> {
        if write.expect == Expect::Any {
            return Ok(());
        }
        write.check(&self.prior_row(at, RowId { table: write.table, id: &write.id }, now))
    }

    /// The row before a write.
    fn prior_row(&self, at: Option<usize>, row_id: RowId<'_>, now: Timestamp) -> PriorRow {
        let meta = self.get(at, row_id).and_then(|packed| packed.meta_at(now));
        PriorRow::from_found(meta.map(|meta| (meta.version, meta.created)))
    }

    /// The row, expired or not.
    pub(super) fn get(&self, at: Option<usize>, row_id: RowId<'_>) -> Option<&PackedRow> {
        self.partitions[at?].get(row_id)
    }

    /// Applies a change in the partition `at`, which is created if needed; `terms` is the text of the index terms. Returns the row's version afterwards and whether
    /// anything changed.
    pub(super) fn apply(
        &mut self,
        at: &mut Option<usize>,
        partition_key: &[u8],
        row_id: RowId<'_>,
        change: &Change,
        terms: &str,
        context: WriteContext,
    ) -> (u64, bool) {
        match change {
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. } => {
                let (mut new_version, schema, expires) = (0, *schema, *expires);
                // One lookup finds both the row and its position.
                self.put(at, partition_key, row_id, expires, terms, |found| {
                    let found = found.and_then(|packed| packed.meta_at(context.now));
                    let before = PriorRow::from_found(found.map(|meta| (meta.version, meta.created)));
                    let applied = change.apply(&before, context);
                    new_version = applied.version;
                    let Action::Put { row_version: version, created } = applied.action else {
                        unreachable!("a put stores a value")
                    };
                    Row { version, schema, value: value.clone(), expires, created, updated: context.now }
                });
                (new_version, true)
            }
            Change::Touch { .. } | Change::Keep | Change::Remove => {
                self.apply_without_value(at, partition_key, row_id, change, context)
            }
        }
    }

    /// Applies a change that stores no value.
    fn apply_without_value(
        &mut self,
        at: &mut Option<usize>,
        partition_key: &[u8],
        row_id: RowId<'_>,
        change: &Change,
        context: WriteContext,
    ) -> (u64, bool) {
        let Applied { version, changed, action } = change.apply(&self.prior_row(*at, row_id, context.now), context);
        match (action, change) {
            (Action::Touch, Change::Touch { expires }) => {
                let found = self.get(*at, row_id);
                if let Some((row, terms)) =
                    found.and_then(|packed| Some((packed.row_at(context.now)?, packed.terms().to_owned())))
                {
                    self.put(at, partition_key, row_id, *expires, &terms, |_| Row { expires: *expires, ..row });
                }
            }
            (Action::Remove, _) => {
                if let Some(removed) = at.and_then(|at| self.partitions[at].remove(row_id)) {
                    self.counts[row_id.table as usize] -= 1;
                    self.trimmable_bytes -= removed.trimmable_bytes();
                    self.ids.remove(row_id.table, row_id.id.as_bytes(), partition_key);
                }
            }
            (Action::Keep | Action::Put { .. } | Action::Touch, _) => {}
        }
        (version, changed)
    }

    fn put(
        &mut self,
        at: &mut Option<usize>,
        partition_key: &[u8],
        row_id: RowId<'_>,
        expires: Option<Timestamp>,
        terms: &str,
        make: impl FnOnce(Option<&PackedRow>) -> Row,
    ) {
        let expires = expires.unwrap_or(NEVER);
        self.next_expiry = self.next_expiry.min(expires);
        if let Some(sweep) = &mut self.sweep {
            sweep.next_expiry = sweep.next_expiry.min(expires);
        }
        let (mut before, mut after) = (0, 0);
        let make = |found: Option<&PackedRow>| {
            before = found.map_or(0, PackedRow::trimmable_bytes);
            let row = make(found);
            after = packed_row::trimmable_bytes(row_id.table, row_id.id.len(), row.value.len());
            row
        };
        let is_new = match *at {
            Some(at) => self.partitions[at].put(row_id, terms, make),
            None => {
                *at = Some(self.add(PartitionRows::single(partition_key, row_id, terms, make(None))));
                true
            }
        };
        self.trimmable_bytes = self.trimmable_bytes + after - before;
        if is_new {
            self.counts[row_id.table as usize] += 1;
            self.ids.insert(row_id.table, row_id.id.as_bytes(), partition_key);
        }
    }

    fn add(&mut self, partition: PartitionRows) -> usize {
        let at = self.partitions.len();
        let number = u32::try_from(at).expect("2^32 partitions do not fit into memory");
        self.partitions.push(partition);
        let hash = |at: usize| self.hasher.hash_one(self.partitions[at].key());
        self.index.insert_unique(hash(at), number, |at| hash(*at as usize));
        at
    }

    /// Removes the partition if it is empty.
    pub(super) fn remove_if_empty(&mut self, at: usize) {
        if !self.partitions[at].is_empty() {
            return;
        }
        let last = self.partitions.len() - 1;
        let hash = |partitions: &ChunkedVec<PartitionRows>, at: usize| self.hasher.hash_one(partitions[at].key());
        if let Ok(entry) = self.index.find_entry(hash(&self.partitions, at), |number| *number as usize == at) {
            entry.remove();
        }
        if let Some(number) = self.index.find_mut(hash(&self.partitions, last), |number| *number as usize == last) {
            *number = at as u32;
        }
        self.partitions.swap_remove(at);
        // Give back capacity after a burst.
        if self.index.capacity() > 4 * self.index.len() {
            self.index.shrink_to_fit(|at| hash(&self.partitions, *at as usize));
        }
    }

    /// Removes at most `limit` expired rows, in one step of a pass over all partitions. Returns how many, and whether the
    /// pass is complete.
    pub(super) fn sweep(&mut self, limit: usize, now: Timestamp) -> (usize, bool) {
        let mut pass = match self.sweep.take() {
            Some(pass) => SweepPass { at: pass.at.min(self.partitions.len()), ..pass },
            None if self.next_expiry > now => return (0, true),
            None => SweepPass { at: self.partitions.len(), next_expiry: NEVER },
        };
        let mut swept = 0;
        for _ in 0..SWEEP_STEP {
            let Some(at) = pass.at.checked_sub(1).filter(|_| swept < limit) else { break };
            let (partition, counts, bytes) = (&mut self.partitions[at], &mut self.counts, &mut self.trimmable_bytes);
            partition.sweep(limit - swept, now, |partition_key, removed| {
                counts[removed.table() as usize] -= 1;
                *bytes -= removed.trimmable_bytes();
                self.ids.remove(removed.table(), removed.sort_key().1, partition_key);
                swept += 1;
            });
            let next_expiry = partition.next_expiry();
            if next_expiry <= now {
                // More rows have expired here than the limit allows.
                break;
            }
            pass = SweepPass { at, next_expiry: pass.next_expiry.min(next_expiry) };
            self.remove_if_empty(at);
        }
        if pass.at > 0 {
            self.sweep = Some(pass);
            return (swept, false);
        }
        // Rows that were added meanwhile are included in the pass's `next_expiry`.
        self.next_expiry = pass.next_expiry;
        (swept, self.next_expiry > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(100);

    /// Four sweep steps of partitions, each with one row of the given expiry.
    fn shard(expires: impl Fn(usize) -> Option<i64>) -> Shard {
        let mut shard = Shard::new(RandomState::new(), Arc::new(IdIndex::new()));
        for number in 0..4 * SWEEP_STEP {
            let expires = expires(number).map(Timestamp::from_millis);
            let change = Change::Put { value: [].into(), schema: 1, expires };
            let (partition_key, row_id) = (format!("main/t/{number}"), RowId { table: Table::State, id: "a" });
            shard.apply(
                &mut None,
                partition_key.as_bytes(),
                row_id,
                &change,
                "",
                WriteContext { stamp: 1, floor: 0, now: NOW },
            );
        }
        shard
    }

    /// How many rows each step of a sweep removed, until the pass was complete.
    fn steps(shard: &mut Shard, limit: usize, now: i64) -> Vec<usize> {
        let mut steps = Vec::new();
        loop {
            let (swept, done) = shard.sweep(limit, Timestamp::from_millis(now));
            steps.push(swept);
            if done {
                return steps;
            }
        }
    }

    #[test]
    fn a_shard_in_which_nothing_can_have_expired_is_not_walked() {
        assert_eq!(steps(&mut shard(|_| None), 9, 1_000), [0]);
        let mut later = shard(|number| Some(500 + number as i64));
        assert_eq!(steps(&mut later, 9, 499), [0]);
        assert_eq!(steps(&mut later, 9, 500), [0, 0, 0, 1], "the soonest lies at the end of the walk");
        assert_eq!(steps(&mut later, 9, 500), [0], "and then the next one is known");
    }

    #[test]
    fn a_walk_that_stops_early_goes_on_where_it_stopped() {
        let mut shard = shard(|number| Some(if number % 256 == 255 { 200 } else { 900 }));
        assert_eq!(shard.sweep(1, Timestamp::from_millis(300)), (1, false));
        assert_eq!(steps(&mut shard, 1, 300), [1, 1, 1, 0]);
        assert_eq!(shard.partitions.len(), 4 * SWEEP_STEP - 4);
    }

    #[test]
    fn what_comes_while_a_walk_is_under_way_is_not_forgotten() {
        let mut shard = shard(|_| Some(200));
        assert_eq!(shard.sweep(5, Timestamp::from_millis(200)), (5, false));
        let change = Change::Put { value: [].into(), schema: 1, expires: Some(Timestamp::from_millis(250)) };
        shard.apply(
            &mut None,
            b"main/t/new",
            RowId { table: Table::State, id: "a" },
            &change,
            "",
            WriteContext { stamp: 1, floor: 0, now: NOW },
        );
        assert_eq!(steps(&mut shard, usize::MAX, 200).iter().sum::<usize>(), 4 * SWEEP_STEP - 5);
        assert_eq!((shard.partitions.len(), shard.counts[Table::State as usize]), (1, 1));
        assert_eq!(steps(&mut shard, 9, 249), [0]);
        assert_eq!(steps(&mut shard, 9, 250), [1]);
        assert_eq!((shard.partitions.len(), shard.index.len(), shard.counts[Table::State as usize]), (0, 0, 0));
    }
}
