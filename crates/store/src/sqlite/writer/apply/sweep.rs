//! Removes rows whose time has passed.
//!
//! In: a connection in a transaction, how many at most. Out: how many left the table. Each is looked at before it goes: a
//! row whose end is part of the damage was not meant to end, and is set aside.

use rusqlite::{Connection, Result};
use toolhub_storage::{backend::Table, clock::Timestamp};

use super::super::super::{
    quarantine::Quarantine,
    row::{RowHead, RowName},
};

pub(super) fn run(connection: &Connection, aside: &Quarantine, most: usize, now: Timestamp) -> Result<usize> {
    let mut find = connection.prepare_cached(
        "SELECT version, stamp, layout, expires, created, updated, body, head, rowid, partition, tab, id FROM rows
         WHERE expires <= ?1 ORDER BY expires LIMIT ?2",
    )?;
    let mut remove = connection.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?;
    let mut ended = find.query((now.millis(), i64::try_from(most).unwrap_or(i64::MAX)))?;
    let (mut gone, mut damaged) = (Vec::new(), Vec::new());
    while let Some(row) = ended.next()? {
        let number: i64 = row.get(8)?;
        let (partition, table, id) = (row.get_ref(9)?, row.get_ref(10)?, row.get_ref(11)?);
        let table = Table::ALL.into_iter().find(|known| table.as_str().is_ok_and(|table| table == known.as_str()));
        // Nobody can ask for a row whose name is damaged.
        let (Ok(partition), Some(table), Ok(id)) = (partition.as_str(), table, id.as_str()) else {
            gone.push(number);
            continue;
        };
        match RowHead::read(row, 0, RowName { partition, table, id })? {
            Ok(_) => gone.push(number),
            Err(error) => damaged.push((number, partition.to_owned(), table, id.to_owned(), error)),
        }
    }
    drop(ended);
    for number in &gone {
        remove.execute([number])?;
    }
    for (number, partition, table, id, error) in &damaged {
        aside.quarantine_row(connection, RowName { partition, table: *table, id }, *number, error, now)?;
    }
    Ok(gone.len() + damaged.len())
}
