//! The newest generation of record layouts that a store may contain, so that a release which cannot read it does not start on it.
//!
//! In: the generation that this node writes. Out: a row with the newest one, which stays when all nodes have ended; the refusal of a
//! start. Without the row, the store has the first generation only. A living node that writes newer layouts is found by its own row.

use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    engine::Engine,
    nodes::{FIRST_GENERATION, NodeLayouts},
};
use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, RowVersion, StoreError, Table, Write,
    decode, encode,
};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

const LAYOUT: u32 = 1;
const ROW_ID: SmolStr = SmolStr::new_static("written");

/// The store may contain records in layouts that this version cannot read: a newer version has used it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Toolhub {version} has used this store and may have written records in layouts of generation {written}; this version reads them up to \
     generation {known}: start Toolhub {version} or a later version, or restore a backup from before the upgrade"
)]
pub struct NewerRecords {
    /// The version of Toolhub that was the first to write them.
    pub version: SmolStr,
    /// Their generation.
    pub written: u32,
    /// The newest generation that this version reads.
    pub known: u32,
}

/// The row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WrittenLayouts {
    written: u32,
    version: SmolStr,
}

fn key() -> RowKey {
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::Layouts };
    RowKey { partition, table: Table::Nodes, id: ROW_ID }
}

async fn load(store: &dyn Backend, now: Timestamp) -> Result<Option<(WrittenLayouts, RowVersion)>, StoreError> {
    let row = store.load(&[key()], now).await?.pop().flatten();
    row.map(|row| decode(Table::Nodes, &ROW_ID, LAYOUT, &row)).transpose()
}

/// Finds out whether the store may contain what a version that reads up to generation `known` cannot read.
pub(super) async fn find_newer(
    store: &dyn Backend,
    known: u32,
    now: Timestamp,
) -> Result<Option<NewerRecords>, StoreError> {
    let found = load(store, now).await?;
    let newer = found.map(|(found, _)| found).filter(|found| found.written > known);
    Ok(newer.map(|WrittenLayouts { written, version }| NewerRecords { version, written, known }))
}

/// Stores that this version writes this generation from now on, unless the store has it or a newer one already.
async fn raise(store: &dyn Backend, written: u32, now: Timestamp) -> Result<(), StoreError> {
    if written <= FIRST_GENERATION {
        return Ok(());
    }
    loop {
        let found = load(store, now).await?;
        if found.as_ref().is_some_and(|(found, _)| found.written >= written) {
            return Ok(());
        }
        let RowKey { partition, table, id } = key();
        let record = WrittenLayouts { written, version: SmolStr::new_static(env!("CARGO_PKG_VERSION")) };
        let change = Change::Put { value: encode(table, &id, &record)?, schema: LAYOUT, expires: None };
        let expect = found.map_or(Expect::Absent, |(_, version)| Expect::Same(version));
        let write = Write { table, id, expect, change, durability: Durability::PowerSafe };
        match store.commit(Batch::new(partition).with(write), now).await {
            // Another node was faster.
            Err(StoreError::Conflict { .. }) => {}
            result => return result.map(drop),
        }
    }
}

/// The generations that this node reads and writes now.
pub(super) async fn own(engine: &Engine) -> Result<NodeLayouts, StoreError> {
    let nodes = engine.nodes.list().await?;
    Ok(nodes.into_iter().find(|node| node.is_self).map(|node| node.layouts).unwrap_or_default())
}

/// Stores the generation that this node writes now.
pub(super) async fn store_own(engine: &Engine) -> Result<(), StoreError> {
    let written = own(engine).await?.written;
    raise(&*engine.services.store, written, engine.services.clock.now()).await
}

/// Stores the generation that this node writes whenever another node has left, which may have read only an older one.
pub(super) async fn follow(hub: Weak<Engine>) {
    let Some(mut departures) = hub.upgrade().map(|engine: Arc<Engine>| engine.nodes.departures()) else { return };
    while departures.changed().await.is_ok() {
        let Some(engine) = hub.upgrade() else { return };
        if let Err(error) = store_own(&engine).await {
            tracing::warn!(%error, "the generation of record layouts was not stored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_storage::backend::Memory;

    #[tokio::test]
    async fn a_version_that_does_not_read_what_was_written_once_is_refused() {
        let (store, now) = (Memory::default(), Timestamp::from_millis(5));
        let newer = async |known| find_newer(&store, known, now).await.unwrap();
        raise(&store, FIRST_GENERATION, now).await.unwrap();
        assert_eq!((newer(1).await, load(&store, now).await), (None, Ok(None)), "every version reads it");
        raise(&store, 3, now).await.unwrap();
        raise(&store, 2, now).await.unwrap();
        assert_eq!((newer(3).await, newer(4).await), (None, None));
        let refused = newer(2).await.unwrap();
        assert_eq!((refused.written, refused.known), (3, 2), "an older node has not taken it back");
        raise(&store, 4, now).await.unwrap();
        assert_eq!(newer(3).await.unwrap().written, 4);
    }
}
