//! A part of the store in memory, under one lock: the drawers whose addresses fall into it.
//!
//! In: an address and its hash, a batch. Out: drawers, versions. Drawers lie in a dense list and are found by an index of
//! small numbers: a table of the drawers themselves would be half empty, and could not be walked in steps.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::{
    chunked_vec::ChunkedVec,
    packed_row::{PackedRow, RowId},
    partition_rows::{NEVER, PartitionRows},
};
use crate::backend::{Action, Applied, Change, Expect, PriorRow, Row, StoreError, Table, Write, WriteContext};
use toolhub_types::timestamp::Timestamp;

/// How many drawers a sweep looks at before it lets others have the lock.
const SWEEP_STEP: usize = 256;

pub(super) struct Shard {
    /// The same in all shards of a store.
    hasher: RandomState,
    /// Where in the list an address lies.
    index: HashTable<u32>,
    partitions: ChunkedVec<PartitionRows>,
    /// How many rows each table has here, so that a scan passes over what holds none of its own.
    counts: [usize; Table::ALL.len()],
    /// No row here ends before this.
    next_expiry: Timestamp,
    /// How far a sweep has come. It goes from the end to the beginning: what takes the place of a drawer that went was
    /// seen already, and what is added meanwhile is noted when it is added.
    sweep: Option<SweepPass>,
}

struct SweepPass {
    /// All drawers from here on have been looked at.
    at: usize,
    /// None of their rows ends before this.
    next_expiry: Timestamp,
}

impl Shard {
    pub(super) fn new(hasher: RandomState) -> Self {
        let counts = Table::ALL.map(|_| 0);
        Self {
            hasher,
            index: HashTable::new(),
            partitions: ChunkedVec::default(),
            counts,
            next_expiry: NEVER,
            sweep: None,
        }
    }

    pub(super) fn find(&self, hash: u64, address: &[u8]) -> Option<usize> {
        let at = self.index.find(hash, |at| self.partitions[*at as usize].key() == address);
        at.map(|at| *at as usize)
    }

    pub(super) fn partition(&self, at: usize) -> &PartitionRows {
        &self.partitions[at]
    }

    /// The drawers that may hold rows of a table; all or none.
    pub(super) fn partitions_with(&self, table: Table) -> impl Iterator<Item = &PartitionRows> {
        self.partitions.iter().take(if self.counts[table as usize] > 0 { usize::MAX } else { 0 })
    }

    /// Whether a write finds its row as it expects it.
    pub(super) fn check_expectation(&self, at: Option<usize>, write: &Write, now: Timestamp) -> Result<(), StoreError> {
        if write.expect == Expect::Any {
            return Ok(());
        }
        write.check(&self.prior_row(at, RowId { table: write.table, id: &write.id }, now))
    }

    /// The row of this name before a write.
    fn prior_row(&self, at: Option<usize>, name: RowId<'_>, now: Timestamp) -> PriorRow {
        let facts = self.get(at, name).and_then(|slip| slip.meta_at(now));
        PriorRow::from_found(facts.map(|facts| (facts.version, facts.created)))
    }

    /// The row of this name, expired or not.
    pub(super) fn get(&self, at: Option<usize>, name: RowId<'_>) -> Option<&PackedRow> {
        self.partitions[at?].get(name)
    }

    /// The drawer of an address has seen this fence; it is made where there is none.
    pub(super) fn raise_fence(&mut self, at: &mut Option<usize>, address: &[u8], fence: u64) {
        let at = *at.get_or_insert_with(|| self.add(PartitionRows::empty(address)));
        self.partitions[at].raise_fence(fence);
    }

