//! Removes the oldest rows of a table whose ids sort by age: events and artifacts.
//!
//! In: a time, and how much room is needed. Out: fewer rows. What else refers to them is not looked at.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{calls::removal, surplus};
use toolhub_storage::backend::{Backend, Batch, Partition, Row, RowKey, Scan, Scope, SizeLimit, StoreError, Table};
use toolhub_types::timestamp::Timestamp;

/// Maximum number of rows on a page.
const PAGE_ROWS: usize = 500;
/// Maximum size of a page, because it is held in memory.
const MAX_PAGE_BYTES: u64 = 16 * 1024 * 1024;
/// Number of concurrent removals, so that a store with group commit can group them.
const CONCURRENCY: usize = 256;

/// Removes the oldest rows with this id prefix, up to a time, until the store is at its target.
pub(super) async fn trim(
    store: &dyn Backend,
    limit: &SizeLimit,
    (table, prefix): (Table, &str),
    until: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    // The first page is one row: often nothing is old enough, and the rows may be large.
    let mut page_rows = 1;
    loop {
        let surplus = surplus(limit);
        if surplus == 0 {
            return Ok(());
        }
        let max_bytes = surplus.min(MAX_PAGE_BYTES) as usize;
        let scan = Scan::new(table, Scope::All).prefix(prefix).limit(page_rows).max_bytes(max_bytes);
        if !remove_page(store, scan, until, now).await? {
            return Ok(());
        }
        page_rows = PAGE_ROWS;
    }
}

/// Removes all rows up to a time.
pub(super) async fn remove(
    store: &dyn Backend,
    table: Table,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    while remove_page(store, Scan::new(table, Scope::All).limit(PAGE_ROWS), until, now).await? {}
    Ok(())
}

/// Removes the first rows of a scan, up to a time. Returns whether there may be more.
async fn remove_page(store: &dyn Backend, scan: Scan, until: Timestamp, now: Timestamp) -> Result<bool, StoreError> {
    let page = store.scan(scan, now).await?;
    let (found, mut batches) = (page.rows.len(), HashMap::<Partition, Batch>::new());
    let is_old = |(_, row): &(RowKey, Row)| row.created <= until;
    let mut removed = 0;
    for (key, _) in page.rows.into_iter().take_while(is_old) {
        let batch = batches.entry(key.partition.clone()).or_insert_with(|| Batch::new(key.partition.clone()));
        batch.writes.push(removal(key.table, key.id));
        removed += 1;
    }
    let removals: Vec<_> = batches.into_values().map(|batch| store.commit(batch, now)).collect();
    stream::iter(removals).buffer_unordered(CONCURRENCY).try_for_each(async |_| Ok(())).await?;
    tokio::task::yield_now().await;
    Ok(removed == found && page.next.is_some())
}
