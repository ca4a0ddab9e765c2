//! One batch, inside a transaction that may hold others: all of it, or a refusal before anything was written.
//!
//! In: a connection in a transaction, a batch. Out: versions and what watchers are to be told once it is committed.
//! `sweep` is what a sweep does. An error of SQLite itself ends the whole transaction; a refusal concerns this batch alone.

mod sweep;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Result};
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Action, Applied, Batch, Change, Partition, PriorRow, RowKey, StoreError, Table, Write, WriteContext},
    clock::Timestamp,
};

use super::{
    super::{
        error,
        quarantine::{self, Quarantine},
        row::{RowHead, RowName, crc32_of_body, partition_key},
    },
    Task,
    row_head_cache::RowHeadCache,
};
use crate::watch::ChangeFeed;

/// A connection in a transaction, and the statements every batch needs: looked up once for all of them.
pub(super) struct TxWriter<'c> {
    connection: &'c Connection,
    quarantine: &'c Quarantine,
    row_heads: &'c mut RowHeadCache,
    /// The lowest version a row is written with.
    floor: u64,
    find: CachedStatement<'c>,
    replace: CachedStatement<'c>,
    insert: CachedStatement<'c>,
}

impl<'c> TxWriter<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        aside: &'c Quarantine,
        heads: &'c mut RowHeadCache,
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
            "INSERT INTO rows (version, stamp, layout, created, updated, body, head, value, expires, partition, tab, id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?;
        Ok(Self { connection, quarantine: aside, row_heads: heads, floor, find, replace, insert })
    }
}

/// What a job did.
pub(super) struct TaskOutput {
    pub(super) versions: Vec<u64>,
    pub(super) changes: Vec<(RowKey, Option<u64>)>,
    /// Keys of damaged rows that are free once this is committed.
    pub(super) released_keys: Vec<String>,
}

