//! The row that tells a clean end from an unclean one.
//!
//! In: the store behind. Out: the epoch its rows are written in. The row lies in a table nobody lists as a whole. It is
//! unclean from the moment the store is opened until all that waited is written. Stores look at it too when they are
//! opened: whoever comes next may use them without anything before them.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::{
    backend::{Backend, Batch, Change, Durability, Expect, Key, Partition, Place, StoreError, Table, Write},
    clock::{Clock, SystemClock},
    ids::Tenant,
};

use crate::epoch;

const NAME: SmolStr = SmolStr::new_static("~behind");

#[derive(Serialize, Deserialize)]
struct Mark {
    epoch: u64,
    clean: bool,
}

/// Where the row lies.
pub(crate) fn key() -> Key {
    let partition = Partition { tenant: Tenant::default(), place: Place::State(NAME) };
    Key { partition, table: Table::History, id: NAME }
}

/// The epoch to go on in: the same after a clean end, a later one after an unclean one.
pub(crate) fn next_epoch(value: &[u8], version: u64) -> u64 {
    match serde_json::from_slice::<Mark>(value) {
        Ok(Mark { epoch, clean: true }) => epoch,
        Ok(Mark { epoch, clean: false }) => epoch + 1,
        Err(_) => epoch::of_version(version) + 1,
    }
}

/// Looks how it ended last time, and notes that it has begun. Answers the epoch.
pub(super) async fn begin(store: &dyn Backend) -> Result<u64, StoreError> {
    let found = store.load(&[key()], SystemClock.now()).await?.pop().flatten();
    let epoch = found.map_or(0, |row| next_epoch(&row.value, row.seen.version));
    let version = write(store, epoch, false).await?;
    // The store behind may be in a later epoch by itself: it then gave the mark a version of that.
    let given = epoch::of_version(version);
    if given > epoch {
        write(store, given, false).await?;
    }
    Ok(epoch.max(given))
}

/// Notes that all is written.
pub(super) async fn end(store: &dyn Backend, epoch: u64) -> Result<(), StoreError> {
    write(store, epoch, true).await.map(|_| ())
}

async fn write(store: &dyn Backend, epoch: u64, clean: bool) -> Result<u64, StoreError> {
    let text = serde_json::to_vec(&Mark { epoch, clean }).map_err(|error| StoreError::Refused(error.to_string()))?;
    // Its version tells the epoch too, should the text be lost.
    let change = Change::Restore { value: text.into(), schema: 1, expires: None, version: epoch::floor(epoch) };
    let Key { partition, table, id } = key();
    let write = Write { table, id, expect: Expect::Any, change, durability: Durability::PowerSafe };
    let versions = store.commit(Batch::on(partition).with(write), SystemClock.now()).await?;
    Ok(versions.first().copied().unwrap_or(0))
}
