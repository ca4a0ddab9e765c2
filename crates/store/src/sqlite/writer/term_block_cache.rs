//! Cache of index entries that exist: the last block written for each term.
//!
//! In: the entries that the writer wrote. Out: whether an entry must still be written. There is no other writer, so the cache
//! is valid until a transaction is rolled back or rows with terms are removed; then entries are dropped.

use std::hash::{BuildHasher, RandomState};

use toolhub_storage::backend::Table;

/// Number of slots. Direct-mapped: a term replaces the previous one in its slot.
const SLOTS: u64 = 1024;

pub(super) struct TermBlockCache {
    slots: Vec<Option<LastBlock>>,
    hasher: RandomState,
}

struct LastBlock {
    table: Table,
    tenant: Box<str>,
    term: Box<str>,
    block: String,
}

impl TermBlockCache {
    pub(super) fn new() -> Self {
        Self { slots: std::iter::repeat_with(|| None).take(SLOTS as usize).collect(), hasher: RandomState::new() }
    }

    /// Records that the index has this entry. Returns whether that was known.
    pub(super) fn insert(&mut self, table: Table, tenant: &str, term: &str, block: &str) -> bool {
        let slot = usize::try_from(self.hasher.hash_one((table, tenant, term)) % SLOTS).unwrap_or(0);
        let last = self.slots[slot].as_mut();
        match last.filter(|last| last.table == table && *last.tenant == *tenant && *last.term == *term) {
            Some(last) if last.block == block => true,
            Some(last) => {
                block.clone_into(&mut last.block);
                false
            }
            None => {
                let (tenant, term) = (tenant.into(), term.into());
                self.slots[slot] = Some(LastBlock { table, tenant, term, block: block.into() });
                false
            }
        }
    }

    /// Drops the entries of a table, after one of its rows was removed.
    pub(super) fn remove_table(&mut self, table: Table) {
        for slot in self.slots.iter_mut().filter(|slot| slot.as_ref().is_some_and(|last| last.table == table)) {
            *slot = None;
        }
    }

    /// Drops all entries.
    pub(super) fn clear(&mut self) {
        self.slots.fill_with(|| None);
    }
}