    /// Makes a change in the drawer `at`, which is made where there is none and one is needed. Answers the row's version
    /// afterwards, and whether anything changed.
    pub(super) fn apply(
        &mut self,
        at: &mut Option<usize>,
        address: &[u8],
        name: RowId<'_>,
        change: &Change,
        writing: WriteContext,
    ) -> (u64, bool) {
        match change {
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. } => {
                let (mut version, schema, expires) = (0, *schema, *expires);
                // The row is looked up once, where its place is found.
                self.put(at, address, name, expires, |found| {
                    let found = found.and_then(|slip| slip.meta_at(writing.now));
                    let before = PriorRow::from_found(found.map(|facts| (facts.version, facts.created)));
                    let applied = change.apply(&before, writing);
                    version = applied.version;
                    let Action::Put { row_version: seen, created } = applied.action else {
                        unreachable!("a put stores a value")
                    };
                    Row { version: seen, schema, value: value.clone(), expires, created, updated: writing.now }
                });
                (version, true)
            }
            Change::Touch { .. } | Change::Keep | Change::Remove => {
                self.apply_without_value(at, address, name, change, writing)
            }
        }
    }

    /// A change that stores no value.
    fn apply_without_value(
        &mut self,
        at: &mut Option<usize>,
        address: &[u8],
        name: RowId<'_>,
        change: &Change,
        writing: WriteContext,
    ) -> (u64, bool) {
        let Applied { version, changed, action } = change.apply(&self.prior_row(*at, name, writing.now), writing);
        match (action, change) {
            (Action::Touch, Change::Touch { expires }) => {
                if let Some(row) = self.get(*at, name).and_then(|slip| slip.row_at(writing.now)) {
                    self.put(at, address, name, *expires, |_| Row { expires: *expires, ..row });
                }
            }
            (Action::Remove, _) => {
                let removed = at.and_then(|at| self.partitions[at].remove(name));
                self.counts[name.table as usize] -= usize::from(removed.is_some());
            }
            (Action::Keep | Action::Put { .. } | Action::Touch, _) => {}
        }
        (version, changed)
    }

    fn put(
        &mut self,
        at: &mut Option<usize>,
        address: &[u8],
        name: RowId<'_>,
        ends: Option<Timestamp>,
        make: impl FnOnce(Option<&PackedRow>) -> Row,
    ) {
        let ends = ends.unwrap_or(NEVER);
        self.next_expiry = self.next_expiry.min(ends);
        if let Some(sweep) = &mut self.sweep {
            sweep.next_expiry = sweep.next_expiry.min(ends);
        }
        let is_new = match *at {
            Some(at) => self.partitions[at].put(name, make),
            None => {
                *at = Some(self.add(PartitionRows::single(address, name, make(None))));
                true
            }
        };
        self.counts[name.table as usize] += usize::from(is_new);
    }

    fn add(&mut self, drawer: PartitionRows) -> usize {
        let at = self.partitions.len();
        let number = u32::try_from(at).expect("four thousand million partitions do not fit into memory");
        self.partitions.push(drawer);
        let hash = |at: usize| self.hasher.hash_one(self.partitions[at].key());
        self.index.insert_unique(hash(at), number, |at| hash(*at as usize));
        at
    }

    /// Takes the drawer away if nothing is in it.
    pub(super) fn remove_if_empty(&mut self, at: usize) {
        if !self.partitions[at].is_empty() {
            return;
        }
        let last = self.partitions.len() - 1;
        let hash = |drawers: &ChunkedVec<PartitionRows>, at: usize| self.hasher.hash_one(drawers[at].key());
        if let Ok(entry) = self.index.find_entry(hash(&self.partitions, at), |number| *number as usize == at) {
            entry.remove();
        }
        if let Some(number) = self.index.find_mut(hash(&self.partitions, last), |number| *number as usize == last) {
            *number = at as u32;
        }
        self.partitions.swap_remove(at);
        // Room that a rush has taken is given back.
        if self.index.capacity() > 4 * self.index.len() {
            self.index.shrink_to_fit(|at| hash(&self.partitions, *at as usize));
        }
    }

    /// Removes at most `most` expired rows, in one step of a walk over all drawers. Answers how many, and whether the
    /// walk has come to its end.
    pub(super) fn sweep(&mut self, most: usize, now: Timestamp) -> (usize, bool) {
        let mut pass = match self.sweep.take() {
            Some(pass) => SweepPass { at: pass.at.min(self.partitions.len()), ..pass },
            None if self.next_expiry > now => return (0, true),
            None => SweepPass { at: self.partitions.len(), next_expiry: NEVER },
        };
        let mut swept = 0;
        for _ in 0..SWEEP_STEP {
            let Some(at) = pass.at.checked_sub(1).filter(|_| swept < most) else { break };
            let (drawer, counts) = (&mut self.partitions[at], &mut self.counts);
            drawer.sweep(most - swept, now, |table| {
                counts[table as usize] -= 1;
                swept += 1;
            });
            let soonest = drawer.next_expiry();
            if soonest <= now {
                // More has expired here than may go.
                break;
            }
            pass = SweepPass { at, next_expiry: pass.next_expiry.min(soonest) };
            self.remove_if_empty(at);
        }
        if pass.at > 0 {
            self.sweep = Some(pass);
            return (swept, false);
        }
        // What has come meanwhile was noted in the pass as well.
        self.next_expiry = pass.next_expiry;
        (swept, self.next_expiry > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(100);

    /// Four steps of drawers, each with one row that ends then.
    fn shard(ends: impl Fn(usize) -> Option<i64>) -> Shard {
        let mut shard = Shard::new(RandomState::new());
        for number in 0..4 * SWEEP_STEP {
            let expires = ends(number).map(Timestamp::from_millis);
            let change = Change::Put { value: [].into(), schema: 1, expires };
            let (address, name) = (format!("main/t/{number}"), RowId { table: Table::State, id: "a" });
            shard.apply(&mut None, address.as_bytes(), name, &change, WriteContext { stamp: 1, floor: 0, now: NOW });
        }
        shard
    }

    /// How many rows each step of a sweep took, until it was done.
    fn steps(shard: &mut Shard, most: usize, now: i64) -> Vec<usize> {
        let mut steps = Vec::new();
        loop {
            let (swept, done) = shard.sweep(most, Timestamp::from_millis(now));
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
            WriteContext { stamp: 1, floor: 0, now: NOW },
        );
        assert_eq!(steps(&mut shard, usize::MAX, 200).iter().sum::<usize>(), 4 * SWEEP_STEP - 5);
        assert_eq!((shard.partitions.len(), shard.counts[Table::State as usize]), (1, 1));
        assert_eq!(steps(&mut shard, 9, 249), [0]);
        assert_eq!(steps(&mut shard, 9, 250), [1]);
        assert_eq!((shard.partitions.len(), shard.index.len(), shard.counts[Table::State as usize]), (0, 0, 0));
    }
}
