//! Removes threads that hold nothing, or nothing but evidence.
//!
//! In: how long they must be idle. Out: fewer threads. A thread that holds anything else is left alone.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    super::{
        thread_removal,
        threads::{registered_tools, remove_bare_thread},
    },
    surplus,
};
use crate::{engine::Engine, execution::Tool, threads::StoredThread};
use toolhub_storage::backend::{Change, Cursor, SizeLimit, StoreError};
use toolhub_types::timestamp::Timestamp;

/// Number of threads removed concurrently, before the size is looked at again.
const CONCURRENCY: usize = 256;
/// How long a thread that holds nothing must be idle to be removed before calls.
const MIN_IDLE: Duration = Duration::from_secs(60);
/// Maximum number of threads that are sorted by their last activity.
const MAX_SORTED: usize = 100_000;

/// What a thread may hold besides its own row to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadContent {
    /// Nothing. A thread with instances holds what they hold.
    Nothing,
    /// Evidence, and instances that can be made again.
    Evidence,
}

/// The search for idle threads that hold nothing. It goes on where it stopped, a page at a time, because a store may hold a
/// million threads while calls wait for room.
#[derive(Default)]
pub(super) struct IdleThreads {
    /// Where the next page begins.
    after: Option<Cursor>,
    /// When the last search began.
    started: Option<Timestamp>,
    /// Whether that search has reached the end.
    is_done: bool,
}

impl IdleThreads {
    /// Removes those of the next page of threads that hold nothing and have been idle for a minute, until the store is at its
    /// target.
    pub(super) async fn trim_page(&mut self, engine: &Engine, limit: &SizeLimit) -> Result<(), StoreError> {
        let now = engine.services.clock.now();
        if surplus(limit) == 0 || (self.is_done && self.started.is_some_and(|at| now.since(at) < MIN_IDLE)) {
            return Ok(());
        }
        if self.after.is_none() {
            self.started = Some(now);
        }
        let (mut threads, next) = engine.thread_store.all_threads(self.after.clone()).await?;
        threads.retain(|thread| thread.last_active <= now - MIN_IDLE);
        remove_all(engine, limit, threads, ThreadContent::Nothing, now - MIN_IDLE).await?;
        // Otherwise there may be more on this page.
        if surplus(limit) > 0 {
            (self.is_done, self.after) = (next.is_none(), next);
        } else {
            self.is_done = false;
        }
        Ok(())
    }
}

/// Removes threads that hold nothing, until the store is at its target.
pub(super) async fn trim_bare(engine: &Engine, limit: &SizeLimit) -> Result<(), StoreError> {
    let (mut after, now) = (None, engine.services.clock.now());
    while surplus(limit) > 0 {
        let (threads, next) = engine.thread_store.all_threads(after).await?;
        remove_all(engine, limit, threads, ThreadContent::Nothing, now).await?;
        match next {
            Some(_) => after = next,
            None => break,
        }
    }
    Ok(())
}

/// Removes threads that hold nothing but evidence, the longest idle first, until the store is at its target.
pub(super) async fn trim_with_evidence(engine: &Engine, limit: &SizeLimit) -> Result<(), StoreError> {
    let (mut threads, mut after) = (Vec::new(), None);
    while surplus(limit) > 0 && threads.len() < MAX_SORTED {
        let (page, next) = engine.thread_store.all_threads(after).await?;
        threads.extend(page);
        match next {
            Some(_) => after = next,
            None => break,
        }
    }
    threads.sort_by_key(|thread| thread.last_active);
    remove_all(engine, limit, threads, ThreadContent::Evidence, engine.services.clock.now()).await
}

/// Removes those of the threads that hold no more than this, in order, until the store is at its target.
async fn remove_all(
    engine: &Engine,
    limit: &SizeLimit,
    threads: Vec<StoredThread>,
    content: ThreadContent,
    unless_after: Timestamp,
) -> Result<(), StoreError> {
    let (tools, mut threads) = (registered_tools(engine), threads.into_iter());
    while threads.len() > 0 && surplus(limit) > 0 {
        let chunk = threads.by_ref().take(CONCURRENCY);
        let removals: Vec<_> = chunk.map(|thread| remove_one(engine, &tools, thread, content, unless_after)).collect();
        stream::iter(removals).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn remove_one(
    engine: &Engine,
    tools: &[Arc<Tool>],
    StoredThread { owner, row_version, .. }: StoredThread,
    content: ThreadContent,
    unless_after: Timestamp,
) -> Result<(), StoreError> {
    let (services, thread) = (&engine.services, (&owner, row_version));
    if services.thread_activity.is_active(&owner, unless_after) {
        return Ok(());
    }
    let rows = match content {
        ThreadContent::Nothing => Vec::new(),
        ThreadContent::Evidence => {
            // Checked before its instances are closed.
            let (keep, now) = (vec![engine.journal.change_evidence(Change::Keep)], services.clock.now());
            if !thread_removal::commit_bare(&*services.store, thread, Change::Keep, keep, now).await? {
                return Ok(());
            }
            services.instances.close_instances(&owner, None, "the thread was swept").await;
            vec![engine.journal.change_evidence(Change::Remove)]
        }
    };
    remove_bare_thread(engine, tools, thread, rows, unless_after).await.map(|_| ())
}
