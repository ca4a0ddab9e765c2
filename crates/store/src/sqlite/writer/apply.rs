//! One batch, inside a transaction that may hold others: all of it, or a refusal before anything was written.
//!
//! In: a connection in a transaction, a batch. Out: versions and what watchers are to be told once it is committed.
//! `sweep` is what a sweep does. An error of SQLite itself ends the whole transaction; a refusal concerns this batch alone.

mod sweep;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Result};
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Action, Applied, Batch, Before, Change, Key, Partition, StoreError, Table, Write, Writing},
    clock::Timestamp,
};

use super::{
    super::{
        aside::{self, Aside},
        error,
        row::{Head, Name, body_of, text_of},
    },
    Task,
    heads::Heads,
};
use crate::watch::News;

/// A connection in a transaction, and the statements every batch needs: looked up once for all of them.
pub(super) struct Hand<'c> {
    connection: &'c Connection,
    aside: &'c Aside,
    heads: &'c mut Heads,
    /// The lowest version a row is written with.
    floor: u64,
    find: CachedStatement<'c>,
    replace: CachedStatement<'c>,
    insert: CachedStatement<'c>,
}

impl<'c> Hand<'c> {
    pub(super) fn new(connection: &'c Connection, aside: &'c Aside, heads: &'c mut Heads, floor: u64) -> Result<Self> {
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
        Ok(Self { connection, aside, heads, floor, find, replace, insert })
    }
}

/// What a job did.
pub(super) struct Made {
    pub(super) versions: Vec<u64>,
    pub(super) news: Vec<(Key, Option<u64>)>,
    /// Keys of damaged rows that are free once this is committed.
    pub(super) freed: Vec<String>,
}

/// A row as it is before the batch.
#[derive(Default)]
struct Found {
    /// Its number, also when it has expired: its place is taken all the same.
    number: Option<i64>,
    /// Absent where it has expired.
    head: Option<Head>,
    /// It could not be read and was set aside: the version it may have had, and what is wrong with it.
    damaged: Option<(u64, StoreError)>,
}

impl Found {
    fn before(&self) -> Before {
        match &self.damaged {
            Some((version, error)) => Before::Damaged { version: *version, error: error.clone() },
            None => Before::of(self.head.map(|head| (head.seen(), head.created))),
        }
    }
}

/// Does a job. The inner error is a refusal.
pub(super) fn job(hand: &mut Hand<'_>, task: &Task, news: &News) -> Result<Result<Made, StoreError>, StoreError> {
    match task {
        Task::Commit(batch, now) => commit(hand, batch, *now, news),
        Task::Sweep(most, now) => {
            hand.heads.forget_all();
            let swept = sweep::run(hand.connection, hand.aside, *most, *now).map_err(|error| error::nothing(&error))?;
            Ok(Ok(Made { versions: vec![swept as u64], news: Vec::new(), freed: Vec::new() }))
        }
        Task::Inspect(suspects, now) => {
            hand.heads.forget_all();
            for suspect in suspects {
                let inspected = aside::inspect(hand.aside, hand.connection, suspect.name(), *now);
                inspected.map_err(|error| error::at_row(suspect.table, &suspect.id.as_str().into(), &error))?;
            }
            Ok(Ok(Made { versions: Vec::new(), news: Vec::new(), freed: Vec::new() }))
        }
    }
}

