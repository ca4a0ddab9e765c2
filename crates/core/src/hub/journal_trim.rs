//! Keeps the store below its size limit: removes the oldest ended calls, with their events and artifacts.
//!
//! In: the store's signal that it is near its limit. Out: fewer rows. Calls go oldest first; a thread goes when its last call
//! went and it holds nothing else. A call whose idempotency key can still be repeated stays. State, messages, approvals and
//! open calls are never removed: if they alone fill the store, its limit is reached.

use std::{
    collections::{HashMap, HashSet},
    sync::Weak,
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use smol_str::SmolStr;

use super::thread_removal;
use crate::{artifact, engine::Engine, journal::CallRecord};
use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, RowKey, Scan, Scope, SizeLimit, StoreError, Table, Write,
};
use toolhub_types::{content::Content, ids::ThreadKey, timestamp::Timestamp};

/// Maximum number of rows removed per round.
const ROUND_SIZE: usize = 2000;
/// Size of a small call with its thread, from which the number of calls to remove is estimated.
const CALL_BYTES: u64 = 2048;
/// Number of concurrent removals, so that a store with group commit can group them.
const REMOVE_CONCURRENCY: usize = 256;
/// Delay before the next attempt if nothing could be removed or the store failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long a thread that has evidence must be idle before it is removed.
const EVIDENCE_RETENTION: Duration = Duration::from_secs(600);

