//! Public API of threads: create, list, prepare, delete; and the sweeper of idle threads.
//!
//! In: a tenant and a thread. Out: its record, its instances, or that it was deleted. Calls create threads implicitly by naming
//! them; `thread_removal.rs` deletes the rows.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use smol_str::SmolStr;

use super::{
    ThreadContext, Threads, ToolHub,
    thread_removal::{self, RemovalResult},
};
use crate::{
    engine::Engine,
    execution::Tool,
    pipeline,
    statuses::StatusKey,
    threads::{ThreadInfo, ThreadPage, ThreadPosition},
};
use toolhub_state::StateCleanup;
use toolhub_storage::backend::{Change, Cursor, RowVersion, StoreError, Write};
use toolhub_types::{
    error::CallError,
    event_kind::EventKind,
    ids::{StateName, Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// Longest interval between two sweeps.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Number of attempts to delete a thread that is written to meanwhile.
const MAX_DELETE_ATTEMPTS: usize = 5;

/// Why a thread was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// Calls run in the thread, or it was used again during every attempt to delete it.
    #[error("calls are running in thread `{0}`; cancel them or wait until they have ended")]
    Busy(ThreadId),
    /// The store does not answer. Some of the thread's records may be deleted already; delete it again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ToolHub {
    /// The live instances of all threads, which can be closed through it.
    #[must_use]
    pub fn thread_contexts(&self) -> Threads {
        Threads(self.clone())
    }

    /// The live instances of one thread.
    #[must_use]
    pub fn thread_context(&self, tenant: &Tenant, thread: &ThreadId) -> ThreadContext {
        self.thread_contexts().get_or_create(tenant, thread)
    }

    /// Closes all instances of a thread. Its state and records stay.
    pub async fn cleanup_thread(&self, tenant: &Tenant, thread: &ThreadId) {
        self.thread_contexts().cleanup(tenant, thread).await;
    }

    /// Creates a tool's instance in a thread ahead of the first call. Does nothing for a tool without instances, or if the
    /// instance exists.
    ///
    /// # Errors
    /// Like a call: when the tool is not registered, is withheld or busy, or its factory fails; the failure counts like that of
    /// a call.
    pub async fn open_session(
        &self,
        tool: impl Into<SmolStr>,
        tenant: &Tenant,
        thread: &ThreadId,
    ) -> Result<(), CallError> {
        let mut call = self.call(tool, serde_json::Value::Null).tenant(tenant.clone()).into_submission();
        call.call.head_mut().thread = Some(thread.clone());
        let activity = &self.engine.services.thread_activity;
        activity.begin_uncounted(tenant, thread, call.call.arrived_at);
        let _guard = ThreadActivityGuard { engine: &self.engine, owner: ThreadKey::new(tenant, thread) };
        Box::pin(pipeline::prepare(&self.engine, call)).await
    }

    /// Creates a thread, with a random id if none is given. Returns an existing thread unchanged.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn create_thread(&self, tenant: &Tenant, id: Option<ThreadId>) -> Result<ThreadInfo, StoreError> {
        self.engine
            .thread_store
            .create(ThreadKey { tenant: tenant.clone(), thread: id.unwrap_or_else(ThreadId::mint) })
            .await
    }

    /// Records activity in a thread that is not a call, such as a state write. Creates the thread if it does not exist; it is
    /// stored when this returns.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn touch_thread(&self, tenant: &Tenant, id: &ThreadId) -> Result<(), StoreError> {
        let owner = ThreadKey::new(tenant, id);
        if !self.engine.thread_store.is_stored(&owner) {
            self.engine.thread_store.create(owner).await?;
        }
        self.engine.services.thread_activity.record_use(tenant, id, self.now());
        Ok(())
    }

    /// A thread, if it exists.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn thread(&self, tenant: &Tenant, id: &ThreadId) -> Result<Option<ThreadInfo>, StoreError> {
        self.engine.thread_store.find(&ThreadKey::new(tenant, id)).await
    }

    /// A page of a tenant's threads, sorted by id; the first page without a cursor.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn threads(&self, tenant: &Tenant, after: Option<Cursor>) -> Result<ThreadPage, StoreError> {
        self.engine.thread_store.list(tenant, after).await
    }

    /// A tenant's threads that match, the most recently active ones first: at most `limit`, those after `after`. Reads all threads of
    /// the tenant.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn recent_threads(
        &self,
        tenant: &Tenant,
        after: Option<ThreadPosition>,
        limit: usize,
        matches: impl Fn(&ThreadInfo) -> bool,
    ) -> Result<Vec<ThreadInfo>, StoreError> {
        self.engine.thread_store.most_recent(tenant, after, limit, matches).await
    }

    /// Deletes a thread immediately: its instances, its state, its pending approvals and all its records. Returns whether it
    /// existed. An open agent run ends at its next step; `AgentService::delete_thread` ends it immediately.
    ///
    /// # Errors
    /// When calls run in it, or the store does not answer.
    pub async fn delete_thread(&self, tenant: &Tenant, id: &ThreadId) -> Result<bool, ThreadError> {
        let owner = ThreadKey::new(tenant, id);
        let engine = &self.engine;
        if engine.thread_store.find(&owner).await?.is_none() {
            return Ok(false);
        }
        for _ in 0..MAX_DELETE_ATTEMPTS {
            match remove_thread(engine, &owner, Timestamp::from_millis(i64::MAX)).await? {
                Some(RemovalResult::Rows(rows)) => {
                    finish_removal(engine, &registered_tools(engine), &owner, "it was deleted", rows);
                    return Ok(true);
                }
                Some(RemovalResult::StillActive) => {}
                None => break,
            }
        }
        Err(ThreadError::Busy(id.clone()))
    }
}

