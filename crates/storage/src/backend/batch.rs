//! A batch of writes: everything that must become true together, or not at all.

use std::sync::Arc;

use smol_str::SmolStr;

use super::{Partition, RowVersion, Table};
use toolhub_types::timestamp::Timestamp;

/// How much a write must survive before it is acknowledged. The strictest of a batch holds for all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The death of the process.
    KillSafe,
    /// The loss of power.
    PowerSafe,
}

/// What a row must be like for its write to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Anything.
    Any,
    /// It does not exist, or has expired.
    Absent,
    /// It is still the one that was seen.
    Same(RowVersion),
}

/// What happens to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this value, and its version grows by one.
    Put {
        /// The record.
        value: Arc<[u8]>,
        /// The version of the record's own layout.
        schema: u32,
        /// When the row ceases to exist.
        expires: Option<Timestamp>,
    },
    /// It gets this value, and the version it had where it comes from: a backup, or another store. A row that is there
    /// already never goes back to a version it has had; its version grows by at least one.
    Restore {
        /// The record.
        value: Arc<[u8]>,
        /// The version of the record's own layout.
        schema: u32,
        /// When the row ceases to exist.
        expires: Option<Timestamp>,
        /// The version it had.
        version: u64,
    },
    /// It lives until this time instead. Its version stays; nothing happens where there is no row.
    Touch {
        /// When the row ceases to exist.
        expires: Option<Timestamp>,
    },
    /// It stays as it is: only the expectation matters.
    Keep,
    /// It is removed.
    Remove,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The table.
    pub table: Table,
    /// The row's id.
    pub id: SmolStr,
    /// What the row must be like.
    pub expect: Expect,
    /// What happens to it.
    pub change: Change,
    /// How much it must survive.
    pub durability: Durability,
}

/// Writes to one partition that are made together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The partition all writes go to.
    pub partition: Partition,
    /// Marks every row this batch puts. Random, so that no two batches share one.
    pub stamp: u64,
    /// The writer's token; a batch with a lower one than was seen before is refused.
    pub fence: Option<u64>,
    /// The writes. No row is written twice.
    pub writes: Vec<Write>,
}

impl Batch {
    /// An empty batch for a partition.
    #[must_use]
    pub fn new(partition: Partition) -> Self {
        Self { partition, stamp: fastrand::u64(..), fence: None, writes: Vec::new() }
    }

    /// Adds a write.
    #[must_use]
    pub fn with(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// How much the whole batch must survive.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.writes.iter().map(|write| write.durability).max().unwrap_or(Durability::KillSafe)
    }

    /// A row that is written twice, if there is one. A backend refuses such a batch.
    #[must_use]
    pub fn find_duplicate_write(&self) -> Option<&Write> {
        let same = |a: &Write, b: &Write| a.table == b.table && a.id == b.id;
        self.writes
            .iter()
            .enumerate()
            .find(|(at, write)| self.writes[..*at].iter().any(|b| same(write, b)))
            .map(|(_, w)| w)
    }
}
