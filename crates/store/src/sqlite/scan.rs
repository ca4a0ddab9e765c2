//! Paged scans and counts on blocking threads.
//!
//! In: a scan. Out: a page. The scan walks the keys in an index and fetches each row separately, so that a damaged row is
//! logged and skipped, and the others are returned. For a scan with terms, `term_index` finds the blocks of ids to walk, and only
//! the rows that have the terms are fetched.

mod term_index;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{
    CachedStatement, Connection, OptionalExtension, Result,
    types::{Value, ValueRef},
};
use smol_str::SmolStr;
use tokio::sync::Semaphore;
use toolhub_storage::{
    backend::{Cursor, Page, Partition, Row, RowKey, Scan, Scope, StoreError, Table, Terms},
    clock::Timestamp,
};

use super::{
    connection, error,
    quarantine::Suspect,
    read::in_read_transaction,
    row,
    term_block::{block_of, has_many_ids},
};
use term_index::{NextBlock, TermIndex};

/// Maximum number of concurrent scans.
const MAX_CONCURRENT_SCANS: usize = 2;

const FETCH: &str =
    "SELECT version, stamp, layout, expires, created, updated, body, head, value FROM rows WHERE rowid = ?1";

/// The terms of a row, from an index: in the row itself they are behind the record.
const TERMS: &str = "SELECT terms FROM rows INDEXED BY by_id WHERE tab = ?1 AND id = ?2 AND partition = ?3";

const COUNT_BY_ID: &str = "
    SELECT id, count(*) FROM rows INDEXED BY by_id WHERE tab = ?1 GROUP BY id
    UNION ALL
    SELECT id, -count(*) FROM rows INDEXED BY by_end WHERE expires <= ?2 AND tab = ?1 GROUP BY id";

/// Connection pool for scans; connections are opened on demand.
pub(super) struct Scanners {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Scanners {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), permits: Arc::new(Semaphore::new(MAX_CONCURRENT_SCANS)), idle: Arc::default() }
    }

    /// A page, and the damaged rows that were skipped.
    pub(super) async fn scan(&self, scan: Scan, now: Timestamp) -> Result<(Page, Vec<Suspect>), StoreError> {
        self.read(move |connection| page(connection, &scan, now)).await
    }

    /// Counts the rows of a table by id.
    pub(super) async fn count_by_id(&self, table: Table, now: Timestamp) -> Result<BTreeMap<SmolStr, u64>, StoreError> {
        self.read(move |connection| count_by_id(connection, table, now).map_err(|error| error::unavailable(&error)))
            .await
    }

    #[expect(clippy::disallowed_methods, reason = "scans block here, bounded by `permits`")]
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = |_| StoreError::Unavailable("the store is closed".into());
        let permit = self.permits.clone().acquire_owned().await.map_err(closed)?;
        let (path, idle) = (self.path.clone(), self.idle.clone());
        let task = tokio::task::spawn_blocking(move || {
            // Held until the scan ends, even if its caller was dropped.
            let _permit = permit;
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match pooled {
                Some(connection) => connection,
                None => connection::open_reader(&path).map_err(|error| error::unavailable(&error))?,
            };
            let result = read(&connection);
            // A failed connection is closed.
            if !matches!(result, Err(StoreError::Unavailable(_))) {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            result
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the scan was aborted".into())))
    }
}

/// Counts in an index without reading rows, and subtracts the expired rows that are not swept yet. A single statement, so both
/// counts come from the same snapshot.
fn count_by_id(connection: &Connection, table: Table, now: Timestamp) -> Result<BTreeMap<SmolStr, u64>> {
    let mut count = connection.prepare_cached(COUNT_BY_ID)?;
    let mut found = count.query((table.as_str(), now.millis()))?;
    let mut counts = BTreeMap::new();
    while let Some(group) = found.next()? {
        let (id, rows): (String, i64) = (group.get(0)?, group.get(1)?);
        *counts.entry(SmolStr::new(id)).or_insert(0) += rows;
    }
    Ok(counts
        .into_iter()
        .filter_map(|(id, rows)| Some((id, u64::try_from(rows).ok().filter(|rows| *rows > 0)?)))
        .collect())
}

/// One page from a single snapshot, and the damaged rows that were skipped.
fn page(connection: &Connection, scan: &Scan, now: Timestamp) -> Result<(Page, Vec<Suspect>), StoreError> {
    let mut builder = PageBuilder {
        scan,
        now,
        page: Page::default(),
        suspects: Vec::new(),
        last: SmolStr::default(),
        bytes: 0,
        last_partition: String::new(),
        reads_left: scan.read_limit,
    };
    if scan.terms.is_empty() {
        // The open key cursor holds the snapshot.
        let walked = builder.walk(connection, scan);
        walked.map_err(|error| error::row_error(scan.table, &builder.last, &error))?;
    } else {
        in_read_transaction(connection, |connection| {
            let walked = builder.walk_blocks(connection);
            walked.map_err(|error| error::row_error(scan.table, &builder.last, &error))
        })?;
    }
    Ok((builder.page, builder.suspects))
}

struct PageBuilder<'a> {
    scan: &'a Scan,
    now: Timestamp,
    page: Page,
    suspects: Vec<Suspect>,
    /// The id and the partition that were looked at last; empty before the first.
    last: SmolStr,
    last_partition: String,
    /// How many more rows and index entries may be looked at.
    reads_left: usize,
    /// Size of the values on the page.
    bytes: usize,
}

