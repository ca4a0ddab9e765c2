//! Executes one task inside a transaction that it may share with others: completely, or refused before anything is written.
//!
//! In: a connection in a transaction, a task. Out: versions, and the change events to emit after the commit. `sweep` executes
//! a sweep. A SQLite error aborts the whole transaction; a refusal concerns this task alone.

mod sweep;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Result};
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{
        Action, Applied, Batch, Change, Partition, PriorRow, RowKey, StoreError, Table, Terms, Write, WriteContext,
    },
    clock::Timestamp,
};

use super::{
    super::{
        error,
        quarantine::{self, Quarantine},
        row::{RowHead, RowName, crc32_of_body, partition_key},
        term_block::block_of,
    },
    Caches, Task,
};
use crate::change_feed::ChangeFeed;

/// A connection in a transaction, with the statements that every batch needs, prepared once per transaction.
pub(super) struct TxWriter<'c> {
    connection: &'c Connection,
    quarantine: &'c Quarantine,
    caches: &'c mut Caches,
    /// The lowest version to assign.
    floor: u64,
    find: CachedStatement<'c>,
    replace: CachedStatement<'c>,
    insert: CachedStatement<'c>,
}

impl<'c> TxWriter<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        quarantine: &'c Quarantine,
        caches: &'c mut Caches,
        floor: u64,
    ) -> Result<Self> {
        let find = connection.prepare_cached(
            "SELECT version, stamp, layout, expires, created, updated, body, head, rowid FROM rows
             WHERE partition = ?1 AND tab = ?2 AND id = ?3",
        )?;
        let replace = connection.prepare_cached(
            "UPDATE rows SET version = ?1, stamp = ?2, layout = ?3, created = ?4, updated = ?5, body = ?6, head = ?7,
             value = ?8 WHERE rowid = ?9",
        )?;
        let insert = connection.prepare_cached(
            "INSERT INTO rows
             (version, stamp, layout, created, updated, body, head, value, expires, partition, tab, id, terms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        Ok(Self { connection, quarantine, caches, floor, find, replace, insert })
    }
}

/// The result of a task.
pub(super) struct TaskOutput {
    pub(super) versions: Vec<u64>,
    pub(super) changes: Vec<(RowKey, Option<u64>)>,
    /// Quarantined keys that are released once this is committed.
    pub(super) released_keys: Vec<String>,
}

/// A row before the batch.
#[derive(Default)]
struct ExistingRow {
    /// Its rowid, also if it has expired: the row still occupies its key.
    rowid: Option<i64>,
    /// `None` if it has expired.
    head: Option<RowHead>,
    /// If it is quarantined: the version it may have had, and the error.
    damaged: Option<(u64, StoreError)>,
}

impl ExistingRow {
    fn before(&self) -> PriorRow {
        match &self.damaged {
            Some((version, error)) => PriorRow::Damaged { version: *version, error: error.clone() },
            None => PriorRow::from_found(self.head.map(|head| (head.row_version(), head.created))),
        }
    }
}

/// Executes a task. The inner error is a refusal.
pub(super) fn run_task(
    tx: &mut TxWriter<'_>,
    task: &Task,
    change_feed: &ChangeFeed,
) -> Result<Result<TaskOutput, StoreError>, StoreError> {
    match task {
        Task::Commit(batch, now) => commit(tx, batch, *now, change_feed),
        Task::Sweep(limit, now) => {
            tx.caches.clear();
            let swept =
                sweep::run(tx.connection, tx.quarantine, *limit, *now).map_err(|error| error::unavailable(&error))?;
            Ok(Ok(TaskOutput { versions: vec![swept as u64], changes: Vec::new(), released_keys: Vec::new() }))
        }
        Task::Inspect(suspects, now) => {
            tx.caches.clear();
            for suspect in suspects {
                let inspected = quarantine::inspect(tx.quarantine, tx.connection, suspect.name(), *now);
                inspected.map_err(|error| error::row_error(suspect.table, &suspect.id.as_str().into(), &error))?;
            }
            Ok(Ok(TaskOutput { versions: Vec::new(), changes: Vec::new(), released_keys: Vec::new() }))
        }
    }
}

fn commit(
    tx: &mut TxWriter<'_>,
    batch: &Batch,
    now: Timestamp,
    change_feed: &ChangeFeed,
) -> Result<Result<TaskOutput, StoreError>, StoreError> {
    let partition = partition_key(&batch.partition);
    // Check all writes before the first is applied, so that a refusal leaves nothing to undo.
    let context = WriteContext { stamp: batch.stamp, floor: tx.floor, now };
    let mut found = Vec::with_capacity(batch.writes.len());
    for write in &batch.writes {
        let row = find_row(tx, row_name(&partition, write), now)?;
        match write.apply(&row.before(), context) {
            Ok(applied) => found.push((row, applied)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if batch.no_other_rows
        && has_other_rows(tx.connection, &partition, batch, now).map_err(|e| error::unavailable(&e))?
    {
        return Ok(Err(StoreError::OtherRows));
    }
    let mut output =
        TaskOutput { versions: Vec::with_capacity(found.len()), changes: Vec::new(), released_keys: Vec::new() };
    for (write, (row, Applied { version, changed, action })) in batch.writes.iter().zip(found) {
        let name = row_name(&partition, write);
        let row_error = |error| error::row_error(write.table, &write.id, &error);
        apply_change(tx, name, (&write.change, batch.terms_of(write)), &row, action, now).map_err(row_error)?;
        if row.damaged.is_some() {
            output.released_keys.push(tx.quarantine.release(tx.connection, name).map_err(row_error)?);
        }
        output.versions.push(version);
        if changed && change_feed.has_subscribers(write.table) {
            output.changes.push((row_key(&batch.partition, write.table, &write.id), (version > 0).then_some(version)));
        }
    }
    Ok(Ok(output))
}

fn row_name<'a>(partition: &'a str, write: &'a Write) -> RowName<'a> {
    RowName { partition, table: write.table, id: &write.id }
}

fn row_key(partition: &Partition, table: Table, id: &SmolStr) -> RowKey {
    RowKey { partition: partition.clone(), table, id: id.clone() }
}

/// Whether the partition holds a row that the batch does not write.
fn has_other_rows(connection: &Connection, partition: &str, batch: &Batch, now: Timestamp) -> Result<bool> {
    let mut find = connection.prepare_cached(
        "SELECT tab, id FROM rows INDEXED BY by_name WHERE partition = ?1 AND (expires IS NULL OR expires > ?2)",
    )?;
    let mut rows = find.query((partition, now.millis()))?;
    while let Some(row) = rows.next()? {
        let (table, id) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
        if !batch.writes.iter().any(|write| write.table.as_str() == table && write.id == id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finds the existing row. An expired row has a rowid and no head; a damaged row is quarantined even if the batch is refused.
fn find_row(tx: &mut TxWriter<'_>, name: RowName<'_>, now: Timestamp) -> Result<ExistingRow, StoreError> {
    if let Some((rowid, head)) = tx.caches.row_heads.find(name).filter(|(_, head)| !head.is_expired(now)) {
        return Ok(ExistingRow { rowid: Some(rowid), head: Some(head), damaged: None });
    }
    let found = tx.find.query_row((name.partition, name.table.as_str(), name.id), |row| {
        Ok((RowHead::read(row, 0, name)?, row.get(8)?))
    });
    let row_error = |error| error::row_error(name.table, &name.id.into(), &error);
    Ok(match found.optional().map_err(row_error)? {
        None => {
            let damaged = tx.quarantine.version(name).map(|version| (version, quarantine::quarantined_error(name)));
            ExistingRow { damaged, ..ExistingRow::default() }
        }
        Some((Ok(head), rowid)) => {
            ExistingRow { rowid: Some(rowid), head: Some(head).filter(|head| !head.is_expired(now)), damaged: None }
        }
        Some((Err(damaged), rowid)) => {
            let version = tx.quarantine.quarantine_row(tx.connection, name, rowid, &damaged, now).map_err(row_error)?;
            tx.caches.term_blocks.remove_table(name.table);
            ExistingRow { damaged: Some((version, damaged)), ..ExistingRow::default() }
        }
    })
}

/// Applies one change to the table.
fn apply_change(
    tx: &mut TxWriter<'_>,
    name: RowName<'_>,
    (change, terms): (&Change, &Terms),
    found: &ExistingRow,
    action: Action,
    now: Timestamp,
) -> Result<()> {
    match (action, change) {
        (
            Action::Put { row_version, created },
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
        ) => {
            let (version, stamp, layout, body) = (row_version.number, row_version.stamp, *schema, crc32_of_body(value));
            let new = RowHead { version, stamp, layout, expires: *expires, created, updated: now, body_checksum: body };
            // If the expiry is unchanged, its index need not be updated.
            let same_expiry = found.head.is_some_and(|head| head.expires == *expires);
            put_row(tx, name, &new, (value, terms), found.rowid, same_expiry)?;
            index_terms(tx, name, terms)?;
        }
        (Action::Touch, Change::Touch { expires }) => {
            if let (Some(head), Some(rowid)) = (found.head, found.rowid) {
                let new = RowHead { expires: *expires, ..head };
                let mut touch =
                    tx.connection.prepare_cached("UPDATE rows SET expires = ?1, head = ?2 WHERE rowid = ?3")?;
                expect_one_row(touch.execute((new.expires.map(Timestamp::millis), new.checksum(name), rowid))?)?;
                tx.caches.row_heads.insert(name, rowid, new);
            }
        }
        (Action::Remove, _) => {
            tx.caches.row_heads.remove(name);
            if let Some(rowid) = found.rowid {
                tx.caches.term_blocks.remove_table(name.table);
                tx.connection.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?.execute([rowid])?;
            }
        }
        (Action::Keep | Action::Put { .. } | Action::Touch, _) => {}
    }
    Ok(())
}

fn put_row(
    tx: &mut TxWriter<'_>,
    name: RowName<'_>,
    head: &RowHead,
    (value, terms): (&[u8], &Terms),
    rowid: Option<i64>,
    same_expiry: bool,
) -> Result<()> {
    let (version, stamp, layout) = (head.version.cast_signed(), head.stamp.cast_signed(), head.layout);
    let (created, updated, expires) = (head.created.millis(), head.updated.millis(), head.expires);
    let terms = Some(terms.as_str()).filter(|terms| !terms.is_empty());
    let (body, checksum, expires) = (head.body_checksum, head.checksum(name), expires.map(Timestamp::millis));
    let Some(rowid) = rowid else {
        let (partition, table, id) = (name.partition, name.table.as_str(), name.id);
        let row =
            (version, stamp, layout, created, updated, body, checksum, value, expires, partition, table, id, terms);
        tx.insert.execute(row)?;
        tx.caches.row_heads.insert(name, tx.connection.last_insert_rowid(), *head);
        return Ok(());
    };
    expect_one_row(tx.replace.execute((version, stamp, layout, created, updated, body, checksum, value, rowid))?)?;
    // A statement that names the terms updates their index, also if they stay the same.
    if terms.is_some() || tx.caches.tables_with_terms.contains(&name.table) {
        let mut set_terms =
            tx.connection.prepare_cached("UPDATE rows SET terms = ?1 WHERE rowid = ?2 AND terms IS NOT ?1")?;
        set_terms.execute((terms, rowid))?;
    }
    if !same_expiry {
        let mut set_expiry = tx.connection.prepare_cached("UPDATE rows SET expires = ?1 WHERE rowid = ?2")?;
        set_expiry.execute((expires, rowid))?;
    }
    tx.caches.row_heads.insert(name, rowid, *head);
    Ok(())
}

/// Adds the row's block to the index of each of its terms.
fn index_terms(tx: &mut TxWriter<'_>, name: RowName<'_>, terms: &Terms) -> Result<()> {
    let (tenant, block) = (name.partition.split('/').next().unwrap_or_default(), block_of(name.id));
    if !terms.is_empty() {
        tx.caches.tables_with_terms.insert(name.table);
    }
    for term in terms.iter() {
        if !tx.caches.term_blocks.insert(name.table, tenant, term, block) {
            let mut insert =
                tx.connection.prepare_cached("INSERT OR IGNORE INTO term_blocks VALUES (?1, ?2, ?3, ?4)")?;
            insert.execute((name.table.as_str(), tenant, term, block))?;
        }
    }
    Ok(())
}

/// A cached row must exist. If the statement changed no row, the transaction must not be committed.
fn expect_one_row(changed: usize) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}