fn commit(
    hand: &mut Hand<'_>,
    batch: &Batch,
    now: Timestamp,
    news: &News,
) -> Result<Result<Made, StoreError>, StoreError> {
    let partition = text_of(&batch.partition);
    let seen = match batch.fence {
        Some(_) => fence(hand.connection, &partition).map_err(|error| error::nothing(&error))?,
        None => 0,
    };
    if let Some(given) = batch.fence.filter(|given| *given < seen) {
        return Ok(Err(StoreError::Fenced { given, seen }));
    }
    // All are looked at before the first is written, so a refusal leaves nothing to undo.
    let writing = Writing { stamp: batch.stamp, floor: hand.floor, now };
    let mut found = Vec::with_capacity(batch.writes.len());
    for write in &batch.writes {
        let row = find(hand, name(&partition, write), now)?;
        match write.apply(&row.before(), writing) {
            Ok(applied) => found.push((row, applied)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if let Some(given) = batch.fence.filter(|given| *given > seen) {
        raise(hand.connection, &partition, given).map_err(|error| error::nothing(&error))?;
    }
    let mut made = Made { versions: Vec::with_capacity(found.len()), news: Vec::new(), freed: Vec::new() };
    for (write, (row, Applied { version, changed, action })) in batch.writes.iter().zip(found) {
        let name = name(&partition, write);
        let at_row = |error| error::at_row(write.table, &write.id, &error);
        change(hand, name, &write.change, &row, action, now).map_err(at_row)?;
        if row.damaged.is_some() {
            made.freed.push(hand.aside.free(hand.connection, name).map_err(at_row)?);
        }
        made.versions.push(version);
        if changed && news.is_heard(write.table) {
            made.news.push((key(&batch.partition, write.table, &write.id), (version > 0).then_some(version)));
        }
    }
    Ok(Ok(made))
}

fn name<'a>(partition: &'a str, write: &'a Write) -> Name<'a> {
    Name { partition, table: write.table, id: &write.id }
}

fn key(partition: &Partition, table: Table, id: &SmolStr) -> Key {
    Key { partition: partition.clone(), table, id: id.clone() }
}

fn fence(connection: &Connection, partition: &str) -> Result<u64> {
    let mut find = connection.prepare_cached("SELECT fence FROM fences WHERE partition = ?1")?;
    let fence: Option<i64> = find.query_row([partition], |row| row.get(0)).optional()?;
    Ok(fence.unwrap_or(0).cast_unsigned())
}

fn raise(connection: &Connection, partition: &str, fence: u64) -> Result<()> {
    let mut raise = connection.prepare_cached("INSERT OR REPLACE INTO fences VALUES (?1, ?2)")?;
    raise.execute((partition, fence.cast_signed())).map(|_| ())
}

/// What is there. An expired row has a number and no head; one that is damaged is set aside, whatever comes of the batch.
fn find(hand: &mut Hand<'_>, name: Name<'_>, now: Timestamp) -> Result<Found, StoreError> {
    if let Some((number, head)) = hand.heads.find(name).filter(|(_, head)| !head.is_expired(now)) {
        return Ok(Found { number: Some(number), head: Some(head), damaged: None });
    }
    let found = hand
        .find
        .query_row((name.partition, name.table.as_str(), name.id), |row| Ok((Head::read(row, 0, name)?, row.get(8)?)));
    let at_row = |error| error::at_row(name.table, &name.id.into(), &error);
    Ok(match found.optional().map_err(at_row)? {
        None => {
            let damaged = hand.aside.version(name).map(|version| (version, aside::damaged(name)));
            Found { damaged, ..Found::default() }
        }
        Some((Ok(head), number)) => {
            Found { number: Some(number), head: Some(head).filter(|head| !head.is_expired(now)), damaged: None }
        }
        Some((Err(damaged), number)) => {
            let version = hand.aside.set(hand.connection, name, number, &damaged, now).map_err(at_row)?;
            Found { damaged: Some((version, damaged)), ..Found::default() }
        }
    })
}

/// Makes one change in the table.
fn change(
    hand: &mut Hand<'_>,
    name: Name<'_>,
    change: &Change,
    found: &Found,
    action: Action,
    now: Timestamp,
) -> Result<()> {
    match (action, change) {
        (
            Action::Put { seen, created },
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
        ) => {
            let (version, stamp, layout, body) = (seen.version, seen.stamp, *schema, body_of(value));
            let new = Head { version, stamp, layout, expires: *expires, created, updated: now, body };
            // Where an end stays what it is, its index need not be touched.
            let same_end = found.head.is_some_and(|head| head.expires == *expires);
            put(hand, name, &new, value, found.number, same_end)?;
        }
        (Action::Touch, Change::Touch { expires }) => {
            if let (Some(head), Some(number)) = (found.head, found.number) {
                let new = Head { expires: *expires, ..head };
                let mut touch =
                    hand.connection.prepare_cached("UPDATE rows SET expires = ?1, head = ?2 WHERE rowid = ?3")?;
                one(touch.execute((new.expires.map(Timestamp::millis), new.checksum(name), number))?)?;
                hand.heads.keep(name, number, new);
            }
        }
        (Action::Remove, _) => {
            hand.heads.forget(name);
            if let Some(number) = found.number {
                hand.connection.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?.execute([number])?;
            }
        }
        (Action::Keep | Action::Put { .. } | Action::Touch, _) => {}
    }
    Ok(())
}

fn put(
    hand: &mut Hand<'_>,
    name: Name<'_>,
    head: &Head,
    value: &[u8],
    number: Option<i64>,
    same_end: bool,
) -> Result<()> {
    let (version, stamp, layout) = (head.version.cast_signed(), head.stamp.cast_signed(), head.layout);
    let (created, updated, expires) = (head.created.millis(), head.updated.millis(), head.expires);
    let (body, sum, expires) = (head.body, head.checksum(name), expires.map(Timestamp::millis));
    let Some(number) = number else {
        let (partition, table, id) = (name.partition, name.table.as_str(), name.id);
        let row = (version, stamp, layout, created, updated, body, sum, value, expires, partition, table, id);
        hand.insert.execute(row)?;
        hand.heads.keep(name, hand.connection.last_insert_rowid(), *head);
        return Ok(());
    };
    one(hand.replace.execute((version, stamp, layout, created, updated, body, sum, value, number))?)?;
    if !same_end {
        let mut end = hand.connection.prepare_cached("UPDATE rows SET expires = ?1 WHERE rowid = ?2")?;
        end.execute((expires, number))?;
    }
    hand.heads.keep(name, number, *head);
    Ok(())
}

/// A row that is known is there. Were it not, nothing of this may be committed.
fn one(changed: usize) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}
