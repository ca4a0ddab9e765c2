//! A batch of writes to one partition, committed atomically.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;

use super::{Partition, RowVersion, StoreError, Table, Terms};
use toolhub_types::timestamp::Timestamp;

/// Size of a row besides its value: names, metadata and index entries.
pub const ROW_OVERHEAD_BYTES: u64 = 512;

/// What a write must survive before it is acknowledged. The strictest durability in a batch applies to the whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// A crash of the process.
    KillSafe,
    /// A power failure.
    PowerSafe,
}

/// Precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expect {
    /// No precondition.
    Any,
    /// The row does not exist or has expired.
    Absent,
    /// The row still has this version.
    Same(RowVersion),
}

/// The operation on a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// Stores this value and increments the version.
    Put {
        /// The encoded record.
        value: Arc<[u8]>,
        /// The version of the record's own layout.
        schema: u32,
        /// When the row expires.
        expires: Option<Timestamp>,
    },
    /// Stores this value with the version it had in its source: a backup or another store. The version of an existing row
    /// never goes back; it grows by at least one.
    Restore {
        /// The encoded record.
        value: Arc<[u8]>,
        /// The version of the record's own layout.
        schema: u32,
        /// When the row expires.
        expires: Option<Timestamp>,
        /// The version in the source.
        version: u64,
    },
    /// Changes the expiry only. The version stays; no effect if the row does not exist.
    Touch {
        /// When the row expires.
        expires: Option<Timestamp>,
    },
    /// Leaves the row unchanged: only the precondition is checked.
    Keep,
    /// Removes the row.
    Remove,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Write {
    /// The table.
    pub table: Table,
    /// The row's id.
    pub id: SmolStr,
    /// The precondition.
    pub expect: Expect,
    /// The operation.
    pub change: Change,
    /// What the write must survive.
    pub durability: Durability,
}

/// Writes to one partition that are committed atomically.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The partition all writes go to.
    pub partition: Partition,
    /// Stored with every row this batch puts. Random, so that no two batches share one, except a batch and another attempt to commit it
    /// with other preconditions or more writes.
    pub stamp: u64,
    /// The writes. No row may be written twice.
    pub writes: Vec<Write>,
    /// Commits only if the partition holds no rows but those that this batch writes.
    pub no_other_rows: bool,
    /// The index terms of rows that this batch puts. A row that is put without an entry here has none.
    pub terms: BTreeMap<(Table, SmolStr), Terms>,
}

impl Batch {
    /// An empty batch for a partition.
    #[must_use]
    pub fn new(partition: Partition) -> Self {
        Self { partition, stamp: fastrand::u64(..), writes: Vec::new(), no_other_rows: false, terms: BTreeMap::new() }
    }

    /// Adds a write.
    #[must_use]
    pub fn with(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// The index terms of a row that this batch puts; empty by default.
    #[must_use]
    pub fn terms_of(&self, write: &Write) -> &Terms {
        static NONE: Terms = Terms::NONE;
        // Most batches have no terms; then no key is built.
        if self.terms.is_empty() { &NONE } else { self.terms.get(&(write.table, write.id.clone())).unwrap_or(&NONE) }
    }

    /// What the whole batch must survive: the maximum over its writes.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.writes.iter().map(|write| write.durability).max().unwrap_or(Durability::KillSafe)
    }

    /// Whether the batch writes this row.
    #[must_use]
    pub fn writes_row(&self, table: Table, id: &str) -> bool {
        self.writes.iter().any(|write| write.table == table && write.id == id)
    }

    /// Upper estimate of how much the batch makes a store grow; 0 if it puts nothing.
    #[must_use]
    pub fn max_growth(&self) -> u64 {
        let bytes = self.writes.iter().map(|write| match &write.change {
            Change::Put { value, .. } | Change::Restore { value, .. } => value.len() as u64 + ROW_OVERHEAD_BYTES,
            Change::Touch { .. } | Change::Keep | Change::Remove => 0,
        });
        bytes.sum()
    }

    /// Checks that no row is written twice. Every backend refuses such a batch.
    ///
    /// # Errors
    /// [`Refused`](StoreError::Refused), with the row.
    pub fn check_duplicate_writes(&self) -> Result<(), StoreError> {
        for (at, Write { table, id, .. }) in self.writes.iter().enumerate() {
            if self.writes[..at].iter().any(|earlier| earlier.table == *table && earlier.id == *id) {
                return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
            }
        }
        Ok(())
    }
}
