//! Where rows are that were written lately, and what their heads say: the next write of one need not look for it.
//!
//! In: what the writer wrote. Out: the same, as long as it is sure to be true. Nobody else writes, so it is true until a
//! transaction is undone or rows are taken away without being named; then all of it is forgotten.

use std::hash::{BuildHasher, RandomState};

use toolhub_storage::backend::Table;

use super::super::row::{RowHead, RowName};

/// How many are remembered at most; each has one place, and gives it up to the next that has the same. A power of two.
const SLOTS: usize = 4096;

pub(super) struct RowHeadCache {
    slots: Vec<Option<Box<CachedHead>>>,
    hasher: RandomState,
}

struct CachedHead {
    partition: Box<str>,
    table: Table,
    id: Box<str>,
    /// The row's number.
    rowid: i64,
    head: RowHead,
}

impl RowHeadCache {
    pub(super) fn new() -> Self {
        Self { slots: std::iter::repeat_with(|| None).take(SLOTS).collect(), hasher: RandomState::new() }
    }

    /// The number and the head of a row, if they are known.
    pub(super) fn find(&self, name: RowName<'_>) -> Option<(i64, RowHead)> {
        let known = self.slots[self.slot_of(name)].as_deref().filter(|known| known.is_for(name))?;
        Some((known.rowid, known.head))
    }

    /// A row was written.
    pub(super) fn insert(&mut self, name: RowName<'_>, number: i64, head: RowHead) {
        let place = self.slot_of(name);
        match self.slots[place].as_deref_mut().filter(|known| known.is_for(name)) {
            Some(known) => (known.rowid, known.head) = (number, head),
            None => {
                let (partition, table, id) = (name.partition.into(), name.table, name.id.into());
                self.slots[place] = Some(Box::new(CachedHead { partition, table, id, rowid: number, head }));
            }
        }
    }

    /// A row was removed.
    pub(super) fn remove(&mut self, name: RowName<'_>) {
        let place = self.slot_of(name);
        if self.slots[place].as_deref().is_some_and(|known| known.is_for(name)) {
            self.slots[place] = None;
        }
    }

    /// Nothing is sure any more.
    pub(super) fn clear(&mut self) {
        self.slots.fill_with(|| None);
    }

    fn slot_of(&self, name: RowName<'_>) -> usize {
        let hash = self.hasher.hash_one((name.partition, name.table, name.id));
        usize::try_from(hash % SLOTS as u64).unwrap_or(0)
    }
}

impl CachedHead {
    fn is_for(&self, name: RowName<'_>) -> bool {
        *self.id == *name.id && self.table == name.table && *self.partition == *name.partition
    }
}