/// Counts an operation that is not a call as running in a thread, until dropped.
struct ThreadActivityGuard<'a> {
    engine: &'a Engine,
    owner: ThreadKey,
}

impl Drop for ThreadActivityGuard<'_> {
    fn drop(&mut self) {
        self.engine.services.thread_activity.end_call(&self.owner.tenant, &self.owner.thread);
    }
}

/// Sweeps threads that have been idle for `idle`, until the hub is dropped.
pub(super) async fn sweep_idle_threads(hub: Weak<Engine>, idle: Duration) {
    let interval = (idle / 8).clamp(Duration::from_millis(100), MAX_SWEEP_INTERVAL);
    loop {
        tokio::time::sleep(interval).await;
        let Some(engine) = hub.upgrade() else { return };
        if !engine.nodes.is_maintainer() {
            continue;
        }
        let mut after = None;
        // If the store does not answer, the next sweep tries again.
        while let Ok((idle_threads, next)) =
            engine.thread_store.idle_threads(after.take(), idle, engine.services.clock.now()).await
        {
            for owner in idle_threads {
                let _ = sweep_if_idle(&engine, &owner, idle).await;
                tokio::task::yield_now().await;
            }
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
}

/// Sweeps a thread that is idle by its stored record, unless this node has newer activity or it has open work.
async fn sweep_if_idle(engine: &Arc<Engine>, owner: &ThreadKey, idle: Duration) -> Result<(), StoreError> {
    let services = &engine.services;
    let now = services.clock.now();
    if services.instances.is_in_use(owner) || services.thread_activity.is_running(owner) {
        return Ok(());
    }
    if thread_removal::has_open_work(&*services.store, owner, now).await? {
        return Ok(());
    }
    if let Some(RemovalResult::Rows(rows)) = remove_thread(engine, owner, now - idle).await? {
        finish_removal(engine, &registered_tools(engine), owner, "it was idle", rows);
    }
    Ok(())
}

/// Removes a thread. Returns `None`, and removes nothing, if a call runs in it or it was active after `unless_after`.
async fn remove_thread(
    engine: &Engine,
    owner: &ThreadKey,
    unless_after: Timestamp,
) -> Result<Option<RemovalResult>, StoreError> {
    let services = &engine.services;
    if services.thread_activity.is_active(owner, unless_after) {
        return Ok(None);
    }
    services.instances.close_instances(owner, None, "the thread was swept").await;
    if let Some(records) = &engine.batched_records {
        // Otherwise they would be written after the thread was deleted.
        records.flush(&engine.runtime).await;
    }
    let tools = registered_tools(engine);
    let retained = tools.iter().filter(|tool| tool.state.cleanup == StateCleanup::Never);
    let retained: Vec<StateName> = retained.flat_map(|tool| tool.state.names.clone()).collect();
    let other = services.state.store_router().non_hub_stores();
    let _paused = engine.thread_store.pause_flushes().await;
    // Forget the activity, so that every later write to the thread stores its row again, or is noticed by the removal.
    if services.thread_activity.forget(owner, unless_after).is_none() {
        return Ok(None);
    }
    let now = services.clock.now();
    thread_removal::remove(&engine.thread_store, (&*services.store, &other), owner, &retained, now).await.map(Some)
}

/// Removes a thread that holds nothing but these rows, with them. Returns `false`, and removes nothing, if it holds more or has
/// instances, a call runs in it, or it was active after `unless_after`. Needs neither a pause of flushes nor a flush of records:
/// whatever is written to the thread from now on writes the thread's row too, and then the row has another version.
pub(super) async fn remove_bare_thread(
    engine: &Engine,
    tools: &[Arc<Tool>],
    thread: (&ThreadKey, RowVersion),
    rows: Vec<Write>,
    unless_after: Timestamp,
) -> Result<bool, StoreError> {
    let (services, owner) = (&engine.services, thread.0);
    if services.instances.has_instances(owner) {
        return Ok(false);
    }
    let Some(forgotten) = services.thread_activity.forget(owner, unless_after) else { return Ok(false) };
    let count = rows.len();
    let is_removed = commit_bare(engine, thread, rows).await;
    if matches!(is_removed, Ok(true)) {
        finish_removal(engine, tools, owner, "the store was near its size limit", count);
    } else {
        services.thread_activity.restore(owner, forgotten, is_removed.is_ok());
    }
    is_removed
}

/// Removes a thread that holds nothing but these rows in any store. Returns whether it did.
async fn commit_bare(engine: &Engine, thread: (&ThreadKey, RowVersion), rows: Vec<Write>) -> Result<bool, StoreError> {
    let (services, now) = (&engine.services, engine.services.clock.now());
    for store in services.state.store_router().non_hub_stores() {
        if thread_removal::has_states(&*store, thread.0, now).await? {
            return Ok(false);
        }
    }
    let own_removals = &engine.thread_store.own_removals;
    own_removals.expect(thread.0);
    let removed = thread_removal::commit_bare(&*services.store, thread, Change::Remove, rows, now).await;
    if !matches!(removed, Ok(true)) {
        own_removals.cancel(thread.0);
    }
    removed
}

pub(super) fn registered_tools(engine: &Engine) -> Vec<Arc<Tool>> {
    engine.registry.snapshot().iter().cloned().collect()
}

/// Drops what this node has cached about a thread that is deleted.
pub(super) fn forget_thread(engine: &Engine, tools: &[Arc<Tool>], owner: &ThreadKey) {
    let ThreadKey { tenant, thread } = owner;
    for tool in tools {
        engine.statuses.forget(&StatusKey::thread(&tool.definition.name, tenant, thread));
    }
    engine.statuses.successes.forget_recall(owner);
    engine.offers.unpin(owner);
    engine.services.state.forget_connections(owner);
    engine.services.availability_changed.notify_one();
}

/// Drops what this node has cached about the thread, and emits `thread.swept`.
fn finish_removal(engine: &Engine, tools: &[Arc<Tool>], owner: &ThreadKey, reason: &'static str, rows: usize) {
    let ThreadKey { tenant, thread } = owner;
    forget_thread(engine, tools, owner);
    let event = EventKind::ThreadSwept { reason, rows };
    engine.services.events.emit_for_tenant(engine.services.clock.now(), tenant, Some(thread), event);
}
