//! Follows the deletion of threads by other nodes: drops what this node still has of them.
//!
//! In: the changes of the rows of threads. Out: closed instances, forgotten statuses and offers; and the row of a thread again, if this
//! node has written rows of it meanwhile.

use std::sync::{Arc, Weak};

use futures_util::StreamExt;

use super::threads::{forget_thread, registered_tools};
use crate::{engine::Engine, statuses::StatusKey, threads};
use toolhub_storage::backend::{
    Batch, Change, Durability, Expect, RowKey, StoreError, Table, WatchEvent, Watcher, Write,
};
use toolhub_types::ids::ThreadKey;

/// Number of threads that are read at once.
const BATCH_SIZE: usize = 100;
const REASON: &str = "the thread was deleted on another node";

/// Handles the deletions of other nodes until the hub is dropped.
pub(super) async fn watch_threads(mut rows: Watcher, hub: Weak<Engine>) {
    while let Some(change) = rows.next().await {
        let Some(engine) = hub.upgrade() else { return };
        match change {
            WatchEvent::Row(_, Some(_)) => {}
            WatchEvent::Row(key, None) => {
                let Some(thread) = key.partition.thread() else { continue };
                let owner = ThreadKey::new(&key.partition.tenant, thread);
                if !engine.thread_store.own_removals.take(&owner) {
                    follow_removal(&engine, &owner).await;
                }
            }
            WatchEvent::Lagged => {
                engine.thread_store.own_removals.clear();
                if let Err(error) = follow_missed_removals(&engine).await {
                    tracing::warn!(%error, "threads not read after missed changes; some may be deleted");
                }
            }
        }
    }
}

/// Looks for threads of this node that were deleted while changes were missed.
async fn follow_missed_removals(engine: &Arc<Engine>) -> Result<(), StoreError> {
    for owners in engine.services.thread_activity.stored().chunks(BATCH_SIZE) {
        let keys: Vec<RowKey> = owners.iter().map(threads::row_key).collect();
        let rows = engine.services.store.load(&keys, engine.services.clock.now()).await?;
        for (owner, _) in owners.iter().zip(rows).filter(|(_, row)| row.is_none()) {
            follow_removal(engine, owner).await;
        }
    }
    Ok(())
}

/// Drops what this node has of a thread that another node has deleted.
async fn follow_removal(engine: &Arc<Engine>, owner: &ThreadKey) {
    let services = &engine.services;
    // A call that runs here brings the thread back with its next rows; otherwise the thread is as if it had never been used.
    services.thread_activity.mark_removed(owner);
    if services.instances.has_instances(owner) {
        // On a task of its own: an instance may take long to close.
        let (instances, owner) = (services.instances.clone(), owner.clone());
        engine.runtime.spawn(async move { instances.close_instances(&owner, None, REASON).await });
    }
    let tools = registered_tools(engine);
    let keys = tools.iter().map(|tool| StatusKey::thread(&tool.definition.name, &owner.tenant, &owner.thread));
    let known: Vec<_> = keys.filter(|key| engine.statuses.facts(key).is_some()).collect();
    forget_thread(engine, &tools, owner);
    for key in known {
        // The thread may have been created again meanwhile, and the tool may have failed in it.
        let _ = engine.statuses.refresh(&key.key()).await;
    }
    match has_rows(engine, owner).await {
        Ok(false) => {}
        // Written by this node after the deletion: the thread exists again, and the next flush stores its row.
        Ok(true) => services.thread_activity.record_use(&owner.tenant, &owner.thread, services.clock.now()),
        Err(error) => tracing::debug!(%error, thread = %owner.thread, "rows of a deleted thread not looked for"),
    }
}

/// Whether the thread has rows although its own row is missing.
async fn has_rows(engine: &Engine, owner: &ThreadKey) -> Result<bool, StoreError> {
    let RowKey { partition, table, id } = threads::row_key(owner);
    let (expect, durability) = (Expect::Absent, Durability::KillSafe);
    let absent = Write { table, id, expect, change: Change::Keep, durability };
    let probe = Batch { no_other_rows: true, ..Batch::new(partition) }.with(absent);
    match engine.services.store.commit(probe, engine.services.clock.now()).await {
        Ok(_) => Ok(false),
        Err(StoreError::OtherRows) => Ok(true),
        // Another node has stored the row.
        Err(StoreError::Conflict { table: Table::Threads, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
