//! Threads, for people who keep house: which there are, what lives in them, and how they go.
//!
//! In: a tenant and a thread. Out: what is known, or that it is gone. Calls make threads by naming them; here they are made
//! on purpose, prepared, listed, swept when they are idle, and deleted.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use smol_str::SmolStr;

use super::{
    ToolHub,
    thread_removal::{self, RemovalResult},
};
use crate::{
    engine::Engine,
    pipeline,
    registry::ToolFilter,
    state::StateCleanup,
    statuses::StatusKey,
    threads::{ThreadContext, ThreadInfo, ThreadPage, Threads},
};
use toolhub_storage::backend::{Cursor, StoreError};
use toolhub_types::{
    error::CallError,
    event_kind::EventKind,
    ids::{StateName, Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// How long the sweeper rests at most.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// How often a deletion begins again because the thread was written to meanwhile.
const MAX_DELETE_ATTEMPTS: usize = 5;

/// Why a thread was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// Calls run in it, or it does not come to rest.
    #[error("calls run in the thread `{0}`; cancel them or wait for their end")]
    Busy(ThreadId),
    /// The store does not answer. Some of the thread's records may be gone; delete it again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ToolHub {
    /// What lives in the threads: instances, and a way to have them closed.
    #[must_use]
    pub fn thread_contexts(&self) -> Threads {
        Threads(self.engine.services.instances.clone())
    }

    /// The live instances of one thread.
    #[must_use]
    pub fn thread_context(&self, tenant: &Tenant, thread: &ThreadId) -> ThreadContext {
        self.thread_contexts().get_or_create(tenant, thread)
    }

    /// Closes all instances of a thread. What is remembered of it stays.
    pub async fn cleanup_thread(&self, tenant: &Tenant, thread: &ThreadId) {
        self.thread_contexts().cleanup(tenant, thread).await;
    }

    /// Makes ready what a tool keeps in a thread, so that the first call need not wait for it. Nothing happens for a tool
    /// that keeps nothing, or where all is ready.
    ///
    /// # Errors
    /// As a call: when there is no such tool, it is withheld or busy, or its factory fails; the failure counts like a
    /// call's.
    pub async fn open_session(
        &self,
        tool: impl Into<SmolStr>,
        tenant: &Tenant,
        thread: &ThreadId,
    ) -> Result<(), CallError> {
        let mut call = self.call(tool, serde_json::Value::Null).tenant(tenant.clone()).into_submission();
        call.call.head_mut().thread = Some(thread.clone());
        let known = &self.engine.services.thread_activity;
        known.begin_uncounted(tenant, thread, call.call.arrived_at);
        let _here = ThreadActivityGuard { engine: &self.engine, owner: ThreadKey::new(tenant, thread) };
        Box::pin(pipeline::prepare(&self.engine, call)).await
    }

    /// Makes a thread; one that nobody can guess where no id is given. A thread that is there already is only found.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn create_thread(&self, tenant: &Tenant, id: Option<ThreadId>) -> Result<ThreadInfo, StoreError> {
        self.engine
            .thread_store
            .create(ThreadKey { tenant: tenant.clone(), thread: id.unwrap_or_else(ThreadId::mint) })
            .await
    }

    /// Notes that somebody uses a thread without a call in it, such as by writing a state. One that is not there is made,
    /// and is in the store when this returns.
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

    /// A thread, if anybody has ever named it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn thread(&self, tenant: &Tenant, id: &ThreadId) -> Result<Option<ThreadInfo>, StoreError> {
        self.engine.thread_store.find(&ThreadKey::new(tenant, id)).await
    }

    /// A tenant's threads by id, a page at a time; the first page without a cursor.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn threads(&self, tenant: &Tenant, after: Option<Cursor>) -> Result<ThreadPage, StoreError> {
        self.engine.thread_store.list(tenant, after).await
    }

    /// Takes a thread away at once: its instances, its state, and every record of it. Says whether there was one. Questions
    /// to people that wait in it are gone with it. The run of an agent that is open there ends at its next step; the service of agents
    /// has a `delete_thread` that ends it at once.
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
            // Forgotten first: what is not known is not written down behind our back.
            if !engine.services.thread_activity.forget(&owner, Timestamp::from_millis(i64::MAX)) {
                return Err(ThreadError::Busy(id.clone()));
            }
            if let RemovalResult::Rows(rows) = remove_thread(engine, &owner).await? {
                finish_removal(engine, &owner, "it was deleted", rows);
                return Ok(true);
            }
        }
        Err(ThreadError::Busy(id.clone()))
    }
}

