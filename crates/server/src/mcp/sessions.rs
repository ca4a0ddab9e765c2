//! The sessions of clients of the legacy era, by id.
//!
//! In: new sessions and their owners. Out: the same session for its owner only; for every other caller a session that does not exist.
//! A session is an entry of a table: it has no task of its own. One that is not used is unloaded, and loaded from the store when its
//! client comes back. What other nodes do to sessions is applied here at once.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::StreamExt;
use rmcp::model::InitializeRequestParams;
use serde::Deserialize;
use smol_str::SmolStr;
use tokio::time::Instant;
use toolhub_core::{
    CancellationToken,
    backend::{Backend, RowKey, StoreError, WatchEvent, Watcher},
    clock::Clock,
    ids::ThreadId,
    tasks,
};

use super::{
    session::{Session, Usage},
    stored_sessions::{CreateSessionError, McpSession, McpSessions, SessionLimits, SessionOwner, SessionSettings},
};
use crate::{scope::Principal, settings::McpSettings};

/// How often unused sessions are unloaded and old answers removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Wait before a failed read is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// All sessions.
pub(super) struct Sessions {
    stored: Arc<McpSessions>,
    limits: SessionLimits,
    stopping: CancellationToken,
    is_swept: AtomicBool,
    is_watched: AtomicBool,
    clock: Arc<dyn Clock>,
    loaded: Mutex<HashMap<SmolStr, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(
        store: &Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        settings: &McpSettings,
        stopping: &CancellationToken,
    ) -> Arc<Self> {
        let McpSettings { session_idle, max_sessions, max_sessions_per_caller, .. } = settings;
        let limits = SessionLimits { total: *max_sessions, per_caller: *max_sessions_per_caller, idle: *session_idle };
        Arc::new(Self {
            stored: McpSessions::new(store.clone(), clock.clone()),
            limits,
            stopping: stopping.clone(),
            is_swept: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            clock,
            loaded: Mutex::default(),
        })
    }

    /// The number of sessions, loaded or not.
    pub(super) fn count(&self) -> usize {
        self.stored.total()
    }

    /// Opens a session. Returns its id, which cannot be guessed.
    pub(super) async fn open(
        self: &Arc<Self>,
        principal: &Principal,
        client: InitializeRequestParams,
    ) -> Result<SmolStr, CreateSessionError> {
        self.watch_in_background();
        let (owner, now) = (owner_of(principal), self.clock.now());
        // Independent of the thread, which others may see.
        let id = SmolStr::from(ThreadId::mint().as_str().replacen("th_", "mcp_", 1));
        let session = McpSession {
            id: id.clone(),
            caller: owner.caller.clone(),
            thread: ThreadId::mint(),
            client: serde_json::to_value(&client).unwrap_or_default(),
            created_at: now,
            settings: SessionSettings::default(),
        };
        let (version, replaced) = self.stored.create(&owner, &session, self.limits, now).await?;
        if let Some(id) = replaced {
            self.end(&id);
        }
        self.add((session, version), owner, client);
        Ok(id)
    }

