//! Reads and raises the epoch of a SQLite file.
//!
//! In: a connection. Out: an epoch. A store that went back in time, because a backup was restored, would continue from old
//! versions and assign some of them twice; a new epoch prevents that.

use rusqlite::{Connection, OptionalExtension, Result};
use toolhub_storage::clock::{Clock, SystemClock};

use crate::{
    epoch::{MAX_EPOCH, epoch_after, of_version},
    write_behind::clean_shutdown,
};

/// The stored epoch of a file.
pub(super) fn read(connection: &Connection) -> Result<u64> {
    let find = "SELECT value FROM facts WHERE name = 'epoch'";
    let epoch: Option<i64> = connection.query_row(find, (), |row| row.get(0)).optional()?;
    Ok(epoch.unwrap_or(0).cast_unsigned().min(MAX_EPOCH))
}

/// The epoch to write in from now on; raises it after an unclean shutdown with write-behind, which has returned versions that
/// the file does not contain.
pub(super) fn resolve_on_open(connection: &Connection) -> Result<u64> {
    let known = read(connection)?;
    let key = clean_shutdown::key();
    let partition = key.partition.to_string();
    let name = (partition.as_str(), key.table.as_str(), key.id.as_str());
    let find = "SELECT value, version FROM rows WHERE partition = ?1 AND tab = ?2 AND id = ?3";
    let found = connection.query_row(find, name, |row| {
        let (value, version) = (row.get_ref(0)?.as_blob().unwrap_or_default(), row.get_ref(1)?.as_i64().unwrap_or(0));
        Ok(clean_shutdown::next_epoch(value, version.cast_unsigned()))
    });
    let is_quarantined = "SELECT 1 FROM damaged WHERE partition = ?1 AND tab = ?2 AND id = ?3 AND free = 0";
    let next = match found.optional()? {
        Some(next) => next.min(MAX_EPOCH),
        // The shutdown record is damaged: assume an unclean shutdown.
        None if connection.prepare(is_quarantined)?.exists(name)? => epoch_after(0, SystemClock.now()),
        None => 0,
    };
    if next > known {
        set(connection, next)?;
    }
    Ok(known.max(next))
}

/// Stores the epoch.
pub(super) fn set(connection: &Connection, epoch: u64) -> Result<()> {
    let write = "INSERT INTO facts VALUES ('epoch', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(write, [epoch.min(MAX_EPOCH).cast_signed()]).map(|_| ())
}

/// The highest epoch of a file, by its stored epoch and by the versions of its rows.
pub(super) fn highest(connection: &Connection) -> Result<u64> {
    // Versions beyond this range are damage.
    let find = "SELECT coalesce(max(version), 0) FROM rows WHERE version BETWEEN 0 AND 9007199254740991";
    let version: i64 = connection.query_row(find, (), |row| row.get(0))?;
    // A file of the first schema stores no epoch.
    Ok(read(connection).unwrap_or(0).max(of_version(version.cast_unsigned())))
}