/// Counts a visitor who is no call among those that run in a thread.
struct ThreadActivityGuard<'a> {
    engine: &'a Engine,
    owner: ThreadKey,
}

impl Drop for ThreadActivityGuard<'_> {
    fn drop(&mut self) {
        self.engine.services.thread_activity.end_call(&self.owner.tenant, &self.owner.thread);
    }
}

/// Sweeps threads that nobody has used for so long, for as long as the hub lives.
pub(super) async fn sweep_idle_threads(hub: Weak<Engine>, idle: Duration) {
    let rest = (idle / 8).clamp(Duration::from_millis(100), MAX_SWEEP_INTERVAL);
    loop {
        tokio::time::sleep(rest).await;
        let Some(engine) = hub.upgrade() else { return };
        let mut after = None;
        // A store that does not answer is asked again the next time.
        while let Ok((old, next)) =
            engine.thread_store.idle_threads(after.take(), idle, engine.services.clock.now()).await
        {
            for owner in old {
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

/// Sweeps a thread that the store takes for idle, unless this node knows better or something in it still waits.
async fn sweep_if_idle(engine: &Arc<Engine>, owner: &ThreadKey, idle: Duration) -> Result<(), StoreError> {
    let services = &engine.services;
    let now = services.clock.now();
    if services.instances.is_in_use(owner) || services.thread_activity.is_running(owner) {
        return Ok(());
    }
    if thread_removal::has_open_work(&*services.store, owner, now).await?
        || !services.thread_activity.forget(owner, now - idle)
    {
        return Ok(());
    }
    let reason = "it was idle";
    if let RemovalResult::Rows(rows) = remove_thread(engine, owner).await? {
        finish_removal(engine, owner, reason, rows);
    }
    Ok(())
}

async fn remove_thread(engine: &Engine, owner: &ThreadKey) -> Result<RemovalResult, StoreError> {
    let services = &engine.services;
    services.instances.close_instances(owner, None, "the thread was swept").await;
    if let Some(plain) = &engine.batched_records {
        // Otherwise they would be written after the thread is gone.
        plain.flush(&engine.runtime).await;
    }
    let tools = engine.registry.snapshot().list(&ToolFilter::default());
    let kept = tools.iter().filter(|tool| tool.state.cleanup == StateCleanup::Never);
    let kept: Vec<StateName> = kept.flat_map(|tool| tool.state.names.clone()).collect();
    let other = services.state.store_router().non_hub_stores();
    thread_removal::remove(&engine.thread_store, (&*services.store, &other), owner, &kept, services.clock.now()).await
}

/// What this node remembers of the thread goes too, and listeners are told.
fn finish_removal(engine: &Engine, owner: &ThreadKey, reason: &'static str, rows: usize) {
    let ThreadKey { tenant, thread } = owner;
    for tool in engine.registry.snapshot().list(&ToolFilter::default()) {
        engine.statuses.forget(&StatusKey::thread(&tool.definition.name, tenant, thread));
    }
    engine.services.state.forget_connections(owner);
    engine.services.availability_changed.notify_one();
    let news = EventKind::ThreadSwept { reason, rows };
    engine.services.events.emit_for_tenant(engine.services.clock.now(), tenant, Some(thread), news);
}
