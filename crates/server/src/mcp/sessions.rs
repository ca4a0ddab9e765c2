//! The sessions of clients of the legacy era, by id.
//!
//! In: new sessions and their owners. Out: the same session for its owner only; for every other caller a session that does not exist.
//! A session is an entry of a table: it has no task of its own. One that is not used is unloaded, and loaded from the store when its
//! client comes back.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rmcp::model::InitializeRequestParams;
use serde::Deserialize;
use smol_str::SmolStr;
use tokio::time::Instant;
use toolhub_core::{
    CancellationToken,
    backend::{Backend, StoreError},
    clock::{Clock, SystemClock},
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

/// All sessions.
pub(super) struct Sessions {
    stored: Arc<McpSessions>,
    limits: SessionLimits,
    stopping: CancellationToken,
    is_swept: AtomicBool,
    loaded: Mutex<HashMap<SmolStr, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(store: &Arc<dyn Backend>, settings: &McpSettings, stopping: &CancellationToken) -> Arc<Self> {
        let McpSettings { session_idle, max_sessions, max_sessions_per_caller, .. } = settings;
        let limits = SessionLimits { total: *max_sessions, per_caller: *max_sessions_per_caller, idle: *session_idle };
        Arc::new(Self {
            stored: McpSessions::new(store.clone()),
            limits,
            stopping: stopping.clone(),
            is_swept: AtomicBool::new(false),
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
        let (owner, now) = (owner_of(principal), SystemClock.now());
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
        let replaced = self.stored.create(&owner, &session, self.limits, now).await?;
        if let Some(session) = replaced.and_then(|id| self.lock().remove(&id)) {
            session.ended.cancel();
        }
        self.add(session, owner, client);
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
        let (owner, now) = (owner_of(principal), SystemClock.now());
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
        let Ok(client) = InitializeRequestParams::deserialize(&stored.client) else { return Ok(None) };
        Ok(Some(self.add(stored, owner, client)))
    }

    /// Ends a session of the caller and what is in flight in it. Returns whether there was one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn close(self: &Arc<Self>, id: &str, principal: &Principal) -> Result<bool, StoreError> {
        let owner = owner_of(principal);
        let is_removed = self.stored.remove(&owner, id, SystemClock.now()).await?;
        let mut loaded = self.lock();
        if loaded.get(id).is_none_or(|session| session.owner() != &owner) {
            return Ok(is_removed);
        }
        if let Some(session) = loaded.remove(id) {
            session.ended.cancel();
        }
        Ok(true)
    }

    /// Adds a session, or returns the one that another request has loaded.
    fn add(self: &Arc<Self>, stored: McpSession, owner: SessionOwner, client: InitializeRequestParams) -> Arc<Session> {
        let id = stored.id.clone();
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

    fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|id, session| match session.sweep(now, self.limits.idle) {
            Usage::Busy => {
                self.stored.touch(id, SystemClock.now());
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

async fn sweep_until_stopped(sessions: Weak<Sessions>, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(SWEEP_INTERVAL)).await.is_some() {
        let Some(sessions) = sessions.upgrade() else { return };
        sessions.sweep();
    }
}