/// A row as it is before the batch.
#[derive(Default)]
struct ExistingRow {
    /// Its number, also when it has expired: its place is taken all the same.
    rowid: Option<i64>,
    /// Absent where it has expired.
    head: Option<RowHead>,
    /// It could not be read and was set aside: the version it may have had, and what is wrong with it.
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

/// Does a job. The inner error is a refusal.
pub(super) fn run_task(
    hand: &mut TxWriter<'_>,
    task: &Task,
    news: &ChangeFeed,
) -> Result<Result<TaskOutput, StoreError>, StoreError> {
    match task {
        Task::Commit(batch, now) => commit(hand, batch, *now, news),
        Task::Sweep(most, now) => {
            hand.row_heads.clear();
            let swept = sweep::run(hand.connection, hand.quarantine, *most, *now)
                .map_err(|error| error::unavailable(&error))?;
            Ok(Ok(TaskOutput { versions: vec![swept as u64], changes: Vec::new(), released_keys: Vec::new() }))
        }
        Task::Inspect(suspects, now) => {
            hand.row_heads.clear();
            for suspect in suspects {
                let inspected = quarantine::inspect(hand.quarantine, hand.connection, suspect.name(), *now);
                inspected.map_err(|error| error::row_error(suspect.table, &suspect.id.as_str().into(), &error))?;
            }
            Ok(Ok(TaskOutput { versions: Vec::new(), changes: Vec::new(), released_keys: Vec::new() }))
        }
    }
}

fn commit(
    hand: &mut TxWriter<'_>,
    batch: &Batch,
    now: Timestamp,
    news: &ChangeFeed,
) -> Result<Result<TaskOutput, StoreError>, StoreError> {
    let partition = partition_key(&batch.partition);
    let seen = match batch.fence {
        Some(_) => read_fence(hand.connection, &partition).map_err(|error| error::unavailable(&error))?,
        None => 0,
    };
    if let Some(given) = batch.fence.filter(|given| *given < seen) {
        return Ok(Err(StoreError::Fenced { given, seen }));
    }
    // All are looked at before the first is written, so a refusal leaves nothing to undo.
    let writing = WriteContext { stamp: batch.stamp, floor: hand.floor, now };
    let mut found = Vec::with_capacity(batch.writes.len());
    for write in &batch.writes {
        let row = find_row(hand, row_name(&partition, write), now)?;
        match write.apply(&row.before(), writing) {
            Ok(applied) => found.push((row, applied)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if let Some(given) = batch.fence.filter(|given| *given > seen) {
        raise_fence(hand.connection, &partition, given).map_err(|error| error::unavailable(&error))?;
    }
    let mut made =
        TaskOutput { versions: Vec::with_capacity(found.len()), changes: Vec::new(), released_keys: Vec::new() };
    for (write, (row, Applied { version, changed, action })) in batch.writes.iter().zip(found) {
        let name = row_name(&partition, write);
        let at_row = |error| error::row_error(write.table, &write.id, &error);
        apply_change(hand, name, &write.change, &row, action, now).map_err(at_row)?;
        if row.damaged.is_some() {
            made.released_keys.push(hand.quarantine.release(hand.connection, name).map_err(at_row)?);
        }
        made.versions.push(version);
        if changed && news.has_subscribers(write.table) {
            made.changes.push((row_key(&batch.partition, write.table, &write.id), (version > 0).then_some(version)));
        }
    }
    Ok(Ok(made))
}

fn row_name<'a>(partition: &'a str, write: &'a Write) -> RowName<'a> {
    RowName { partition, table: write.table, id: &write.id }
}

fn row_key(partition: &Partition, table: Table, id: &SmolStr) -> RowKey {
    RowKey { partition: partition.clone(), table, id: id.clone() }
}

fn read_fence(connection: &Connection, partition: &str) -> Result<u64> {
    let mut find = connection.prepare_cached("SELECT fence FROM fences WHERE partition = ?1")?;
    let fence: Option<i64> = find.query_row([partition], |row| row.get(0)).optional()?;
    Ok(fence.unwrap_or(0).cast_unsigned())
}

fn raise_fence(connection: &Connection, partition: &str, fence: u64) -> Result<()> {
    let mut raise = connection.prepare_cached("INSERT OR REPLACE INTO fences VALUES (?1, ?2)")?;
    raise.execute((partition, fence.cast_signed())).map(|_| ())
}

/// What is there. An expired row has a number and no head; one that is damaged is set aside, whatever comes of the batch.
fn find_row(hand: &mut TxWriter<'_>, name: RowName<'_>, now: Timestamp) -> Result<ExistingRow, StoreError> {
    if let Some((number, head)) = hand.row_heads.find(name).filter(|(_, head)| !head.is_expired(now)) {
        return Ok(ExistingRow { rowid: Some(number), head: Some(head), damaged: None });
    }
    let found = hand.find.query_row((name.partition, name.table.as_str(), name.id), |row| {
        Ok((RowHead::read(row, 0, name)?, row.get(8)?))
    });
    let at_row = |error| error::row_error(name.table, &name.id.into(), &error);
    Ok(match found.optional().map_err(at_row)? {
        None => {
            let damaged = hand.quarantine.version(name).map(|version| (version, quarantine::quarantined_error(name)));
            ExistingRow { damaged, ..ExistingRow::default() }
        }
        Some((Ok(head), number)) => {
            ExistingRow { rowid: Some(number), head: Some(head).filter(|head| !head.is_expired(now)), damaged: None }
        }
        Some((Err(damaged), number)) => {
            let version =
                hand.quarantine.quarantine_row(hand.connection, name, number, &damaged, now).map_err(at_row)?;
            ExistingRow { damaged: Some((version, damaged)), ..ExistingRow::default() }
        }
    })
}

/// Makes one change in the table.
fn apply_change(
    hand: &mut TxWriter<'_>,
    name: RowName<'_>,
    change: &Change,
    found: &ExistingRow,
    action: Action,
    now: Timestamp,
) -> Result<()> {
    match (action, change) {
        (
            Action::Put { row_version: seen, created },
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
        ) => {
            let (version, stamp, layout, body) = (seen.number, seen.stamp, *schema, crc32_of_body(value));
            let new = RowHead { version, stamp, layout, expires: *expires, created, updated: now, body_checksum: body };
            // Where an end stays what it is, its index need not be touched.
            let same_end = found.head.is_some_and(|head| head.expires == *expires);
            put_row(hand, name, &new, value, found.rowid, same_end)?;
        }
        (Action::Touch, Change::Touch { expires }) => {
            if let (Some(head), Some(number)) = (found.head, found.rowid) {
                let new = RowHead { expires: *expires, ..head };
                let mut touch =
                    hand.connection.prepare_cached("UPDATE rows SET expires = ?1, head = ?2 WHERE rowid = ?3")?;
                expect_one_row(touch.execute((new.expires.map(Timestamp::millis), new.checksum(name), number))?)?;
                hand.row_heads.insert(name, number, new);
            }
        }
        (Action::Remove, _) => {
            hand.row_heads.remove(name);
            if let Some(number) = found.rowid {
                hand.connection.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?.execute([number])?;
            }
        }
        (Action::Keep | Action::Put { .. } | Action::Touch, _) => {}
    }
    Ok(())
}

fn put_row(
    hand: &mut TxWriter<'_>,
    name: RowName<'_>,
    head: &RowHead,
    value: &[u8],
    number: Option<i64>,
    same_end: bool,
) -> Result<()> {
    let (version, stamp, layout) = (head.version.cast_signed(), head.stamp.cast_signed(), head.layout);
    let (created, updated, expires) = (head.created.millis(), head.updated.millis(), head.expires);
    let (body, sum, expires) = (head.body_checksum, head.checksum(name), expires.map(Timestamp::millis));
    let Some(number) = number else {
        let (partition, table, id) = (name.partition, name.table.as_str(), name.id);
        let row = (version, stamp, layout, created, updated, body, sum, value, expires, partition, table, id);
        hand.insert.execute(row)?;
        hand.row_heads.insert(name, hand.connection.last_insert_rowid(), *head);
        return Ok(());
    };
    expect_one_row(hand.replace.execute((version, stamp, layout, created, updated, body, sum, value, number))?)?;
    if !same_end {
        let mut end = hand.connection.prepare_cached("UPDATE rows SET expires = ?1 WHERE rowid = ?2")?;
        end.execute((expires, number))?;
    }
    hand.row_heads.insert(name, number, *head);
    Ok(())
}

/// A row that is known is there. Were it not, nothing of this may be committed.
fn expect_one_row(changed: usize) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}
