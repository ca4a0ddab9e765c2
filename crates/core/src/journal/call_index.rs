//! Which ended calls have index terms, and the task that gives them to calls of earlier versions.
//!
//! In: the rows of ended calls. Out: down to which id calls are found by terms; rows of the current layout. A row of an earlier
//! layout has no terms or not all of them. Such rows are older than all others, so the oldest rows show whether there are any,
//! and nothing else must be remembered. They are rewritten from the newest to the oldest; until the last one, a query reads
//! the rest of the journal without terms.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use smol_str::SmolStr;

use super::{
    record::{CallRecord, ENDED_CALL_LAYOUT, decode_ended},
    terms,
};
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, Row, RowKey, Scan, Scope, StoreError, Table, Write,
    },
    clock::Clock,
};
use toolhub_types::{ids::CallId, timestamp::Timestamp};

/// Number of the oldest rows that are looked at. More than one, because ids that callers mint may be older than the journal.
const SAMPLE_SIZE: usize = 100;
/// Number of rows read and rewritten at a time.
const BATCH_SIZE: usize = 500;
/// Size of a batch, in bytes: its rows are in memory, and the store reserves room for them.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Number of concurrent commits. Each call without a thread is a commit of its own.
const CONCURRENCY: usize = 32;
/// Delay before a store that failed is asked again. It doubles each time.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);

/// The index terms of the journal.
pub(crate) struct CallIndex {
    /// Without the rows of threads: rewriting a call is no activity in its thread.
    store: Arc<dyn Backend>,
    coverage: Mutex<Coverage>,
}

/// Which calls are found by terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coverage {
    /// Not known yet, or none.
    None,
    /// Those with this id and newer ones.
    From(CallId),
    All,
}

impl CallIndex {
    pub(crate) fn new(store: Arc<dyn Backend>) -> Self {
        Self { store, coverage: Mutex::new(Coverage::None) }
    }

    /// The terms for a scan of the calls before an id, newest first, and the id at which it must stop, because older calls may
    /// lack their terms. Without terms the caller has to look at every call.
    pub(super) fn terms_before(&self, terms: Vec<SmolStr>, before: Option<CallId>) -> (Vec<SmolStr>, Option<CallId>) {
        match *self.lock() {
            Coverage::All => (terms, None),
            Coverage::From(oldest) if !terms.is_empty() && before.is_none_or(|before| before > oldest) => {
                (terms, Some(oldest))
            }
            Coverage::None | Coverage::From(_) => (Vec::new(), None),
        }
    }

    /// Finds out whether all calls have their terms. Returns `true` if so.
    pub(crate) async fn check(&self, now: Timestamp) -> Result<bool, StoreError> {
        let oldest = self.store.scan(Scan::new(Table::Calls, Scope::All).limit(SAMPLE_SIZE), now).await?;
        // A record that cannot be read gets no terms.
        let has_terms = |(key, row): &(RowKey, Row)| {
            row.schema >= ENDED_CALL_LAYOUT || decode_ended::<CallRecord>(&key.id, row).is_err()
        };
        let is_complete = oldest.rows.iter().all(has_terms);
        if is_complete {
            *self.lock() = Coverage::All;
        }
        Ok(is_complete)
    }

    /// Gives all calls their terms, and ends then.
    pub(crate) async fn complete(&self, clock: &dyn Clock) {
        let (mut after, mut rewritten, mut delay) = (None, 0, MIN_RETRY_DELAY);
        loop {
            let now = clock.now();
            let scan = Scan { descending: true, after: after.clone(), ..Scan::new(Table::Calls, Scope::All) };
            let page = match self.store.scan(scan.limit(BATCH_SIZE).max_bytes(BATCH_BYTES), now).await {
                Ok(page) => page,
                Err(error) => {
                    wait_after(&error, &mut delay).await;
                    continue;
                }
            };
            let last = page.rows.iter().rev().find_map(|(key, _)| key.id.parse().ok());
            match self.rewrite(page.rows, now).await {
                Ok(rows) => (rewritten, delay) = (rewritten + rows, MIN_RETRY_DELAY),
                // A call was removed meanwhile: read the page again.
                Err(StoreError::Conflict { .. }) => continue,
                Err(error) => {
                    wait_after(&error, &mut delay).await;
                    continue;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
            if let Some(last) = last {
                *self.lock() = Coverage::From(last);
            }
            tokio::task::yield_now().await;
        }
        *self.lock() = Coverage::All;
        tracing::info!(calls = rewritten, "calls of an earlier version are indexed");
    }

    /// Rewrites rows of an earlier layout with their terms. Returns their number.
    async fn rewrite(&self, rows: Vec<(RowKey, Row)>, now: Timestamp) -> Result<usize, StoreError> {
        let (mut batches, mut count): (HashMap<Partition, Batch>, _) = (HashMap::new(), 0);
        for (RowKey { partition, table, id }, row) in rows {
            if row.schema >= ENDED_CALL_LAYOUT {
                continue;
            }
            // Queries skip a record that cannot be read.
            let Ok(record) = decode_ended(&id, &row).inspect_err(StoreError::log_skipped) else { continue };
            let batch = batches.entry(partition.clone()).or_insert_with(|| Batch::new(partition));
            batch.terms.insert((table, id.clone()), terms::of_record(&record));
            let change = Change::Put { value: row.value, schema: ENDED_CALL_LAYOUT, expires: row.expires };
            let (expect, durability) = (Expect::Same(row.version), Durability::KillSafe);
            batch.writes.push(Write { table, id, expect, change, durability });
            count += 1;
        }
        let commits = batches.into_values().map(|batch| self.store.commit(batch, now));
        stream::iter(commits).buffer_unordered(CONCURRENCY).try_for_each(|_| std::future::ready(Ok(()))).await?;
        Ok(count)
    }

    fn lock(&self) -> MutexGuard<'_, Coverage> {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn wait_after(error: &StoreError, delay: &mut Duration) {
    tracing::warn!(%error, retry_in = ?delay, "calls of an earlier version cannot be indexed");
    tokio::time::sleep(*delay).await;
    *delay = (2 * *delay).min(MAX_RETRY_DELAY);
}
