//! Paged scans over the rows of a table.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::{Backend, Partition, Row, RowKey, StoreError, Table};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

/// Which rows to read.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The table.
    pub table: Table,
    /// The partitions to read.
    pub scope: Scope,
    /// Only ids with this prefix.
    pub prefix: String,
    /// Only rows that have all of these index terms.
    pub terms: Vec<SmolStr>,
    /// Descending order of ids.
    pub descending: bool,
    /// Where the previous page ended.
    pub after: Option<Cursor>,
    /// Maximum number of rows; at least 1.
    pub limit: usize,
    /// The page ends with the row whose value makes the values this long together, so it has at least one row.
    pub max_bytes: usize,
    /// About how many rows a store may look at for a scan with terms before it ends the page. The page may then have fewer rows
    /// than the limit, even none, and a cursor. A store that is small may ignore it.
    pub read_limit: usize,
}

/// The partitions a scan reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All partitions of all tenants.
    All,
    /// All partitions of one tenant.
    Tenant(Tenant),
    /// One partition.
    Partition(Partition),
}

impl Scan {
    /// A scan of the first page: ascending, no prefix, no terms, 100 rows of any size, no read limit.
    #[must_use]
    pub fn new(table: Table, scope: Scope) -> Self {
        Self {
            table,
            scope,
            prefix: String::new(),
            terms: Vec::new(),
            descending: false,
            after: None,
            limit: 100,
            max_bytes: usize::MAX,
            read_limit: usize::MAX,
        }
    }

    /// Only ids with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum number of rows.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the size at which a page ends.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }
}

/// The last row of a page, or the last one that was looked at: the next page begins after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub RowKey);

/// One page of rows.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The rows.
    pub rows: Vec<(RowKey, Row)>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

impl Page {
    /// The page of a scan, cut from all rows that it found: those after the page, if any, say that there is another one.
    #[must_use]
    pub fn cut(mut rows: Vec<(RowKey, Row)>, scan: &Scan) -> Self {
        let (found, mut bytes) = (rows.len(), 0usize);
        let is_before_end = |(_, row): &&(RowKey, Row)| {
            let before = bytes;
            bytes = bytes.saturating_add(row.value.len());
            before < scan.max_bytes
        };
        let fitting = rows.iter().take(scan.limit).take_while(is_before_end).count();
        rows.truncate(fitting.max(1));
        let next = rows.last().filter(|_| found > rows.len()).map(|(key, _)| Cursor(key.clone()));
        Self { rows, next }
    }
}

/// Reads all pages of a scan.
pub async fn read_all(store: &dyn Backend, scan: Scan, now: Timestamp) -> Result<Vec<(RowKey, Row)>, StoreError> {
    read_pages(scan, |scan| store.scan(scan, now)).await
}

/// Like [`read_all`], with a function that fetches a page.
pub async fn read_pages<F>(mut scan: Scan, fetch: impl Fn(Scan) -> F) -> Result<Vec<(RowKey, Row)>, StoreError>
where
    F: Future<Output = Result<Page, StoreError>>,
{
    let mut rows = Vec::new();
    loop {
        let page = fetch(scan.clone()).await?;
        rows.extend(page.rows);
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(rows),
        }
    }
}

/// Counts the rows of a table by id, page by page: the default of [`Backend::count_by_id`].
pub(super) async fn count_by_id(
    store: &(impl Backend + ?Sized),
    table: Table,
    now: Timestamp,
) -> Result<BTreeMap<SmolStr, u64>, StoreError> {
    let (mut scan, mut counts) = (Scan::new(table, Scope::All).limit(1000), BTreeMap::new());
    loop {
        let page = store.scan(scan.clone(), now).await?;
        for (key, _) in page.rows {
            *counts.entry(key.id).or_default() += 1;
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(counts),
        }
    }
}
