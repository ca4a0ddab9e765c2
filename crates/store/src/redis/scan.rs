//! Paged scans: one partition in a snapshot, several by the sorted sets of their ids or terms.
//!
//! In: a scan. Out: a page. A walk (`partition_walk`, `index_walk`) yields rows in order, this module decides which of them form the page.
//! Damaged rows are logged and skipped.

mod bounds;
mod count;
mod index_walk;
mod partition_walk;

use toolhub_storage::{
    backend::{Cursor, Page, Row, RowKey, Scan, Scope, StoreError, Terms},
    clock::Timestamp,
};

use super::{Redis, row_codec::StoredRow};
use index_walk::IndexWalk;
use partition_walk::PartitionWalk;

/// How many rows are read at a time, at most.
const MAX_STEP: usize = 256;
/// How many rows are read at first for a page that ends at a size: rows may be long.
const FIRST_STEP_OF_SIZED_PAGE: usize = 16;

/// A row that a walk came across; `None` if it expired or was removed meanwhile.
type WalkedRow = (RowKey, Result<Option<StoredRow>, StoreError>);

enum Walk<'a> {
    Partition(PartitionWalk<'a>),
    Index(IndexWalk<'a>),
}

impl Walk<'_> {
    /// The next rows in order, about as many as asked for; empty at the end.
    async fn next(&mut self, count: usize, now: Timestamp) -> Result<Vec<WalkedRow>, StoreError> {
        match self {
            Self::Partition(walk) => walk.next(count, now).await,
            Self::Index(walk) => walk.next(count, now).await,
        }
    }
}

impl Redis {
    pub(super) async fn scan_page(&self, scan: &Scan, now: Timestamp) -> Result<Page, StoreError> {
        let mut walk = match &scan.scope {
            Scope::Partition(partition) => Walk::Partition(PartitionWalk::new(self, scan, partition)),
            Scope::All | Scope::Tenant(_) => Walk::Index(IndexWalk::open(self, scan).await?),
        };
        let mut page = PageBuilder { scan, page: Page::default(), bytes: 0, reads_left: scan.read_limit };
        loop {
            let rows = walk.next(page.next_step(), now).await?;
            if rows.is_empty() {
                return Ok(page.page);
            }
            for (key, row) in rows {
                if page.add(key, row) == PageState::Complete {
                    return Ok(page.page);
                }
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum PageState {
    Open,
    Complete,
}

struct PageBuilder<'a> {
    scan: &'a Scan,
    page: Page,
    /// Size of the values on the page.
    bytes: usize,
    /// How many more rows may be looked at, for a scan with terms.
    reads_left: usize,
}

impl PageBuilder<'_> {
    /// How many rows to read next: enough to fill the page and to learn whether there is another one.
    fn next_step(&self) -> usize {
        let missing = self.scan.limit.saturating_sub(self.page.rows.len()).saturating_add(1);
        let fitting = match self.page.rows.len() {
            _ if self.scan.max_bytes == usize::MAX => MAX_STEP,
            0 => FIRST_STEP_OF_SIZED_PAGE,
            rows => self.scan.max_bytes.saturating_sub(self.bytes) / (self.bytes / rows).max(1) + 1,
        };
        missing.min(fitting).clamp(1, MAX_STEP)
    }

    fn add(&mut self, key: RowKey, row: Result<Option<StoredRow>, StoreError>) -> PageState {
        match row {
            Ok(Some(stored)) if Terms::text_has_all(stored.terms.as_str(), &self.scan.terms) => {
                let is_full = self.page.rows.len() == self.scan.limit || self.bytes >= self.scan.max_bytes;
                if is_full && !self.page.rows.is_empty() {
                    self.page.next = self.page.rows.last().map(|(key, _): &(RowKey, Row)| Cursor(key.clone()));
                    return PageState::Complete;
                }
                self.bytes = self.bytes.saturating_add(stored.row.value.len());
                self.page.rows.push((key.clone(), stored.row));
            }
            Ok(_) => {}
            // A page cannot report it.
            Err(error) => error.log_skipped(),
        }
        if !self.scan.terms.is_empty() {
            self.reads_left = self.reads_left.saturating_sub(1);
            if self.reads_left == 0 {
                self.page.next = Some(Cursor(key));
                return PageState::Complete;
            }
        }
        PageState::Open
    }
}
