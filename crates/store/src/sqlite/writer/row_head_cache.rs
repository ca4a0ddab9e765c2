//! Cache of rowids and heads of recently written rows, so that the next write of a row needs no lookup.
//!
//! In: the rows that the writer wrote. Out: their heads. There is no other writer, so the cache is valid until a transaction
//! is rolled back or rows are removed in bulk; then it is cleared.

use std::hash::{BuildHasher, RandomState};

use toolhub_storage::backend::Table;

use super::super::row::{RowHead, RowName};

/// Number of slots. Direct-mapped: a row replaces the previous one in its slot. A power of two.
const SLOTS: usize = 4096;

pub(super) struct RowHeadCache {
    slots: Vec<Option<Box<CachedHead>>>,
    hasher: RandomState,
}

struct CachedHead {
    partition: Box<str>,
    table: Table,
    id: Box<str>,
    /// The row's rowid.
    rowid: i64,
    head: RowHead,
}

impl RowHeadCache {
    pub(super) fn new() -> Self {
        Self { slots: std::iter::repeat_with(|| None).take(SLOTS).collect(), hasher: RandomState::new() }
    }

    /// The rowid and the head of a row, if cached.
    pub(super) fn find(&self, name: RowName<'_>) -> Option<(i64, RowHead)> {
        let cached = self.slots[self.slot_of(name)].as_deref().filter(|cached| cached.is_for(name))?;
        Some((cached.rowid, cached.head))
    }

    /// Caches a written row.
    pub(super) fn insert(&mut self, name: RowName<'_>, rowid: i64, head: RowHead) {
        let slot = self.slot_of(name);
        match self.slots[slot].as_deref_mut().filter(|cached| cached.is_for(name)) {
            Some(cached) => (cached.rowid, cached.head) = (rowid, head),
            None => {
                let (partition, table, id) = (name.partition.into(), name.table, name.id.into());
                self.slots[slot] = Some(Box::new(CachedHead { partition, table, id, rowid, head }));
            }
        }
    }

    /// Drops a removed row.
    pub(super) fn remove(&mut self, name: RowName<'_>) {
        let slot = self.slot_of(name);
        if self.slots[slot].as_deref().is_some_and(|cached| cached.is_for(name)) {
            self.slots[slot] = None;
        }
    }

    /// Drops all entries.
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
