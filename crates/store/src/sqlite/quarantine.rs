//! Rows that are not what was written: taken out of the way, and kept for people to look at.
//!
//! In: the name of a row. Out: its raw columns in the table `damaged`, and the memory that its key is not free. Whoever
//! asks for the key is still told that it is damaged: to say it was never there could make an effect happen twice. A
//! write that expects nothing, or a removal, frees the key.

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

/// A version beyond this is part of the damage.
const MAX_VERSION: i64 = 1 << 52;

/// A row that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedRow {
    /// The partition, as text.
    pub partition: String,
    /// The table.
    pub table: String,
    /// The row's id.
    pub id: String,
    /// When it was found.
    pub found_at: Timestamp,
    /// What is wrong with it.
    pub reason: String,
    /// Whether its key was written or removed since, and so is free.
    pub replaced: bool,
    /// The record, as far as it can be read.
    pub value: Vec<u8>,
}

/// Which keys are not free, and the version each may have had.
#[derive(Default)]
pub(super) struct Quarantine {
    /// Almost always false, so that nobody pays for what almost never happens.
    has_keys: AtomicBool,
    keys: Mutex<HashMap<String, u64>>,
}

/// The text a key is found by. No name holds the character between its parts.
fn key_text(name: RowName<'_>) -> String {
    format!("{}\0{}\0{}", name.partition, name.table, name.id)
}

impl Quarantine {
    /// What was set aside when the store was open before.
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

    /// The version it may have had, if a row of this name was set aside.
    pub(super) fn version(&self, name: RowName<'_>) -> Option<u64> {
        if !self.has_keys.load(Ordering::Acquire) {
            return None;
        }
        self.lock_keys().get(&key_text(name)).copied()
    }

    /// Takes a row out of the table, inside a transaction. Should that fail, the row is found damaged once more.
    pub(super) fn quarantine_row(
        &self,
        hand: &Connection,
        name: RowName<'_>,
        number: i64,
        error: &StoreError,
        now: Timestamp,
    ) -> Result<u64> {
        let reason = if let StoreError::Damaged { reason, .. } = error { reason } else { "it cannot be read" };
        let version = hand
            .query_row("SELECT version FROM rows WHERE rowid = ?1", [number], |row| {
                Ok(plausible_version(row.get_ref(0)?))
            })
            .optional()?;
        let mut keep = hand.prepare_cached(
            "INSERT INTO damaged SELECT ?2, ?3, ?4, ?5, ?6, 0, version, stamp, layout, expires, created, updated, body,
             head, value FROM rows WHERE rowid = ?1",
        )?;
        let (partition, table, id) = (name.partition, name.table.as_str(), name.id);
        keep.execute((number, partition, table, id, now.millis(), reason))?;
        hand.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?.execute([number])?;
        tracing::warn!(table, id, reason, "a stored record cannot be read and is set aside");
        let version = version.unwrap_or(0);
        // Known before it is committed: at no moment may the key look free.
        self.lock_keys().insert(key_text(name), version);
        self.has_keys.store(true, Ordering::Release);
        Ok(version)
    }

    /// The key is free again, once the transaction is committed.
    pub(super) fn release(&self, hand: &Connection, name: RowName<'_>) -> Result<String> {
        let mut free = hand
            .prepare_cached("UPDATE damaged SET free = 1 WHERE partition = ?1 AND tab = ?2 AND id = ?3 AND free = 0")?;
        free.execute((name.partition, name.table.as_str(), name.id))?;
        Ok(key_text(name))
    }

    /// The transaction that freed these is committed.
    pub(super) fn forget_released(&self, freed: &[String]) {
        if freed.is_empty() {
            return;
        }
        let mut keys = self.lock_keys();
        for key in freed {
            keys.remove(key);
        }
        self.has_keys.store(!keys.is_empty(), Ordering::Release);
    }
}

/// What is said of a row that was set aside.
pub(super) fn quarantined_error(name: RowName<'_>) -> StoreError {
    name.damaged_error("it was damaged, and set aside; remove it, or write it without an expectation")
}

/// Looks at a whole row, inside a transaction, and sets it aside if it is not what was written.
pub(super) fn inspect(aside: &Quarantine, hand: &Connection, name: RowName<'_>, now: Timestamp) -> Result<()> {
    let mut find = hand.prepare_cached(
        "SELECT version, stamp, layout, expires, created, updated, body, head, value, rowid FROM rows
         WHERE partition = ?1 AND tab = ?2 AND id = ?3",
    )?;
    let found = find.query_row((name.partition, name.table.as_str(), name.id), |found| {
        // Long before any end, so that an expired row is looked at too.
        Ok((row::read(found, 0, name, Timestamp::from_millis(i64::MIN))?.err(), found.get(9)?))
    });
    if let Some((Some(damaged), number)) = found.optional()? {
        aside.quarantine_row(hand, name, number, &damaged, now)?;
    }
    Ok(())
}

/// A version, unless it cannot be one.
fn plausible_version(column: ValueRef<'_>) -> u64 {
    column.as_i64().ok().filter(|version| (0..MAX_VERSION).contains(version)).map_or(0, i64::cast_unsigned)
}

impl Sqlite {
    /// The rows that were found damaged and set aside, with what is left of them, the latest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    #[expect(clippy::disallowed_methods, reason = "it reads what may be long, and only people ask for it")]
    pub async fn quarantined_rows(&self) -> Result<Vec<QuarantinedRow>, StoreError> {
        // Whatever was found before this was asked is set aside first.
        self.writer.wait_for_inspections().await?;
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || list(&path).map_err(|error| error::unavailable(&error)));
        reading.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the reading was cut short".into())))
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

/// A row somebody could not read.
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
