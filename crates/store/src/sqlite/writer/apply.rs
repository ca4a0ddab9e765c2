//! One batch, inside a transaction that may hold others: all of it, or a refusal before anything was written.
//!
//! In: a connection in a transaction, a batch. Out: versions and what watchers are to be told once it is committed.
//! `sweep` is what a sweep does. An error of SQLite itself ends the whole transaction; a refusal concerns this batch alone.

mod sweep;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Result};
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Batch, Change, Expect, Key, Partition, StoreError, Table, Write},
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
struct Before {
    /// Its number, also when it has expired: its place is taken all the same.
    number: Option<i64>,
    /// A row that cannot be read was set aside.
    head: Result<Option<Head>, StoreError>,
    /// The version it has, or may have had before it was damaged.
    version: u64,
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
    let mut found = Vec::with_capacity(batch.writes.len());
    for write in &batch.writes {
        let before = before(hand, name(&partition, write), now)?;
        if let Err(refusal) = expect(write, &before) {
            return Ok(Err(refusal));
        }
        found.push(before);
    }
    if let Some(given) = batch.fence.filter(|given| *given > seen) {
        raise(hand.connection, &partition, given).map_err(|error| error::nothing(&error))?;
    }
    let mut made = Made { versions: Vec::with_capacity(found.len()), news: Vec::new(), freed: Vec::new() };
    for (write, before) in batch.writes.iter().zip(found) {
        let name = name(&partition, write);
        let at_row = |error| error::at_row(write.table, &write.id, &error);
        let (version, changed) = change(hand, name, &write.change, &before, batch.stamp, now).map_err(at_row)?;
        if before.head.is_err() {
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
fn before(hand: &mut Hand<'_>, name: Name<'_>, now: Timestamp) -> Result<Before, StoreError> {
    if let Some((number, head)) = hand.heads.find(name).filter(|(_, head)| !head.is_expired(now)) {
        return Ok(Before { number: Some(number), version: head.version, head: Ok(Some(head)) });
    }
    let found = hand
        .find
        .query_row((name.partition, name.table.as_str(), name.id), |row| Ok((Head::read(row, 0, name)?, row.get(8)?)));
    let at_row = |error| error::at_row(name.table, &name.id.into(), &error);
    Ok(match found.optional().map_err(at_row)? {
        None => match hand.aside.version(name) {
            None => Before { number: None, head: Ok(None), version: 0 },
            Some(version) => Before { number: None, head: Err(aside::damaged(name)), version },
        },
        Some((Ok(head), number)) if head.is_expired(now) => Before { number: Some(number), head: Ok(None), version: 0 },
        Some((Ok(head), number)) => Before { number: Some(number), version: head.version, head: Ok(Some(head)) },
        Some((Err(damaged), number)) => {
            let version = hand.aside.set(hand.connection, name, number, &damaged, now).map_err(at_row)?;
            Before { number: None, head: Err(damaged), version }
        }
    })
}

fn expect(write: &Write, before: &Before) -> Result<(), StoreError> {
    let head = match (&before.head, write.expect, &write.change) {
        (Ok(head), ..) => head.as_ref(),
        // Nobody knows what a damaged row was like. It may be replaced by whoever does not ask.
        (Err(_), Expect::Any, Change::Put { .. } | Change::Restore { .. } | Change::Remove) => return Ok(()),
        (Err(damaged), ..) => return Err(damaged.clone()),
    };
    let holds = match write.expect {
        Expect::Any => true,
        Expect::Absent => head.is_none(),
        Expect::Same(seen) => head.map(Head::seen) == Some(seen),
    };
    let found = head.map(|head| head.version);
    if holds { Ok(()) } else { Err(StoreError::Conflict { table: write.table, id: write.id.clone(), found }) }
}

/// Makes one change; answers the row's version afterwards, and whether anything changed.
fn change(
    hand: &mut Hand<'_>,
    name: Name<'_>,
    change: &Change,
    before: &Before,
    stamp: u64,
    now: Timestamp,
) -> Result<(u64, bool)> {
    let head = before.head.as_ref().ok().and_then(Option::as_ref);
    let version = before.version;
    match change {
        Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. } => {
            let at_least = if let Change::Restore { version, .. } = change { *version } else { 0 };
            let new = Head {
                version: at_least.max(version + 1).max(hand.floor),
                stamp,
                layout: *schema,
                expires: *expires,
                created: head.map_or(now, |head| head.created),
                updated: now,
                body: body_of(value),
            };
            // Where an end stays what it is, its index need not be touched.
            let same_end = head.is_some_and(|head| head.expires == *expires);
            put(hand, name, &new, value, before.number, same_end)?;
            Ok((new.version, true))
        }
        Change::Touch { expires } => {
            if let (Some(head), Some(number)) = (head, before.number) {
                let new = Head { expires: *expires, ..*head };
                let mut touch =
                    hand.connection.prepare_cached("UPDATE rows SET expires = ?1, head = ?2 WHERE rowid = ?3")?;
                one(touch.execute((new.expires.map(Timestamp::millis), new.checksum(name), number))?)?;
                hand.heads.keep(name, number, new);
            }
            Ok((version, false))
        }
        Change::Keep => Ok((version, false)),
        Change::Remove => {
            hand.heads.forget(name);
            if let Some(number) = before.number {
                hand.connection.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?.execute([number])?;
            }
            // A damaged row is told to be gone too; an expired one was gone before.
            Ok((0, version > 0 || before.head.is_err()))
        }
    }
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