impl PageBuilder<'_> {
    /// Walks the blocks of ids in which all terms occur.
    fn walk_blocks(&mut self, connection: &Connection) -> Result<()> {
        let scan = self.scan;
        let (index, mut last) = (TermIndex::new(connection, scan)?, None);
        while !self.ends_at_read_limit() {
            let block = match index.next_block(last, &mut self.reads_left)? {
                NextBlock::Found(block) => block,
                NextBlock::End => return Ok(()),
                NextBlock::ReadLimit(cursor) => {
                    self.page.next = Some(cursor);
                    return Ok(());
                }
            };
            let prefix = if scan.prefix.len() > block.len() { scan.prefix.clone() } else { block.clone() };
            self.walk(connection, &Scan { prefix, ..scan.clone() })?;
            if self.page.next.is_some() {
                return Ok(());
            }
            last = Some(block);
        }
        Ok(())
    }

    /// Adds the rows of a key range to the page.
    fn walk(&mut self, connection: &Connection, range: &Scan) -> Result<()> {
        let scan = self.scan;
        // A block of one id: other ids that begin with it have their own blocks.
        let only = Some(&range.prefix).filter(|prefix| !scan.terms.is_empty() && !has_many_ids(block_of(prefix)));
        let (mut keys, bounds) = key_query(connection, range)?;
        let mut fetch = connection.prepare_cached(FETCH)?;
        let mut keys = keys.query(rusqlite::params_from_iter(bounds))?;
        while let Some(found) = keys.next()? {
            let (partition, id, rowid): (String, String, i64) = (found.get(0)?, found.get(1)?, found.get(2)?);
            if only.is_some_and(|only| id != *only) {
                continue;
            }
            if !scan.terms.is_empty() {
                if self.ends_at_read_limit() {
                    return Ok(());
                }
                self.reads_left = self.reads_left.saturating_sub(1);
                self.last_partition.clone_from(&partition);
            }
            self.last = SmolStr::new(&id);
            if !has_terms(connection, scan, found)? {
                continue;
            }
            let name = row::RowName { partition: &partition, table: scan.table, id: &id };
            let (partition, row) = match fetch_row(&mut fetch, rowid, name, self.now)? {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(damaged) => {
                    // Logged, because a page cannot report it.
                    tracing::warn!(error = %damaged, "skipping unreadable stored record");
                    self.suspects.push(Suspect { partition, table: scan.table, id });
                    continue;
                }
            };
            if self.page.rows.len() == scan.limit || (self.bytes >= scan.max_bytes && !self.page.rows.is_empty()) {
                self.page.next = self.page.rows.last().map(|(key, _): &(RowKey, Row)| Cursor(key.clone()));
                break;
            }
            self.bytes = self.bytes.saturating_add(row.value.len());
            self.page.rows.push((RowKey { partition, table: scan.table, id: self.last.clone() }, row));
        }
        Ok(())
    }

    /// Ends the page at the row that was looked at last, if the read limit is reached.
    fn ends_at_read_limit(&mut self) -> bool {
        let partition = Some(&self.last_partition).filter(|_| self.reads_left == 0);
        let Some(Ok(partition)) = partition.map(|partition| partition.parse()) else { return false };
        self.page.next = Some(Cursor(RowKey { partition, table: self.scan.table, id: self.last.clone() }));
        true
    }
}

