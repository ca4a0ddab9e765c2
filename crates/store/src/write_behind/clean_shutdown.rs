//! Clean-shutdown record: one row that distinguishes a clean shutdown from a crash.
//!
//! In: the inner store. Out: the epoch in which its rows are written. The row is stored in a table that is never listed as a
//! whole. It says "unclean" from opening until the last batch is flushed. Stores also read it when they are opened,
//! because they may be reopened without write-behind.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, StoreError, Table, Write},
    clock::{Clock, SystemClock},
};
use toolhub_types::ids::Tenant;

use crate::epoch;

const RECORD_ID: SmolStr = SmolStr::new_static("~behind");

#[derive(Serialize, Deserialize)]
struct ShutdownRecord {
    epoch: u64,
    clean: bool,
}

/// The key of the record.
pub(crate) fn key() -> RowKey {
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::State(RECORD_ID) };
    RowKey { partition, table: Table::History, id: RECORD_ID }
}

/// The epoch to continue in: the same after a clean shutdown, the next one after an unclean one.
pub(crate) fn next_epoch(value: &[u8], version: u64) -> u64 {
    // The version of the row contains the epoch too.
    let known = epoch::of_version(version);
    match serde_json::from_slice::<ShutdownRecord>(value) {
        Ok(ShutdownRecord { epoch, clean: true }) => epoch.max(known),
        Ok(ShutdownRecord { epoch, clean: false }) => epoch.max(known).saturating_add(1),
        Err(_) => known + 1,
    }
}

/// Reads how the last use ended and records that the store is open. Returns the epoch.
pub(super) async fn record_open(store: &dyn Backend) -> Result<u64, StoreError> {
    let now = SystemClock.now();
    let (epoch, lost) = match store.load(&[key()], now).await {
        Ok(mut found) => (found.pop().flatten().map_or(0, |row| next_epoch(&row.value, row.version.number)), false),
        // The record is lost, so treat it as an unclean shutdown.
        Err(StoreError::Damaged { .. }) => (epoch::epoch_after(0, now), true),
        Err(error) => return Err(error),
    };
    let version = write_record(store, epoch, false).await?;
    // The inner store may be in a later epoch itself, or remember the record's last version; its commit then returned a version of
    // that epoch.
    let assigned = epoch::of_version(version) + u64::from(lost);
    if assigned > epoch {
        write_record(store, assigned, false).await?;
    }
    Ok(epoch.max(assigned))
}

/// Records a clean shutdown: everything is written.
pub(super) async fn record_clean_shutdown(store: &dyn Backend, epoch: u64) -> Result<(), StoreError> {
    write_record(store, epoch, true).await.map(|_| ())
}

async fn write_record(store: &dyn Backend, epoch: u64, clean: bool) -> Result<u64, StoreError> {
    let text =
        serde_json::to_vec(&ShutdownRecord { epoch, clean }).map_err(|error| StoreError::Refused(error.to_string()))?;
    // The version contains the epoch too, in case the text is lost.
    let change = Change::Restore { value: text.into(), schema: 1, expires: None, version: epoch::version_floor(epoch) };
    let RowKey { partition, table, id } = key();
    let write = Write { table, id, expect: Expect::Any, change, durability: Durability::PowerSafe };
    let versions = store.commit(Batch::new(partition).with(write), SystemClock.now()).await?;
    Ok(versions.first().copied().unwrap_or(0))
}
