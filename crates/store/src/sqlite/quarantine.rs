//! Quarantine of rows whose checksum does not match: moved to another table for inspection.
//!
//! In: the name of a row. Out: its raw columns in the table `damaged`, and a blocked key. Loads of the key still fail as
//! damaged: reporting it as absent could execute an effect twice. An unconditional write or a removal releases the key.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rusqlite::{Connection, OptionalExtension, Result, types::ValueRef};
use toolhub_storage::{
    backend::{StoreError, Table},
    clock::Timestamp,
};

use super::{Sqlite, connection, error, row, row::RowName};

/// A higher version is part of the damage.
const MAX_VERSION: i64 = 1 << 52;

/// A quarantined row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedRow {
    /// The partition, as text.
    pub partition: String,
    /// The table.
    pub table: String,
    /// The row's id.
    pub id: String,
    /// When the damage was detected.
    pub found_at: Timestamp,
    /// What is wrong with it.
    pub reason: String,
    /// Whether its key was written or removed since, and so is released.
    pub replaced: bool,
    /// The record, as far as it can be read.
    pub value: Vec<u8>,
}

/// The blocked keys, and the version each may have had.
#[derive(Default)]
pub(super) struct Quarantine {
    /// Fast path without the lock: almost always false.
    has_keys: AtomicBool,
    keys: Mutex<HashMap<String, u64>>,
}

/// The lookup text of a key. No part contains the NUL separator.
fn key_text(name: RowName<'_>) -> String {
    format!("{}\0{}\0{}", name.partition, name.table, name.id)
}

impl Quarantine {
    /// Loads the keys that earlier runs have quarantined.
    pub(super) fn load(connection: &Connection) -> Result<Self> {
        let mut find = connection.prepare("SELECT partition, tab, id, version FROM damaged WHERE free = 0")?;
        let found = find.query_map((), |row| {
            let (partition, table, id): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((format!("{partition}\0{table}\0{id}"), plausible_version(row.get_ref(3)?)))
        })?;
        let keys: HashMap<String, u64> = found.collect::<Result<_>>()?;
        Ok(Self { has_keys: AtomicBool::new(!keys.is_empty()), keys: Mutex::new(keys) })
    }

