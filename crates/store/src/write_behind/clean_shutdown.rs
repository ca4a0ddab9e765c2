//! The row that tells a clean end from an unclean one.
//!
//! In: the store behind. Out: the epoch its rows are written in. The row lies in a table nobody lists as a whole. It is
//! unclean from the moment the store is opened until all that waited is written. Stores look at it too when they are
//! opened: whoever comes next may use them without anything before them.

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

/// Where the row lies.
pub(crate) fn key() -> RowKey {
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::State(RECORD_ID) };
    RowKey { partition, table: Table::History, id: RECORD_ID }
}

/// The epoch to go on in: the same after a clean end, a later one after an unclean one.
pub(crate) fn next_epoch(value: &[u8], version: u64) -> u64 {
    // Its version tells the epoch too.
    let known = epoch::of_version(version);
    match serde_json::from_slice::<ShutdownRecord>(value) {
        Ok(ShutdownRecord { epoch, clean: true }) => epoch.max(known),
        Ok(ShutdownRecord { epoch, clean: false }) => epoch.max(known).saturating_add(1),
        Err(_) => known + 1,
    }
}

/// Looks how it ended last time, and notes that it has begun. Answers the epoch.
pub(super) async fn record_open(store: &dyn Backend) -> Result<u64, StoreError> {
    let now = SystemClock.now();
    let (epoch, lost) = match store.load(&[key()], now).await {
        Ok(mut found) => (found.pop().flatten().map_or(0, |row| next_epoch(&row.value, row.version.number)), false),
        // Nobody knows how it ended, so it was not clean.
        Err(StoreError::Damaged { .. }) => (epoch::epoch_after(0, now), true),
        Err(error) => return Err(error),
    };
    let version = write_record(store, epoch, false).await?;
    // The store behind may be in a later epoch by itself, or remember the version the mark had: it then gave it one of that.
    let given = epoch::of_version(version) + u64::from(lost);
    if given > epoch {
        write_record(store, given, false).await?;
    }
    Ok(epoch.max(given))
}

/// Notes that all is written.
pub(super) async fn record_clean_shutdown(store: &dyn Backend, epoch: u64) -> Result<(), StoreError> {
    write_record(store, epoch, true).await.map(|_| ())
}

async fn write_record(store: &dyn Backend, epoch: u64, clean: bool) -> Result<u64, StoreError> {
    let text =
        serde_json::to_vec(&ShutdownRecord { epoch, clean }).map_err(|error| StoreError::Refused(error.to_string()))?;
    // Its version tells the epoch too, should the text be lost.
    let change = Change::Restore { value: text.into(), schema: 1, expires: None, version: epoch::version_floor(epoch) };
    let RowKey { partition, table, id } = key();
    let write = Write { table, id, expect: Expect::Any, change, durability: Durability::PowerSafe };
    let versions = store.commit(Batch::new(partition).with(write), SystemClock.now()).await?;
    Ok(versions.first().copied().unwrap_or(0))
}