    /// The session with this id, if the caller owns it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn find(
        self: &Arc<Self>,
        id: &str,
        principal: &Principal,
    ) -> Result<Option<Arc<Session>>, StoreError> {
        self.watch_in_background();
        let (owner, now) = (owner_of(principal), self.clock.now());
        let loaded = self.lock().get(id).cloned();
        if let Some(session) = loaded {
            if session.owner() != &owner {
                return Ok(None);
            }
            session.touch();
            self.stored.touch(id, now);
            return Ok(Some(session));
        }
        let Some(stored) = self.stored.load(&owner, id, now).await? else { return Ok(None) };
        let Ok(client) = InitializeRequestParams::deserialize(&stored.0.client) else { return Ok(None) };
        Ok(Some(self.add(stored, owner, client)))
    }

    /// Ends a session of the caller and what is in flight in it. Returns whether there was one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn close(self: &Arc<Self>, id: &str, principal: &Principal) -> Result<bool, StoreError> {
        let owner = owner_of(principal);
        let is_removed = self.stored.remove(&owner, id, self.clock.now()).await?;
        if self.lock().get(id).is_none_or(|session| session.owner() != &owner) {
            return Ok(is_removed);
        }
        self.end(id);
        Ok(true)
    }

    /// Ends what is in flight in a session, which is no longer stored.
    fn end(&self, id: &str) {
        if let Some(session) = self.lock().remove(id) {
            session.ended.cancel();
        }
    }

    /// Adds a session, or returns the one that another request has loaded.
    fn add(
        self: &Arc<Self>,
        stored: (McpSession, u64),
        owner: SessionOwner,
        client: InitializeRequestParams,
    ) -> Arc<Session> {
        let id = stored.0.id.clone();
        let session = Session::new(&self.stored, stored, owner, client, &self.stopping);
        let session = self.lock().entry(id).or_insert_with(|| Arc::new(session)).clone();
        self.sweep_in_background();
        session
    }

    /// Unloads unused sessions from time to time.
    fn sweep_in_background(self: &Arc<Self>) {
        if self.is_swept.swap(true, Relaxed) {
            return;
        }
        let (sessions, stopping) = (Arc::downgrade(self), self.stopping.clone());
        tasks::spawn("MCP sessions", stopping, move |stop| Box::pin(sweep_until_stopped(sessions.clone(), stop)));
    }

    /// Follows what other nodes do to sessions, from before the first one is read.
    fn watch_in_background(self: &Arc<Self>) {
        if self.is_watched.swap(true, Relaxed) {
            return;
        }
        let (sessions, mut first) = (Arc::downgrade(self), Some(self.stored.watch()));
        tasks::spawn("MCP sessions of other nodes", self.stopping.clone(), move |stop| {
            let again = || sessions.upgrade().map(|sessions| sessions.stored.watch());
            let is_first = first.is_some();
            let changes = first.take().or_else(again);
            let sessions = sessions.clone();
            Box::pin(async move {
                let Some(changes) = changes else { return };
                if !is_first {
                    reload(&sessions).await;
                }
                stop.run_until_cancelled(follow(&sessions, changes)).await;
            })
        });
    }

    /// Applies what another node has done to a session.
    async fn apply_change(&self, key: &RowKey, version: Option<u64>) -> Result<(), StoreError> {
        let loaded = self.lock().get(&key.id).cloned();
        let Some(version) = version else {
            self.stored.forget(&key.id);
            self.end(&key.id);
            return Ok(());
        };
        if self.stored.is_known(&key.id) && loaded.as_ref().is_none_or(|session| session.version() >= version) {
            return Ok(());
        }
        match self.stored.refresh(key, self.clock.now()).await? {
            Some((stored, version)) => {
                loaded.iter().for_each(|session| session.apply_settings(&stored.settings, version));
            }
            None => self.end(&key.id),
        }
        Ok(())
    }

    /// Applies what other nodes have done to all sessions.
    async fn reload(&self) -> Result<(), StoreError> {
        let before: Vec<_> = self.lock().values().cloned().collect();
        let stored = self.stored.reload(self.clock.now()).await?;
        for session in before {
            match stored.get(session.id()) {
                Some((stored, version)) => session.apply_settings(&stored.settings, *version),
                None => self.end(session.id()),
            }
        }
        Ok(())
    }

    fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|id, session| match session.sweep(now, self.limits.idle) {
            Usage::Busy => {
                self.stored.touch(id, self.clock.now());
                true
            }
            Usage::Recent => true,
            Usage::Unused => false,
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SmolStr, Arc<Session>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owner_of(principal: &Principal) -> SessionOwner {
    SessionOwner { tenant: principal.tenant.clone(), caller: principal.caller.clone() }
}

async fn follow(sessions: &Weak<Sessions>, mut changes: Watcher) {
    while let Some(change) = changes.next().await {
        let Some(strong) = sessions.upgrade() else { return };
        let applied = match change {
            WatchEvent::Row(key, version) => strong.apply_change(&key, version).await,
            WatchEvent::Lagged => strong.reload().await,
        };
        drop(strong);
        if applied.is_err() {
            reload(sessions).await;
        }
    }
}

/// Applies what other nodes have done to all sessions, as soon as the store answers.
async fn reload(sessions: &Weak<Sessions>) {
    while let Some(strong) = sessions.upgrade() {
        let Err(error) = strong.reload().await else { return };
        drop(strong);
        tracing::debug!(%error, "the MCP sessions cannot be read; retrying");
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn sweep_until_stopped(sessions: Weak<Sessions>, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(SWEEP_INTERVAL)).await.is_some() {
        let Some(sessions) = sessions.upgrade() else { return };
        sessions.sweep();
    }
}
