//! Reading many rows, a page at a time.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::{Backend, Partition, Row, RowKey, StoreError, Table};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

/// Which rows to read.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The table.
    pub table: Table,
    /// Whose rows.
    pub scope: Scope,
    /// Only ids that begin with this.
    pub prefix: String,
    /// The last ids first.
    pub descending: bool,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    /// At most this many rows; at least one.
    pub limit: usize,
}

/// Whose rows to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everybody's.
    All,
    /// Those of one tenant.
    Tenant(Tenant),
    /// Those of one partition.
    Partition(Partition),
}

impl Scan {
    /// The first page of a table.
    #[must_use]
    pub fn new(table: Table, scope: Scope) -> Self {
        Self { table, scope, prefix: String::new(), descending: false, after: None, limit: 100 }
    }

    /// Only ids that begin with this.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// At most this many rows.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// The last row of a page: the next page begins behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub RowKey);

/// One page of rows.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The rows.
    pub rows: Vec<(RowKey, Row)>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// Every row of a scan, page after page.
pub async fn read_all(store: &dyn Backend, scan: Scan, now: Timestamp) -> Result<Vec<(RowKey, Row)>, StoreError> {
    read_pages(scan, |scan| store.scan(scan, now)).await
}

/// The same, asking whoever makes the pages.
pub async fn read_pages<F>(mut scan: Scan, ask: impl Fn(Scan) -> F) -> Result<Vec<(RowKey, Row)>, StoreError>
where
    F: Future<Output = Result<Page, StoreError>>,
{
    let mut rows = Vec::new();
    loop {
        let page = ask(scan.clone()).await?;
        rows.extend(page.rows);
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(rows),
        }
    }
}

/// How many rows of a table have each id, page after page.
pub(super) async fn count_by_id(
    store: &(impl Backend + ?Sized),
    table: Table,
    now: Timestamp,
) -> Result<BTreeMap<SmolStr, u64>, StoreError> {
    let (mut scan, mut many) = (Scan::new(table, Scope::All).limit(1000), BTreeMap::new());
    loop {
        let page = store.scan(scan.clone(), now).await?;
        for (key, _) in page.rows {
            *many.entry(key.id).or_default() += 1;
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(many),
        }
    }
}
