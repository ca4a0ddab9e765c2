//! Reads many rows, a page at a time, on threads that may block.
//!
//! In: a scan. Out: a page. The keys are walked in an index and each row is fetched by itself, so that one that cannot
//! be read is named and passed over, and the rest is served.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, types::Value};
use smol_str::SmolStr;
use tokio::sync::Semaphore;
use toolhub_storage::{
    backend::{Cursor, Page, Partition, Row, RowKey, Scan, Scope, StoreError, Table},
    clock::Timestamp,
};

use super::{connection, error, quarantine::Suspect, row};

/// How many scans read at a time.
const MAX_CONCURRENT_SCANS: usize = 2;

const FETCH: &str =
    "SELECT version, stamp, layout, expires, created, updated, body, head, value FROM rows WHERE rowid = ?1";

const COUNT_BY_ID: &str = "
    SELECT id, count(*) FROM rows INDEXED BY by_id WHERE tab = ?1 GROUP BY id
    UNION ALL
    SELECT id, -count(*) FROM rows INDEXED BY by_end WHERE expires <= ?2 AND tab = ?1 GROUP BY id";

/// Connections for scans, opened when they are needed.
pub(super) struct Scanners {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Scanners {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), permits: Arc::new(Semaphore::new(MAX_CONCURRENT_SCANS)), idle: Arc::default() }
    }

    /// A page, and the rows that were passed over.
    pub(super) async fn scan(&self, scan: Scan, now: Timestamp) -> Result<(Page, Vec<Suspect>), StoreError> {
        self.read(move |connection| page(connection, &scan, now)).await
    }

    /// How many rows of a table have each id.
    pub(super) async fn count_by_id(&self, table: Table, now: Timestamp) -> Result<BTreeMap<SmolStr, u64>, StoreError> {
        self.read(move |connection| count_by_id(connection, table, now).map_err(|error| error::unavailable(&error)))
            .await
    }

    #[expect(clippy::disallowed_methods, reason = "this is the room where scans block, and it bounds them")]
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = |_| StoreError::Unavailable("the store is closed".into());
        let place = self.permits.clone().acquire_owned().await.map_err(gone)?;
        let (path, idle) = (self.path.clone(), self.idle.clone());
        let reading = tokio::task::spawn_blocking(move || {
            // Kept until the scan ends, also when nobody waits for it any more.
            let _place = place;
            let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match taken {
                Some(connection) => connection,
                None => connection::open_reader(&path).map_err(|error| error::unavailable(&error))?,
            };
            let answer = read(&connection);
            // One that failed is closed.
            if !matches!(answer, Err(StoreError::Unavailable(_))) {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            answer
        });
        reading.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the scan was cut short".into())))
    }
}

/// Counted in an index, without a look at the rows; those that have expired and are not swept yet are taken off. One
/// statement, so both are of one moment.
fn count_by_id(connection: &Connection, table: Table, now: Timestamp) -> Result<BTreeMap<SmolStr, u64>> {
    let mut count = connection.prepare_cached(COUNT_BY_ID)?;
    let mut found = count.query((table.as_str(), now.millis()))?;
    let mut many = BTreeMap::new();
    while let Some(group) = found.next()? {
        let (id, rows): (String, i64) = (group.get(0)?, group.get(1)?);
        *many.entry(SmolStr::new(id)).or_insert(0) += rows;
    }
    Ok(many
        .into_iter()
        .filter_map(|(id, rows)| Some((id, u64::try_from(rows).ok().filter(|rows| *rows > 0)?)))
        .collect())
}

/// One page, all of one moment: the open walk over the keys holds it.
fn page(connection: &Connection, scan: &Scan, now: Timestamp) -> Result<(Page, Vec<Suspect>), StoreError> {
    let (mut last, mut suspects) = (SmolStr::default(), Vec::new());
    let mut walk = || -> Result<Page> {
        let (mut keys, bounds) = key_query(connection, scan)?;
        let mut fetch = connection.prepare_cached(FETCH)?;
        let mut page = Page::default();
        let mut keys = keys.query(rusqlite::params_from_iter(bounds))?;
        while let Some(found) = keys.next()? {
            let (partition, id, number): (String, String, i64) = (found.get(0)?, found.get(1)?, found.get(2)?);
            last = SmolStr::new(&id);
            let name = row::RowName { partition: &partition, table: scan.table, id: &id };
            let (partition, row) = match fetch_row(&mut fetch, number, name, now)? {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(damaged) => {
                    // Said aloud: a page has no place for it.
                    tracing::warn!(error = %damaged, "a stored record cannot be read and is passed over");
                    suspects.push(Suspect { partition, table: scan.table, id });
                    continue;
                }
            };
            if page.rows.len() == scan.limit {
                page.next = page.rows.last().map(|(key, _): &(RowKey, Row)| Cursor(key.clone()));
                break;
            }
            page.rows.push((RowKey { partition, table: scan.table, id: last.clone() }, row));
        }
        Ok(page)
    };
    let page = walk().map_err(|error| error::row_error(scan.table, &last, &error))?;
    Ok((page, suspects))
}

