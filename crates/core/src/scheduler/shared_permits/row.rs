//! The row of a tool's shared permits: how many each queue of a node holds, and until when.
//!
//! In: the row, and what a queue wants to hold. Out: whether that fits the limit, and the row afterwards. A queue that did not renew its permits
//! in time has lost them. `keeper.rs` commits the row.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, RowVersion, StoreError, Table, Write,
    decode, encode,
};
use toolhub_types::{ids::Tenant, timestamp::Timestamp, tool::ToolName};

const LAYOUT: u32 = 1;
const ROW_ID: SmolStr = SmolStr::new_static("permits");

/// The permits of a tool, by who holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PermitRow {
    holders: BTreeMap<SmolStr, Lease>,
}

/// The permits of one holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    permits: usize,
    /// By the clock of the store.
    expires: Timestamp,
}

impl PermitRow {
    /// How many permits others hold.
    pub(super) fn held_by_others(&self, holder: &str, now: Timestamp) -> usize {
        let others = self.holders.iter().filter(|(id, lease)| *id != holder && lease.expires > now);
        others.map(|(_, lease)| lease.permits).sum()
    }

    /// The row after a holder has renewed this many permits, or given all back. Permits that others have lost are removed.
    pub(super) fn with(&self, holder: &SmolStr, permits: usize, now: Timestamp, duration: Duration) -> Self {
        let mut holders = self.holders.clone();
        holders.retain(|id, lease| id != holder && lease.expires > now);
        if permits > 0 {
            holders.insert(holder.clone(), Lease { permits, expires: now + duration });
        }
        Self { holders }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// The write of this row in place of the one that was read.
    pub(super) fn write(&self, tool: &ToolName, seen: Option<RowVersion>) -> Result<Batch, StoreError> {
        let RowKey { partition, table, id } = key(tool);
        let expires = self.holders.values().map(|lease| lease.expires).max();
        let change = match expires {
            None => Change::Remove,
            Some(_) => Change::Put { value: encode(table, &id, self)?, schema: LAYOUT, expires },
        };
        let expect = seen.map_or(Expect::Absent, Expect::Same);
        Ok(Batch::new(partition).with(Write { table, id, expect, change, durability: Durability::KillSafe }))
    }

    pub(super) async fn load(
        tool: &ToolName,
        store: &dyn Backend,
        now: Timestamp,
    ) -> Result<Option<(Self, RowVersion)>, StoreError> {
        let row = store.load(&[key(tool)], now).await?.pop().flatten();
        row.map(|row| decode(Table::Permits, &ROW_ID, LAYOUT, &row)).transpose()
    }
}

/// The tool of a row.
pub(super) fn tool_of(key: &RowKey) -> Option<&ToolName> {
    if let PartitionKind::Tool(tool) = &key.partition.kind { Some(tool) } else { None }
}

fn key(tool: &ToolName) -> RowKey {
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::Tool(tool.clone()) };
    RowKey { partition, table: Table::Permits, id: ROW_ID }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_count_until_they_are_given_back_or_expire() {
        let (at, lease) = (Timestamp::from_millis, Duration::from_millis(100));
        let (one, two) = (SmolStr::new("one"), SmolStr::new("two"));
        let row = PermitRow::default().with(&one, 2, at(0), lease).with(&two, 3, at(50), lease);
        assert_eq!((row.held_by_others("two", at(99)), row.held_by_others("one", at(99))), (2, 3));
        assert_eq!((row.held_by_others("two", at(100)), row.held_by_others("three", at(149))), (0, 3));
        let renewed = row.with(&one, 1, at(90), lease);
        assert_eq!(renewed.held_by_others("two", at(150)), 1);
        assert!(renewed.with(&one, 0, at(150), lease).is_empty(), "the other has lost its permits");
    }
}
