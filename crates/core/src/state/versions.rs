//! Snapshots: what a business state was like at each of its last versions.
//!
//! In: a state as it is written. Out: the rows that keep it for later, and those to remove for it. A snapshot is the
//! same text as the state, under the number of its version, and lives no longer than what was written then.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::{SmolStr, format_smolstr};

use super::ContextId;
use toolhub_storage::backend::{Change, Durability, Expect, Table, Write};
use toolhub_types::timestamp::Timestamp;

/// What a business state was like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StateVersion {
    /// The version.
    pub version: u64,
    /// What was remembered then.
    pub data: Value,
    /// When it was written.
    #[serde(rename = "createdAt")]
    pub created: Timestamp,
}

/// The id of a snapshot: with all digits a version can have, so that ids are in the order of versions.
pub(crate) fn row_id(context: &ContextId, version: u64) -> SmolStr {
    format_smolstr!("{}/{version:020}", context.state())
}

/// The writes that keep a version and let go of the one that is too old now. `put` writes the state itself.
pub(crate) fn writes(context: &ContextId, version: u64, put: &Change, most: usize) -> Vec<Write> {
    let mut writes = Vec::with_capacity(2);
    if most > 0 {
        let change = match put.clone() {
            Change::Restore { value, schema, expires, .. } => Change::Put { value, schema, expires },
            other => other,
        };
        writes.push(write(row_id(context, version), change));
    }
    if let Some(old) = version.checked_sub(most as u64).filter(|old| *old > 0 && *old < version) {
        writes.push(write(row_id(context, old), Change::Remove));
    }
    writes
}

/// One write to the table of snapshots.
pub(crate) fn write(id: SmolStr, change: Change) -> Write {
    // It never asks for more than the state it is written with.
    Write { table: Table::Versions, id, expect: Expect::Any, change, durability: Durability::KillSafe }
}

/// Whether a snapshot may be seen when the state has version `now`. One above it is left from an earlier life of the state.
pub(crate) fn is_retained(version: u64, now: u64, most: usize) -> bool {
    version <= now && now - version < most as u64
}