/// Whether the row under the key cursor has all terms of the scan.
fn has_terms(connection: &Connection, scan: &Scan, key: &rusqlite::Row<'_>) -> Result<bool> {
    let has_all =
        |text: ValueRef<'_>| Terms::text_has_all(text.as_str_or_null().ok().flatten().unwrap_or_default(), &scan.terms);
    match &scan.scope {
        _ if scan.terms.is_empty() => Ok(true),
        Scope::Partition(_) => {
            let (partition, id) = (key.get_ref(0)?.as_str()?, key.get_ref(1)?.as_str()?);
            let mut terms = connection.prepare_cached(TERMS)?;
            let found = terms.query_row((scan.table.as_str(), id, partition), |row| Ok(has_all(row.get_ref(0)?)));
            Ok(found.optional()?.unwrap_or(false))
        }
        Scope::All | Scope::Tenant(_) => Ok(has_all(key.get_ref(3)?)),
    }
}

/// The row of this rowid; `None` if it has expired.
fn fetch_row(
    fetch: &mut CachedStatement<'_>,
    rowid: i64,
    name: row::RowName<'_>,
    now: Timestamp,
) -> Result<Result<Option<(Partition, Row)>, StoreError>> {
    match fetch.query_row([rowid], |found| row::read(found, 0, name, now)).optional() {
        Ok(None) => Ok(Err(name.damaged_error("the index refers to a missing row"))),
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

/// The statement that walks the keys of a scan in order, and its bounds.
fn key_query<'a>(connection: &'a Connection, scan: &Scan) -> Result<(CachedStatement<'a>, [Value; 7])> {
    // No partition key is empty, so the empty text sorts before all of them.
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
    // In SQLite every blob sorts after every text.
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
        // A tenant's name contains no `/`, and `0` is the next character after `/`.
        Scope::Tenant(only) => (cross_partition_sql(order), format!("{only}/"), format!("{only}0")),
        Scope::All => (cross_partition_sql(order), String::new(), char::MAX.to_string()),
    };
    let table = scan.table.as_str().to_owned();
    let bounds = [table.into(), from.0.into(), from.1.into(), to.0, to.1.into(), first.into(), end.into()];
    Ok((connection.prepare_cached(&sql)?, bounds))
}

/// The first text after all texts with this prefix; `None` if there is none.
fn prefix_successor(prefix: &str) -> Option<String> {
    let (at, last) = prefix.char_indices().rfind(|(_, last)| *last != char::MAX)?;
    let next = (last..=char::MAX).nth(1)?;
    Some(format!("{}{next}", &prefix[..at]))
}

/// Scans all partitions between two. Keys of other tenants are skipped in the index, without reading their rows.
fn cross_partition_sql(order: &str) -> String {
    format!(
        "SELECT partition, id, rowid, terms FROM rows INDEXED BY by_id
         WHERE tab = ?1 AND id >= ?2 AND id <= ?4 AND (id, partition) > (?2, ?3) AND (id, partition) < (?4, ?5)
         AND partition >= ?6 AND partition < ?7 ORDER BY id {order}, partition {order}"
    )
}