/// The row of this number; `None` where its time has passed.
fn fetch_row(
    fetch: &mut CachedStatement<'_>,
    number: i64,
    name: row::RowName<'_>,
    now: Timestamp,
) -> Result<Result<Option<(Partition, Row)>, StoreError>> {
    match fetch.query_row([number], |found| row::read(found, 0, name, now)).optional() {
        Ok(None) => Ok(Err(name.damaged_error("the index names it, but it is not there"))),
        Ok(Some(Err(damaged))) => Ok(Err(damaged)),
        Ok(Some(Ok(None))) => Ok(Ok(None)),
        Ok(Some(Ok(Some(row)))) => Ok(match name.partition.parse() {
            Ok(partition) => Ok(Some((partition, row))),
            Err(_) => Err(name.damaged_error("its partition is unreadable")),
        }),
        Err(error) if error::is_damage(&error) => Ok(Err(name.damaged_error(error.to_string()))),
        Err(error) => Err(error),
    }
}

/// The walk over the keys of a scan, in its order, and the bounds it asks for.
fn key_query<'a>(connection: &'a Connection, scan: &Scan) -> Result<(CachedStatement<'a>, [Value; 7])> {
    // No partition has an empty text.
    let mut from = (scan.prefix.clone(), String::new());
    let mut to = prefix_successor(&scan.prefix).map(|end| (end, String::new()));
    if let Some(Cursor(last)) = &scan.after {
        let last = (last.id.to_string(), last.partition.to_string());
        if scan.descending {
            to = Some(to.map_or_else(|| last.clone(), |end| end.min(last.clone())));
        } else {
            from = from.max(last);
        }
    }
    // Behind every text lies every blob.
    let to = to.map_or((Value::Blob(Vec::new()), String::new()), |(id, partition)| (id.into(), partition));
    let order = if scan.descending { "DESC" } else { "ASC" };
    let (sql, first, end) = match &scan.scope {
        Scope::Partition(only) => (
            format!(
                "SELECT partition, id, rowid FROM rows INDEXED BY by_name
                 WHERE partition = ?6 AND ?6 = ?7 AND tab = ?1 AND id >= ?2 AND id <= ?4
                 AND (id, partition) > (?2, ?3) AND (id, partition) < (?4, ?5) ORDER BY id {order}"
            ),
            only.to_string(),
            only.to_string(),
        ),
        // A tenant's name has no `/`, and `0` comes right behind it.
        Scope::Tenant(only) => (cross_partition_sql(order), format!("{only}/"), format!("{only}0")),
        Scope::All => (cross_partition_sql(order), String::new(), char::MAX.to_string()),
    };
    let table = scan.table.as_str().to_owned();
    let bounds = [table.into(), from.0.into(), from.1.into(), to.0, to.1.into(), first.into(), end.into()];
    Ok((connection.prepare_cached(&sql)?, bounds))
}

/// The first text behind all that begin with this one; `None` where there is no such text.
fn prefix_successor(prefix: &str) -> Option<String> {
    let (at, last) = prefix.char_indices().rfind(|(_, last)| *last != char::MAX)?;
    let next = (last..=char::MAX).nth(1)?;
    Some(format!("{}{next}", &prefix[..at]))
}

/// Over all partitions between two. Those of other tenants are stepped over in the index, without a look at their rows.
fn cross_partition_sql(order: &str) -> String {
    format!(
        "SELECT partition, id, rowid FROM rows INDEXED BY by_id
         WHERE tab = ?1 AND id >= ?2 AND id <= ?4 AND (id, partition) > (?2, ?3) AND (id, partition) < (?4, ?5)
         AND partition >= ?6 AND partition < ?7 ORDER BY id {order}, partition {order}"
    )
}