/// Removes the oldest records whenever the store is near its limit, until the hub is dropped.
pub(super) async fn run(hub: Weak<Engine>) {
    let mut has_warned = false;
    loop {
        let Some(store) = hub.upgrade().map(|engine| engine.services.store.clone()) else { return };
        let Some(limit) = store.size_limit() else { return };
        limit.wait_until_near().await;
        let Some(engine) = hub.upgrade() else { return };
        let trimmed = trim(&engine, limit).await;
        if let Ok(removed) = &trimmed {
            tracing::info!(removed, limit = limit.limit(), "store near its size limit: the oldest calls were removed");
        }
        if !limit.is_near() {
            has_warned = false;
            continue;
        }
        if !has_warned {
            let error = trimmed.err().map(|error| error.to_string()).unwrap_or_default();
            let (bytes, limit) = (limit.bytes(), limit.limit());
            tracing::warn!(bytes, limit, %error, "store near its size limit, and no calls are left to remove; raise `store.max_size`");
            has_warned = true;
        }
        drop(engine);
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Removes the oldest calls until the store is below its low-water mark. Returns their number.
async fn trim(engine: &Engine, limit: &SizeLimit) -> Result<usize, StoreError> {
    let services = &engine.services;
    let (mut scan, mut total) = (Scan::new(Table::Calls, Scope::All), 0);
    while limit.bytes() > limit.low_water() {
        let surplus = (limit.bytes().saturating_sub(limit.low_water()) / CALL_BYTES) as usize;
        scan.limit = surplus.clamp(50, ROUND_SIZE);
        let now = services.clock.now();
        // The ids of calls grow with time.
        let page = services.store.scan(scan.clone(), now).await?;
        let Some(newest) = page.rows.last().map(|(_, row)| row.created) else { break };
        let calls = page.rows.into_iter().map(|(key, row)| {
            let record = CallRecord::of_row(&key, &row);
            (key, record)
        });
        let is_removable = |record: &CallRecord| !record.may_be_repeated(now);
        let calls: Vec<_> = calls.filter(|(_, record)| record.as_ref().is_none_or(is_removable)).collect();
        let thread = |key: &RowKey| Some(ThreadKey::new(&key.partition.tenant, key.partition.thread()?));
        let threads: HashSet<ThreadKey> = calls.iter().filter_map(|(key, _)| thread(key)).collect();
        total += calls.len();
        engine.journal.count_trimmed(calls.len());
        remove_calls(&*services.store, calls, now).await?;
        remove_events(&*services.store, newest, now).await?;
        for owner in threads {
            remove_bare_thread(engine, &owner, newest).await?;
            tokio::task::yield_now().await;
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => break,
        }
    }
    trim_idle_threads(engine, limit).await?;
    Ok(total)
}

/// Removes threads that hold nothing, such as those that only refused calls have named, while the store is above its low-water
/// mark.
async fn trim_idle_threads(engine: &Engine, limit: &SizeLimit) -> Result<(), StoreError> {
    let mut after = None;
    while limit.bytes() > limit.low_water() {
        let now = engine.services.clock.now();
        let (idle, next) = engine.thread_store.idle_threads(after, EVIDENCE_RETENTION, now).await?;
        for owner in idle {
            remove_bare_thread(engine, &owner, now - EVIDENCE_RETENTION).await?;
            tokio::task::yield_now().await;
        }
        match next {
            Some(_) => after = next,
            None => break,
        }
    }
    Ok(())
}

/// Removes calls with the artifacts they refer to.
async fn remove_calls(
    store: &dyn Backend,
    calls: Vec<(RowKey, Option<CallRecord>)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut batches: HashMap<Partition, (Batch, Vec<Content>)> = HashMap::new();
    for (RowKey { partition, table, id }, record) in calls {
        let new = || (Batch::new(partition.clone()), Vec::new());
        let (batch, content) = batches.entry(partition.clone()).or_insert_with(new);
        batch.writes.push(removal(table, id));
        content.extend(record.and_then(|record| record.outcome).into_iter().flat_map(|outcome| outcome.content));
    }
    let removals = batches.into_values().map(async |(batch, content)| {
        let tenant = batch.partition.tenant.clone();
        store.commit(batch, now).await?;
        artifact::delete(store, &tenant, &content, now).await
    });
    stream::iter(removals).buffer_unordered(REMOVE_CONCURRENCY).try_collect().await
}

/// Removes the events up to this time.
async fn remove_events(store: &dyn Backend, until: Timestamp, now: Timestamp) -> Result<(), StoreError> {
    loop {
        let page = store.scan(Scan::new(Table::Events, Scope::All).limit(ROUND_SIZE), now).await?;
        let mut batches: HashMap<Partition, Batch> = HashMap::new();
        let mut is_last = page.next.is_none();
        for (key, row) in page.rows {
            if row.created > until {
                is_last = true;
                break;
            }
            let batch = batches.entry(key.partition.clone()).or_insert_with(|| Batch::new(key.partition.clone()));
            batch.writes.push(removal(key.table, key.id));
        }
        for batch in batches.into_values() {
            store.commit(batch, now).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Removes a thread that was last active before this time, if it holds nothing but evidence.
async fn remove_bare_thread(engine: &Engine, owner: &ThreadKey, unless_after: Timestamp) -> Result<(), StoreError> {
    let (services, now) = (&engine.services, engine.services.clock.now());
    let has_rows = async |store: &dyn Backend, table| {
        let scan = Scan::new(table, Scope::Partition(Partition::from(owner))).limit(1);
        Ok::<bool, StoreError>(!store.scan(scan, now).await?.rows.is_empty())
    };
    for table in Table::ALL.into_iter().filter(|table| !matches!(table, Table::Threads | Table::Evidence)) {
        if has_rows(&*services.store, table).await? {
            return Ok(());
        }
    }
    for store in services.state.store_router().non_hub_stores() {
        for table in [Table::State, Table::Versions, Table::History] {
            if has_rows(&*store, table).await? {
                return Ok(());
            }
        }
    }
    let Some(last_active) = engine.thread_store.find(owner).await?.map(|thread| thread.last_active) else {
        return Ok(());
    };
    let is_recent = now.since(last_active) < EVIDENCE_RETENTION && has_rows(&*services.store, Table::Evidence).await?;
    if is_recent || last_active > unless_after {
        return Ok(());
    }
    let _paused = engine.thread_store.pause_flushes().await;
    if !services.thread_activity.forget(owner, unless_after) {
        return Ok(());
    }
    thread_removal::remove(&engine.thread_store, (&*services.store, &[]), owner, &[], now).await.map(|_| ())
}

fn removal(table: Table, id: SmolStr) -> Write {
    let (expect, durability) = (Expect::Any, Durability::KillSafe);
    Write { table, id, expect, change: Change::Remove, durability }
}
