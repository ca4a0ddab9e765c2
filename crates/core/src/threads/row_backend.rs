//! Backend decorator that stores a thread's row no later than the first row that belongs to the thread.
//!
//! In: the requests of `Backend`. Out: the inner store's results. A commit that puts rows into a thread's partition also puts
//! the thread's own row, unless this node knows that it is stored. So a crash leaves no rows of an unknown thread by any
//! writer. `store.rs` keeps the activity in that row up to date.

use std::{collections::BTreeMap, sync::Arc};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;

use super::{
    ThreadActivity,
    record::{Record, is_newer, merge_activity, read, row_key},
};
use toolhub_state::ThreadRows;
use toolhub_storage::backend::{
    Backend, Batch, Change, Expect, LossReport, Page, Partition, Row, RowKey, Scan, ServersReport, SizeLimit,
    StoreError, Table, Watcher,
};
use toolhub_storage::{clock::Clock, seal::SealKey};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

/// Number of attempts to write a thread's row that other nodes write concurrently.
const MAX_ATTEMPTS: usize = 5;

/// The hub's store, in which every thread that has rows is known.
pub(crate) struct ThreadRowBackend {
    store: Arc<dyn Backend>,
    activity: Arc<ThreadActivity>,
}

impl ThreadRowBackend {
    pub(crate) fn new(store: Arc<dyn Backend>, activity: Arc<ThreadActivity>) -> Self {
        Self { store, activity }
    }

    async fn commit_in_thread(&self, owner: ThreadKey, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if !self.activity.is_stored(&owner)
            && let Some(versions) = self.commit_with_row(&owner, &batch, now).await?
        {
            return Ok(versions);
        }
        let committed = self.store.commit(batch, now).await;
        if matches!(committed, Ok(_) | Err(StoreError::Unknown(_))) {
            self.restore_row(&owner, now).await;
        }
        committed
    }

    /// Stores the thread's row again if the thread was deleted while rows of it were committed: these rows bring it back. Those
    /// rows are committed whatever happens here, so an error is logged; the next write in the thread tries again.
    async fn restore_row(&self, owner: &ThreadKey, now: Timestamp) {
        if let Err(error) = self.store_row(owner, now).await {
            let thread = &owner.thread;
            tracing::warn!(%thread, %error, "thread was deleted while it was written, and its row could not be stored again");
        }
    }

    /// Stores the thread's row, unless this node knows that it is stored.
    async fn store_row(&self, owner: &ThreadKey, now: Timestamp) -> Result<(), StoreError> {
        if self.activity.is_stored(owner) {
            return Ok(());
        }
        self.commit_with_row(owner, &Batch::new(Partition::from(owner)), now).await.map(|_| ())
    }

    /// Commits the batch together with the row of its thread. Writes the row even if it exists: its new version tells a deletion
    /// under way that the thread is in use again. Returns `None`, and has committed nothing, if the row cannot be written.
    async fn commit_with_row(
        &self,
        owner: &ThreadKey,
        batch: &Batch,
        now: Timestamp,
    ) -> Result<Option<Vec<u64>>, StoreError> {
        let keys = [row_key(owner)];
        for _ in 0..MAX_ATTEMPTS {
            let row = match self.store.load(&keys, now).await {
                // The next flush of the thread's activity reports it.
                Err(StoreError::Damaged { .. }) => break,
                loaded => loaded?.pop().flatten(),
            };
            if row.as_ref().is_some_and(is_newer) {
                break;
            }
            let (expect, entry) =
                (row.as_ref().map_or(Expect::Absent, |row| Expect::Same(row.version)), self.activity.get(owner));
            let stored = row.map(|row| read(&keys[0].id, &row));
            let record = merge_activity(stored, entry.as_ref()).unwrap_or_else(|| Record::new(now));
            // The last write, so that a conflict on another row is reported first.
            let with_row = batch.clone().with(record.write(owner, expect)?);
            match self.store.commit(with_row, now).await {
                Err(StoreError::Conflict { table: Table::Threads, .. }) => {}
                Err(StoreError::Damaged { table: Table::Threads, .. }) => break,
                Err(error) => return Err(error),
                Ok(mut versions) => {
                    versions.pop();
                    match entry {
                        Some(entry) => self.activity.mark_stored(owner, &entry),
                        None => self.activity.insert_stored(owner.clone(), record.last_active),
                    }
                    return Ok(Some(versions));
                }
            }
        }
        self.activity.insert_stored(owner.clone(), now);
        Ok(None)
    }
}

/// The thread into whose partition the batch puts rows. `None` for a batch that only removes rows, and for one that writes or
/// checks the thread's own row itself, such as those of a deletion.
fn thread_with_new_rows(batch: &Batch) -> Option<ThreadKey> {
    let thread = batch.partition.thread()?;
    let puts = |change: &Change| matches!(change, Change::Put { .. } | Change::Restore { .. });
    let has_own_row = batch.writes.iter().any(|write| write.table == Table::Threads);
    (!has_own_row && batch.writes.iter().any(|write| puts(&write.change)))
        .then(|| ThreadKey::new(&batch.partition.tenant, thread))
}

impl ThreadRows for ThreadRowBackend {
    fn thread_with_new_rows(&self, batch: &Batch) -> Option<ThreadKey> {
        thread_with_new_rows(batch)
    }

    fn before_commit<'a>(&'a self, owner: &'a ThreadKey, now: Timestamp) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.store_row(owner, now))
    }

    fn after_commit<'a>(&'a self, owner: &'a ThreadKey, now: Timestamp) -> BoxFuture<'a, ()> {
        Box::pin(self.restore_row(owner, now))
    }
}

impl Backend for ThreadRowBackend {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.store.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        match thread_with_new_rows(&batch) {
            Some(owner) => Box::pin(self.commit_in_thread(owner, batch, now)),
            None => self.store.commit(batch, now),
        }
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.store.scan(scan, now)
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.store.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.store.watch(table)
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        self.store.count_by_id(table, now)
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    fn write_error(&self) -> Option<String> {
        self.store.write_error()
    }

    fn damage(&self) -> Option<String> {
        self.store.damage()
    }

    fn losses(&self, seen: usize) -> Vec<LossReport> {
        self.store.losses(seen)
    }

    fn warnings(&self) -> Vec<String> {
        self.store.warnings()
    }

    fn memory_pressure(&self) -> Option<f64> {
        self.store.memory_pressure()
    }

    fn lacks_replicas(&self, stamp: u64) -> bool {
        self.store.lacks_replicas(stamp)
    }

    fn servers(&self) -> Option<ServersReport> {
        self.store.servers()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }

    fn is_write_behind(&self) -> bool {
        self.store.is_write_behind()
    }

    fn size_limit(&self) -> Option<&SizeLimit> {
        self.store.size_limit()
    }

    fn seal_key(&self) -> Option<SealKey> {
        self.store.seal_key()
    }

    fn name(&self) -> &'static str {
        self.store.name()
    }
}