    fn lock_keys(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version a row may have had, if it is quarantined.
    pub(super) fn version(&self, name: RowName<'_>) -> Option<u64> {
        if !self.has_keys.load(Ordering::Acquire) {
            return None;
        }
        self.lock_keys().get(&key_text(name)).copied()
    }

    /// The number of blocked keys.
    pub(super) fn key_count(&self) -> usize {
        if self.has_keys.load(Ordering::Acquire) { self.lock_keys().len() } else { 0 }
    }

    /// Moves a row to the quarantine table, inside a transaction. If that fails, the damage is detected again later.
    pub(super) fn quarantine_row(
        &self,
        tx: &Connection,
        name: RowName<'_>,
        rowid: i64,
        error: &StoreError,
        now: Timestamp,
    ) -> Result<u64> {
        let reason = if let StoreError::Damaged { reason, .. } = error { reason } else { "it cannot be read" };
        let version = tx
            .query_row("SELECT version FROM rows WHERE rowid = ?1", [rowid], |row| {
                Ok(plausible_version(row.get_ref(0)?))
            })
            .optional()?;
        let mut copy = tx.prepare_cached(
            "INSERT INTO damaged SELECT ?2, ?3, ?4, ?5, ?6, 0, version, stamp, layout, expires, created, updated, body,
             head, value FROM rows WHERE rowid = ?1",
        )?;
        let (partition, table, id) = (name.partition, name.table.as_str(), name.id);
        copy.execute((rowid, partition, table, id, now.millis(), reason))?;
        tx.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?.execute([rowid])?;
        tracing::warn!(table, id, reason, "quarantined damaged record");
        let version = version.unwrap_or(0);
        // Before the commit: the key must never look free in between.
        self.lock_keys().insert(key_text(name), version);
        self.has_keys.store(true, Ordering::Release);
        Ok(version)
    }

    /// Releases a key within the transaction; `forget_released` completes it after the commit.
    pub(super) fn release(&self, tx: &Connection, name: RowName<'_>) -> Result<String> {
        let mut free = tx
            .prepare_cached("UPDATE damaged SET free = 1 WHERE partition = ?1 AND tab = ?2 AND id = ?3 AND free = 0")?;
        free.execute((name.partition, name.table.as_str(), name.id))?;
        Ok(key_text(name))
    }

    /// Unblocks keys after the transaction that released them was committed.
    pub(super) fn forget_released(&self, released: &[String]) {
        if released.is_empty() {
            return;
        }
        let mut keys = self.lock_keys();
        for key in released {
            keys.remove(key);
        }
        self.has_keys.store(!keys.is_empty(), Ordering::Release);
    }
}

/// The error for a quarantined row.
pub(super) fn quarantined_error(name: RowName<'_>) -> StoreError {
    name.damaged_error("it was damaged and is quarantined; remove it, or overwrite it unconditionally")
}

/// Verifies a whole row, inside a transaction, and quarantines it if it is damaged.
pub(super) fn inspect(quarantine: &Quarantine, tx: &Connection, name: RowName<'_>, now: Timestamp) -> Result<()> {
    let mut find = tx.prepare_cached(
        "SELECT version, stamp, layout, expires, created, updated, body, head, value, rowid FROM rows
         WHERE partition = ?1 AND tab = ?2 AND id = ?3",
    )?;
    let found = find.query_row((name.partition, name.table.as_str(), name.id), |found| {
        // The earliest time, so that an expired row is verified too.
        Ok((row::read(found, 0, name, Timestamp::from_millis(i64::MIN))?.err(), found.get(9)?))
    });
    if let Some((Some(damaged), rowid)) = found.optional()? {
        quarantine.quarantine_row(tx, name, rowid, &damaged, now)?;
    }
    Ok(())
}

/// The version in this column, or 0 if it is not plausible.
fn plausible_version(column: ValueRef<'_>) -> u64 {
    column.as_i64().ok().filter(|version| (0..MAX_VERSION).contains(version)).map_or(0, i64::cast_unsigned)
}

impl Sqlite {
    /// The quarantined rows with what is left of them, latest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    #[expect(clippy::disallowed_methods, reason = "the values may be large, and only operators call it")]
    pub async fn quarantined_rows(&self) -> Result<Vec<QuarantinedRow>, StoreError> {
        // Complete the pending inspections first.
        self.writer.wait_for_inspections().await?;
        let path = self.path().to_owned();
        let task = tokio::task::spawn_blocking(move || list(&path).map_err(|error| error::unavailable(&error)));
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("listing the quarantine was aborted".into())))
    }
}

fn list(path: &Path) -> Result<Vec<QuarantinedRow>> {
    let connection = connection::open_reader(path)?;
    let mut list = connection.prepare(
        "SELECT partition, tab, id, found, reason, free, value FROM damaged ORDER BY found DESC, rowid DESC",
    )?;
    let rows = list.query_map((), |row| {
        let value = match row.get_ref(6)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        Ok(QuarantinedRow {
            partition: row.get(0)?,
            table: row.get(1)?,
            id: row.get(2)?,
            found_at: Timestamp::from_millis(row.get(3)?),
            reason: row.get(4)?,
            replaced: row.get(5)?,
            value,
        })
    })?;
    rows.collect()
}

/// A row that a load or scan could not read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Suspect {
    pub(super) partition: String,
    pub(super) table: Table,
    pub(super) id: String,
}

impl Suspect {
    pub(super) fn name(&self) -> RowName<'_> {
        RowName { partition: &self.partition, table: self.table, id: &self.id }
    }
}
