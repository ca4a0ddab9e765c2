//! Ordered index of rows by id, for scans over many partitions.
//!
//! In: ids of rows and the keys of their partitions. Out: the same, in the order of a scan. Without it such a scan would visit every
//! partition of the store. Tables that are read one partition at a time have no index: it would take more memory than a small row.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    ops::Bound,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::pages::ScanWindow;
use crate::backend::Table;

/// The rows of the indexed tables of a store.
pub(super) struct IdIndex([Mutex<BTreeSet<IndexEntry>>; Table::ALL.len()]);

/// The id of a row and the key of its partition, in one allocation.
#[derive(PartialEq, Eq, Clone)]
pub(super) struct IndexEntry {
    bytes: Box<[u8]>,
    id_len: usize,
}

impl IndexEntry {
    pub(super) fn new(id: &[u8], partition_key: &[u8]) -> Self {
        Self { bytes: [id, partition_key].concat().into(), id_len: id.len() }
    }

    pub(super) fn id(&self) -> &[u8] {
        &self.bytes[..self.id_len]
    }

    pub(super) fn partition_key(&self) -> &[u8] {
        &self.bytes[self.id_len..]
    }
}

impl Ord for IndexEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.id(), self.partition_key()).cmp(&(other.id(), other.partition_key()))
    }
}

impl PartialOrd for IndexEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl IdIndex {
    pub(super) fn new() -> Self {
        Self(Table::ALL.map(|_| Mutex::default()))
    }

    /// Whether rows of this table are indexed: those that are listed across partitions.
    pub(super) const fn has_table(table: Table) -> bool {
        use Table::{Approvals, Artifacts, Calls, Events, OpenCalls, Runs, Threads};
        matches!(table, Calls | OpenCalls | Artifacts | Events | Approvals | Threads | Runs)
    }

    pub(super) fn insert(&self, table: Table, id: &[u8], partition_key: &[u8]) {
        if Self::has_table(table) {
            self.lock(table).insert(IndexEntry::new(id, partition_key));
        }
    }

    pub(super) fn remove(&self, table: Table, id: &[u8], partition_key: &[u8]) {
        if Self::has_table(table) {
            self.lock(table).remove(&IndexEntry::new(id, partition_key));
        }
    }

    /// The first `limit` entries of a window, in the order of the scan.
    pub(super) fn read(&self, table: Table, window: &ScanWindow<'_>, limit: usize) -> Vec<IndexEntry> {
        let (from, to) = window.entry_bounds();
        let entries = self.lock(table);
        let is_empty =
            matches!((&from, &to), (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) if from >= to);
        if is_empty {
            return Vec::new();
        }
        let range = entries.range((from, to));
        if window.is_descending() {
            range.rev().take(limit).cloned().collect()
        } else {
            range.take(limit).cloned().collect()
        }
    }

    fn lock(&self, table: Table) -> MutexGuard<'_, BTreeSet<IndexEntry>> {
        self.0[table as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
