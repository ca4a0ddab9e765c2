//! The stored record of a thread, and its row.
//!
//! In: the activity of a thread on this node. Out: the row of the table `threads` that holds it. Does not read or write the
//! store.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::activity::ThreadEntry;
use toolhub_storage::backend::{
    Change, Durability, Expect, Partition, Row, RowKey, StoreError, Table, Write, decode, encode,
};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

const LAYOUT: u32 = 1;

/// A stored thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(super) created: Timestamp,
    pub(super) last_active: Timestamp,
    pub(super) calls: u64,
}

impl Record {
    /// The record of a thread that was first used now.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { created: now, last_active: now, calls: 0 }
    }

    /// The write of the thread's row.
    pub(super) fn write(&self, owner: &ThreadKey, expect: Expect) -> Result<Write, StoreError> {
        let RowKey { table, id, .. } = row_key(owner);
        let value = encode(table, &id, self)?;
        let change = Change::Put { value, schema: LAYOUT, expires: None };
        Ok(Write { table, id, expect, change, durability: Durability::KillSafe })
    }
}

impl From<&ThreadEntry> for Record {
    fn from(entry: &ThreadEntry) -> Self {
        Self { created: entry.first_seen, last_active: entry.last_active, calls: entry.unstored_calls }
    }
}

/// The row key of a thread.
pub(crate) fn row_key(owner: &ThreadKey) -> RowKey {
    let partition = Partition::from(owner);
    RowKey { partition, table: Table::Threads, id: owner.thread.clone().into() }
}

/// Whether a newer version of Toolhub wrote the row. It is left as it is.
pub(super) fn is_newer(row: &Row) -> bool {
    row.schema > LAYOUT
}

/// Decodes a record. One that cannot be read still yields the times of its row.
pub(super) fn read(id: &SmolStr, row: &Row) -> Record {
    let record = decode(Table::Threads, id, LAYOUT, row).inspect_err(StoreError::log_skipped);
    record.map_or(Record { created: row.created, last_active: row.updated, calls: 0 }, |(record, _)| record)
}

/// The stored record with the activity that is not stored yet.
pub(super) fn merge_activity(stored: Option<Record>, entry: Option<&ThreadEntry>) -> Option<Record> {
    let Some(entry) = entry else { return stored };
    let recent = Record::from(entry);
    let Some(stored) = stored else { return Some(recent) };
    Some(Record {
        created: stored.created.min(recent.created),
        last_active: stored.last_active.max(recent.last_active),
        calls: stored.calls + recent.calls,
    })
}
