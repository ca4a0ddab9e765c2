//! Removes expired rows.
//!
//! In: a connection in a transaction, a limit. Out: how many rows left the table. Each row is verified first: a damaged row
//! may not really have expired, so it is quarantined instead.

use rusqlite::{Connection, Result};
use toolhub_storage::{backend::Table, clock::Timestamp};

use super::super::super::{
    quarantine::Quarantine,
    row::{RowHead, RowName},
};

pub(super) fn run(connection: &Connection, quarantine: &Quarantine, limit: usize, now: Timestamp) -> Result<usize> {
    let mut find = connection.prepare_cached(
        "SELECT version, stamp, layout, expires, created, updated, body, head, rowid, partition, tab, id FROM rows
         WHERE expires <= ?1 ORDER BY expires LIMIT ?2",
    )?;
    let mut remove = connection.prepare_cached("DELETE FROM rows WHERE rowid = ?1")?;
    let mut expired_rows = find.query((now.millis(), i64::try_from(limit).unwrap_or(i64::MAX)))?;
    let (mut expired, mut damaged) = (Vec::new(), Vec::new());
    while let Some(row) = expired_rows.next()? {
        let rowid: i64 = row.get(8)?;
        let (partition, table, id) = (row.get_ref(9)?, row.get_ref(10)?, row.get_ref(11)?);
        let table = Table::ALL.into_iter().find(|known| table.as_str().is_ok_and(|table| table == known.as_str()));
        // No request can name a row whose name is damaged, so it is removed.
        let (Ok(partition), Some(table), Ok(id)) = (partition.as_str(), table, id.as_str()) else {
            expired.push(rowid);
            continue;
        };
        match RowHead::read(row, 0, RowName { partition, table, id })? {
            Ok(_) => expired.push(rowid),
            Err(error) => damaged.push((rowid, partition.to_owned(), table, id.to_owned(), error)),
        }
    }
    drop(expired_rows);
    for rowid in &expired {
        remove.execute([rowid])?;
    }
    for (rowid, partition, table, id, error) in &damaged {
        quarantine.quarantine_row(connection, RowName { partition, table: *table, id }, *rowid, error, now)?;
    }
    Ok(expired.len() + damaged.len())
}
