//! Write-behind store of threads: which exist, since when, and when they were last active.
//!
//! In: the activity on this node. Out: rows of the table `threads`, written in the background and at shutdown, and
//! reads that merge both. A crash may lose a few seconds of activity, which nothing else depends on. The row of a thread
//! that has other rows is never missing: `row_backend.rs` commits it with the first of them.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};

use super::{
    ThreadActivity,
    activity::{FORGET_AFTER, FlushScope, ThreadEntry},
    own_removals::OwnRemovals,
    record::{Record, is_newer, merge_activity, read, row_key},
};
use toolhub_storage::{
    backend::{
        Backend, Batch, Cursor, Expect, Partition, Row, RowKey, RowVersion, Scan, Scope, SizeLimit, StoreError, Table,
    },
    clock::Clock,
};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// How long activity is collected before it is flushed.
const FLUSH_DELAY: Duration = Duration::from_secs(3);
/// How long a thread without rows is remembered while the store is near its size limit.
const UNSTORED_RETENTION: Duration = Duration::from_secs(60);
/// Number of rows read per request.
const BATCH_SIZE: usize = 100;
/// Number of concurrent writes, so that a store with group commit can group them.
const WRITE_CONCURRENCY: usize = 16;

/// Summary of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The thread.
    pub id: ThreadId,
    /// When it was first seen.
    #[serde(rename = "createdAt")]
    pub created: Timestamp,
    /// When a call last named it. Calls of other nodes are reported with a delay of up to a minute.
    #[serde(rename = "lastActiveAt")]
    pub last_active: Timestamp,
    /// Number of calls that named it, including refused ones.
    pub calls: u64,
}

/// A page of a tenant's threads, sorted by id.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ThreadPage {
    /// The threads.
    pub threads: Vec<ThreadInfo>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
}

/// Threads per page of a scan. Large, because a store without an index over partitions scans all rows for each page.
pub(super) const IDLE_SCAN_PAGE_SIZE: usize = 10_000;

/// A thread as it is in the store.
pub(crate) struct StoredThread {
    pub(crate) owner: ThreadKey,
    pub(crate) last_active: Timestamp,
    pub(crate) row_version: RowVersion,
}

/// The threads in the store, merged with the activity of this node.
pub(crate) struct ThreadStore {
    pub(super) activity: Arc<ThreadActivity>,
    pub(super) store: Arc<dyn Backend>,
    pub(super) clock: Arc<dyn Clock>,
    /// Serializes flushes and deletions: a flush must not write the row of a thread that is being deleted.
    write_lock: AsyncMutex<()>,
    /// The threads that this node is deleting.
    pub(crate) own_removals: OwnRemovals,
}

impl ThreadStore {
    pub(crate) fn new(activity: Arc<ThreadActivity>, store: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        Self { activity, store, clock, write_lock: AsyncMutex::default(), own_removals: OwnRemovals::default() }
    }

    /// A thread, if it exists.
    pub(crate) async fn find(&self, owner: &ThreadKey) -> Result<Option<ThreadInfo>, StoreError> {
        let entry = self.activity.get(owner);
        let (record, _) = self.load_record(owner).await?.unzip();
        let record = merge_activity(record, entry.as_ref());
        Ok(record.map(|record| thread_info(owner.thread.clone(), record)))
    }

    /// Whether a call on this node has named the thread recently. It may not be in the store yet.
    pub(crate) fn is_tracked(&self, owner: &ThreadKey) -> bool {
        self.activity.get(owner).is_some()
    }

    /// Whether this node knows that the thread is in the store.
    pub(crate) fn is_stored(&self, owner: &ThreadKey) -> bool {
        self.activity.is_stored(owner)
    }

