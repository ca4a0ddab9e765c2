//! Ordered index of the rows of a shard by id, for scans over many partitions.
//!
//! In: ids of rows and the hashes of their partitions. Out: the same in the order of ids. Without it such a scan would visit every
//! partition of the store. Tables that are read one partition at a time have no index: it would take more memory than a small row.

use std::collections::BTreeSet;

use crate::backend::Table;

/// The rows of the indexed tables of a shard.
pub(super) struct IdIndex([BTreeSet<Entry>; Table::ALL.len()]);

/// The id of a row, and the hash of its partition's key.
type Entry = (Box<[u8]>, u64);

impl IdIndex {
    pub(super) fn new() -> Self {
        Self(Table::ALL.map(|_| BTreeSet::new()))
    }

    /// Whether rows of this table are indexed: those whose ids are mostly unique and that are listed across partitions.
    pub(super) const fn has_table(table: Table) -> bool {
        use Table::{Approvals, Artifacts, Calls, Events, OpenCalls, Runs, Threads};
        matches!(table, Calls | OpenCalls | Artifacts | Events | Approvals | Threads | Runs)
    }

    pub(super) fn insert(&mut self, table: Table, id: &[u8], hash: u64) {
        if Self::has_table(table) {
            self.0[table as usize].insert((id.into(), hash));
        }
    }

    pub(super) fn remove(&mut self, table: Table, id: &[u8], hash: u64) {
        if Self::has_table(table) {
            self.0[table as usize].remove(&(id.into(), hash));
        }
    }

    /// The rows whose ids are not below `from`, ascending.
    pub(super) fn ascending(&self, table: Table, from: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
        self.0[table as usize].range((Box::from(from), 0)..).map(|(id, hash)| (&**id, *hash))
    }

    /// The rows whose ids are not above `to`, descending.
    pub(super) fn descending(&self, table: Table, to: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
        self.0[table as usize].range(..=(Box::from(to), u64::MAX)).rev().map(|(id, hash)| (&**id, *hash))
    }
}
