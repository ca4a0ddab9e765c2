//! The book of threads: which there are, since when, and when they were last active.
//!
//! In: what this node has seen. Out: rows of the table `threads`, written in the background and at shutdown, and answers
//! made of both. A few seconds of a thread's history may be lost with the process; nothing hangs on them.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::sync::Mutex as AsyncMutex;

use super::{
    ThreadActivity,
    activity::{FORGET_AFTER, FlushScope, ThreadEntry},
};
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Partition, Row, RowKey, RowVersion, Scan, Scope,
        StoreError, Table, Write, decode, encode,
    },
    clock::Clock,
};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

const LAYOUT: u32 = 1;
/// How long news of threads is collected before it is written.
const FLUSH_DELAY: Duration = Duration::from_secs(3);
/// How many rows are read at once.
const BATCH_SIZE: usize = 100;
/// How many are written beside each other: a store that writes in groups has something to group.
const WRITE_CONCURRENCY: usize = 16;

/// What is known about a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The thread.
    pub id: ThreadId,
    /// When it was first seen.
    #[serde(rename = "createdAt")]
    pub created: Timestamp,
    /// When a call last named it. Of another node's calls, to the minute.
    #[serde(rename = "lastActiveAt")]
    pub last_active: Timestamp,
    /// How many calls named it, those included that were refused.
    pub calls: u64,
}

/// Some of a tenant's threads, by id.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ThreadPage {
    /// The threads.
    pub threads: Vec<ThreadInfo>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// How many threads are looked at in one page. Many: a store without an index over partitions looks at all for each page.
const IDLE_SCAN_PAGE_SIZE: usize = 10_000;

/// A thread as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    created: Timestamp,
    last_active: Timestamp,
    calls: u64,
}

/// Which threads there are.
pub(crate) struct ThreadStore {
    activity: Arc<ThreadActivity>,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    /// Whoever writes does so alone: one that lags behind could take a thread that was merely forgotten for a deleted one.
    write_lock: AsyncMutex<()>,
}

impl ThreadStore {
    pub(crate) fn new(known: Arc<ThreadActivity>, store: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        Self { activity: known, store, clock, write_lock: AsyncMutex::default() }
    }

    /// A thread, if anybody has ever named it.
    pub(crate) async fn find(&self, owner: &ThreadKey) -> Result<Option<ThreadInfo>, StoreError> {
        let known = self.activity.get(owner);
        let (record, _) = self.load_record(owner).await?.unzip();
        let record = merge_activity(record, known.as_ref());
        Ok(record.map(|record| thread_info(owner.thread.clone(), record)))
    }

    /// Whether a call on this node has named the thread lately. The store may not know yet.
    pub(crate) fn is_tracked(&self, owner: &ThreadKey) -> bool {
        self.activity.get(owner).is_some()
    }

    /// Whether this node knows that the thread is in the store.
    pub(crate) fn is_stored(&self, owner: &ThreadKey) -> bool {
        self.activity.get(owner).is_some_and(|thread| thread.is_stored())
    }

    /// The thread as the store knows it, and which writing that was.
    pub(crate) async fn load_record(&self, owner: &ThreadKey) -> Result<Option<(Record, RowVersion)>, StoreError> {
        let keys = [row_key(owner)];
        let row = self.store.load(&keys, self.clock.now()).await?.pop().flatten();
        Ok(row.map(|row| (read(&keys[0].id, &row), row.version)))
    }

    /// A tenant's threads, a page at a time.
    pub(crate) async fn list(&self, tenant: &Tenant, after: Option<Cursor>) -> Result<ThreadPage, StoreError> {
        // What only this node knows is written first, so that there is one list and one order.
        self.flush(FlushScope::Stale).await?;
        let scan = Scan { after, ..Scan::new(Table::Threads, Scope::Tenant(tenant.clone())).limit(BATCH_SIZE) };
        let page = self.store.scan(scan, self.clock.now()).await?;
        let thread = |(key, row): &(RowKey, Row)| {
            let owner = ThreadKey::new(tenant, key.partition.thread()?);
            let record = merge_activity(Some(read(&key.id, row)), self.activity.get(&owner).as_ref())?;
            Some(thread_info(owner.thread, record))
        };
        Ok(ThreadPage { threads: page.rows.iter().filter_map(thread).collect(), next: page.next })
    }

    /// The threads that nobody has named for so long, as the store knows them: some, and where to go on.
    pub(crate) async fn idle_threads(
        self: &Arc<Self>,
        after: Option<Cursor>,
        idle: Duration,
        now: Timestamp,
    ) -> Result<(Vec<ThreadKey>, Option<Cursor>), StoreError> {
        let (threads, next) = self.all_threads(after, IDLE_SCAN_PAGE_SIZE).await?;
        let old = threads.into_iter().filter(|(_, record)| record.last_active + idle <= now);
        Ok((old.map(|(owner, _)| owner).collect(), next))
    }

    /// Every thread of every tenant, as the store knows them, a page at a time.
    async fn all_threads(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<(ThreadKey, Record)>, Option<Cursor>), StoreError> {
        let scan = Scan { after, ..Scan::new(Table::Threads, Scope::All).limit(limit) };
        let page = self.store.scan(scan, self.clock.now()).await?;
        let thread = |(key, row): &(RowKey, Row)| {
            let owner = ThreadKey::new(&key.partition.tenant, key.partition.thread()?);
            Some((owner, read(&key.id, row)))
        };
        Ok((page.rows.iter().filter_map(thread).collect(), page.next))
    }

