//! Snapshots of the last versions of a business state.
//!
//! In: a state that is being written. Out: the write of its snapshot, and the removal of the one beyond the limit. A
//! snapshot has the same text as the state, its version in the row id, and the expiry of the write it came from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::{SmolStr, format_smolstr};

use super::ContextId;
use toolhub_storage::backend::{Change, Durability, Expect, Table, Write};
use toolhub_types::timestamp::Timestamp;

/// A snapshot of a business state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StateVersion {
    /// The version.
    pub version: u64,
    /// The data of this version.
    pub data: Value,
    /// When it was written.
    #[serde(rename = "createdAt")]
    pub created: Timestamp,
}

/// The row id of a snapshot, zero-padded so that ids sort by version.
pub(crate) fn row_id(context: &ContextId, version: u64) -> SmolStr {
    format_smolstr!("{}/{version:020}", context.state())
}

/// The writes that store the snapshot of a version and remove the one beyond the limit. `put` writes the state itself.
pub(crate) fn writes(context: &ContextId, version: u64, put: &Change, limit: usize) -> Vec<Write> {
    let mut writes = Vec::with_capacity(2);
    if limit > 0 {
        let change = match put.clone() {
            Change::Restore { value, schema, expires, .. } => Change::Put { value, schema, expires },
            other => other,
        };
        writes.push(write(row_id(context, version), change));
    }
    if let Some(old) = version.checked_sub(limit as u64).filter(|old| *old > 0 && *old < version) {
        writes.push(write(row_id(context, old), Change::Remove));
    }
    writes
}

/// One write to the table of snapshots.
pub(crate) fn write(id: SmolStr, change: Change) -> Write {
    // A snapshot needs no stronger durability than the state it is written with.
    Write { table: Table::Versions, id, expect: Expect::Any, change, durability: Durability::KillSafe }
}

/// Whether a snapshot is valid when the state has version `current`. A higher version is left over from a deleted
/// predecessor of the state.
pub(crate) fn is_retained(version: u64, current: u64, limit: usize) -> bool {
    version <= current && current - version < limit as u64
}