    /// Pauses flushes until the guard is dropped. The deletion of a thread holds it from forgetting the thread's activity until
    /// the thread's row is removed.
    pub(crate) async fn pause_flushes(&self) -> AsyncMutexGuard<'_, ()> {
        self.write_lock.lock().await
    }

    /// The stored record of the thread, and its row version.
    pub(crate) async fn load_record(&self, owner: &ThreadKey) -> Result<Option<(Record, RowVersion)>, StoreError> {
        let keys = [row_key(owner)];
        let row = self.store.load(&keys, self.clock.now()).await?.pop().flatten();
        Ok(row.map(|row| (read(&keys[0].id, &row), row.version)))
    }

    /// A page of a tenant's threads.
    pub(crate) async fn list(&self, tenant: &Tenant, after: Option<Cursor>) -> Result<ThreadPage, StoreError> {
        // Flush the new threads that this page may have, so that the store has them in one order. After a burst of new threads
        // the others may take long, and the background flush writes them. One more than fits tells the store that there is a next page.
        let last = after.as_ref().and_then(|Cursor(key)| key.partition.thread());
        let unstored = self.activity.unstored(tenant, last, BATCH_SIZE + 1);
        self.write_batch(&unstored).await?;
        let scan = Scan { after, ..Scan::new(Table::Threads, Scope::Tenant(tenant.clone())).limit(BATCH_SIZE) };
        let page = self.store.scan(scan, self.clock.now()).await?;
        let thread = |(key, row): &(RowKey, Row)| {
            let owner = ThreadKey::new(tenant, key.partition.thread()?);
            let record = merge_activity(Some(read(&key.id, row)), self.activity.get(&owner).as_ref())?;
            Some(thread_info(owner.thread, record))
        };
        Ok(ThreadPage { threads: page.rows.iter().filter_map(thread).collect(), next: page.next })
    }

    /// A page of the stored threads that have been idle for this long, and the cursor of the next page.
    pub(crate) async fn idle_threads(
        self: &Arc<Self>,
        after: Option<Cursor>,
        idle_timeout: Duration,
        now: Timestamp,
    ) -> Result<(Vec<ThreadKey>, Option<Cursor>), StoreError> {
        let (threads, next) = self.all_threads(after).await?;
        let idle = threads.into_iter().filter(|thread| thread.last_active + idle_timeout <= now);
        Ok((idle.map(|thread| thread.owner).collect(), next))
    }

    /// A page of the stored threads of all tenants.
    pub(crate) async fn all_threads(
        &self,
        after: Option<Cursor>,
    ) -> Result<(Vec<StoredThread>, Option<Cursor>), StoreError> {
        let scan = Scan { after, ..Scan::new(Table::Threads, Scope::All).limit(IDLE_SCAN_PAGE_SIZE) };
        let page = self.store.scan(scan, self.clock.now()).await?;
        let thread = |(key, row): &(RowKey, Row)| {
            let owner = ThreadKey::new(&key.partition.tenant, key.partition.thread()?);
            Some(StoredThread { owner, last_active: read(&key.id, row).last_active, row_version: row.version })
        };
        Ok((page.rows.iter().filter_map(thread).collect(), page.next))
    }

    /// Creates a thread, or finds the existing one.
    pub(crate) async fn create(&self, owner: ThreadKey) -> Result<ThreadInfo, StoreError> {
        let now = self.clock.now();
        let record = Record::new(now);
        match self.put(&owner, record, Expect::Absent, now).await {
            Ok(()) => self.activity.insert_stored(owner.clone(), now),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(self.find(&owner).await?.unwrap_or_else(|| thread_info(owner.thread, record)))
    }

    /// Flushes all unstored activity.
    pub(crate) async fn flush_all(&self) -> Result<(), StoreError> {
        self.flush(FlushScope::All).await
    }

    async fn flush(&self, scope: FlushScope) -> Result<(), StoreError> {
        let result = self.write_due(scope).await;
        let _guard = self.write_lock.lock().await;
        self.activity.evict(self.clock.now());
        result
    }

    async fn write_due(&self, scope: FlushScope) -> Result<(), StoreError> {
        let due = self.activity.due_for_flush(scope, self.clock.now());
        if self.is_store_nearly_full() {
            self.activity.forget_unstored(self.clock.now() - UNSTORED_RETENTION);
        }
        for batch in due.chunks(BATCH_SIZE) {
            self.write_batch(batch).await?;
        }
        Ok(())
    }

    /// Writes the unstored activity of these threads. Each batch takes the lock separately, so that a long flush does not block
    /// listings and deletions.
    async fn write_batch(&self, owners: &[ThreadKey]) -> Result<(), StoreError> {
        let _guard = self.write_lock.lock().await;
        let nearly_full = self.is_store_nearly_full();
        // Read under the lock: meanwhile a thread may have been written or deleted. Near the size limit, threads that have no
        // rows are left out, otherwise their own row would be stored: they would fill the store with nothing.
        let entries = owners.iter().filter_map(|owner| Some((owner, self.activity.get(owner)?)));
        let due: Vec<(&ThreadKey, ThreadEntry)> =
            entries.filter(|(_, entry)| entry.has_unstored() && (entry.is_stored() || !nearly_full)).collect();
        let now = self.clock.now();
        let keys: Vec<RowKey> = due.iter().map(|(owner, _)| row_key(owner)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let rows = self.store.load(&keys, now).await?;
        let mut writes = FuturesUnordered::new();
        for ((owner, entry), row) in due.iter().zip(rows) {
            writes.push(self.write_one(owner, entry, row, now));
            if writes.len() >= WRITE_CONCURRENCY {
                writes.next().await.transpose()?;
            }
        }
        while let Some(result) = writes.next().await {
            result?;
        }
        Ok(())
    }

    fn is_store_nearly_full(&self) -> bool {
        self.store.size_limit().is_some_and(SizeLimit::is_near)
    }

    async fn write_one(
        &self,
        owner: &ThreadKey,
        entry: &ThreadEntry,
        row: Option<Row>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if row.as_ref().is_some_and(is_newer) {
            self.activity.mark_stored(owner, entry);
            return Ok(());
        }
        let expect = row.as_ref().map_or(Expect::Absent, |row| Expect::Same(row.version));
        let stored = row.map(|row| read(&owner.thread.clone().into(), &row));
        let Some(record) = merge_activity(stored, Some(entry)) else { return Ok(()) };
        match self.put(owner, record, expect, now).await {
            Ok(()) => {
                self.activity.mark_stored(owner, entry);
                Ok(())
            }
            // Another node wrote concurrently; the next flush retries.
            Err(StoreError::Conflict { .. }) => {
                self.activity.flush_needed.notify_one();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn put(&self, owner: &ThreadKey, record: Record, expect: Expect, now: Timestamp) -> Result<(), StoreError> {
        let batch = Batch::new(Partition::from(owner)).with(record.write(owner, expect)?);
        self.store.commit(batch, now).await.map(|_| ())
    }
}

pub(super) fn thread_info(id: ThreadId, record: Record) -> ThreadInfo {
    let Record { created, last_active, calls } = record;
    ThreadInfo { id, created, last_active, calls }
}

/// Flushes thread activity in the background for as long as the hub exists.
pub(crate) async fn run_activity_flusher(threads: Weak<ThreadStore>) {
    loop {
        let Some(upgraded) = threads.upgrade() else { return };
        let activity = upgraded.activity.clone();
        drop(upgraded);
        let _ = tokio::time::timeout(FORGET_AFTER, activity.flush_needed.notified()).await;
        tokio::time::sleep(FLUSH_DELAY).await;
        let Some(upgraded) = threads.upgrade() else { return };
        if upgraded.flush(FlushScope::Stale).await.is_err() {
            // Retry after a store failure; until then the activity stays in memory.
            activity.flush_needed.notify_one();
        }
    }
}