    /// Makes a thread, or finds the one that is there.
    pub(crate) async fn create(&self, owner: ThreadKey) -> Result<ThreadInfo, StoreError> {
        let now = self.clock.now();
        let record = Record { created: now, last_active: now, calls: 0 };
        match self.put(&owner, record, Expect::Absent, now).await {
            Ok(()) => self.activity.insert_stored(owner.clone(), now),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(self.find(&owner).await?.unwrap_or_else(|| thread_info(owner.thread, record)))
    }

    /// Writes down everything that is not in the store.
    pub(crate) async fn flush_all(&self) -> Result<(), StoreError> {
        self.flush(FlushScope::All).await
    }

    async fn flush(&self, what: FlushScope) -> Result<(), StoreError> {
        let _alone = self.write_lock.lock().await;
        let written = self.write_due(what).await;
        self.activity.evict(self.clock.now());
        written
    }

    async fn write_due(&self, what: FlushScope) -> Result<(), StoreError> {
        let due = self.activity.due_for_flush(what, self.clock.now());
        for some in due.chunks(BATCH_SIZE) {
            let now = self.clock.now();
            let keys: Vec<RowKey> = some.iter().map(|(owner, _)| row_key(owner)).collect();
            let rows = self.store.load(&keys, now).await?;
            let mut writing = FuturesUnordered::new();
            for ((owner, known), row) in some.iter().zip(rows) {
                writing.push(self.write_one(owner, known, row, now));
                if writing.len() >= WRITE_CONCURRENCY {
                    writing.next().await.transpose()?;
                }
            }
            while let Some(written) = writing.next().await {
                written?;
            }
        }
        Ok(())
    }

    async fn write_one(
        &self,
        owner: &ThreadKey,
        known: &ThreadEntry,
        row: Option<Row>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let expect = row.as_ref().map_or(Expect::Absent, |row| Expect::Same(row.version));
        let stored = row.map(|row| read(&owner.thread.clone().into(), &row));
        let Some(record) = merge_activity(stored, Some(known)) else { return Ok(()) };
        match self.put(owner, record, expect, now).await {
            Ok(()) if self.activity.mark_stored(owner, known) => Ok(()),
            // Somebody has deleted the thread while it was being written.
            Ok(()) => self.remove(owner, now).await,
            // Another node was faster; the next round looks again.
            Err(StoreError::Conflict { .. }) => {
                self.activity.flush_needed.notify_one();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn put(&self, owner: &ThreadKey, record: Record, expect: Expect, now: Timestamp) -> Result<(), StoreError> {
        let RowKey { partition, table, id } = row_key(owner);
        let value = encode(table, &id, &record)?;
        let change = Change::Put { value, schema: LAYOUT, expires: None };
        let write = Write { table, id, expect, change, durability: Durability::KillSafe };
        self.store.commit(Batch::new(partition).with(write), now).await.map(|_| ())
    }

    async fn remove(&self, owner: &ThreadKey, now: Timestamp) -> Result<(), StoreError> {
        let RowKey { partition, table, id } = row_key(owner);
        let (expect, durability) = (Expect::Any, Durability::KillSafe);
        let write = Write { table, id, expect, change: Change::Remove, durability };
        self.store.commit(Batch::new(partition).with(write), now).await.map(|_| ())
    }
}

/// Where the row of a thread lies.
pub(crate) fn row_key(owner: &ThreadKey) -> RowKey {
    let partition = Partition::from(owner);
    RowKey { partition, table: Table::Threads, id: owner.thread.clone().into() }
}

/// A record that cannot be read says at least when it was written.
fn read(id: &SmolStr, row: &Row) -> Record {
    let record = decode(Table::Threads, id, LAYOUT, row).inspect_err(StoreError::log_skipped);
    record.map_or(Record { created: row.created, last_active: row.updated, calls: 0 }, |(record, _)| record)
}

fn merge_activity(stored: Option<Record>, known: Option<&ThreadEntry>) -> Option<Record> {
    let Some(known) = known else { return stored };
    let fresh = Record { created: known.first_seen, last_active: known.last_active, calls: known.unstored_calls };
    let Some(stored) = stored else { return Some(fresh) };
    Some(Record {
        created: stored.created.min(fresh.created),
        last_active: stored.last_active.max(fresh.last_active),
        calls: stored.calls + fresh.calls,
    })
}

fn thread_info(id: ThreadId, record: Record) -> ThreadInfo {
    let Record { created, last_active, calls } = record;
    ThreadInfo { id, created, last_active, calls }
}

/// Writes down which threads are active, for as long as the hub lives.
pub(crate) async fn run_activity_flusher(book: Weak<ThreadStore>) {
    loop {
        let Some(here) = book.upgrade() else { return };
        let known = here.activity.clone();
        drop(here);
        let _ = tokio::time::timeout(FORGET_AFTER, known.flush_needed.notified()).await;
        tokio::time::sleep(FLUSH_DELAY).await;
        let Some(here) = book.upgrade() else { return };
        if here.flush(FlushScope::Stale).await.is_err() {
            // A store that does not answer is asked again; until then memory knows.
            known.flush_needed.notify_one();
        }
    }
}
