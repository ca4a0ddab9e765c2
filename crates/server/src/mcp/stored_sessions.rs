//! Sessions of MCP clients: rows in the store, so that a client goes on with its session after a pause or a restart.
//!
//! In: what a client said at `initialize`, with the owner and the thread of its session. Out: the same, for its owner only, until the
//! session was not used for a day. An index in memory counts sessions and collects their last uses, which are written in batches.
#![allow(deprecated, reason = "log levels are deprecated, but clients still set them")]

mod index;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rmcp::model::LoggingLevel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolhub_core::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, RowKey, RowVersion, Scan,
        Scope as ScanScope, StoreError, Table, Write, decode, encode, read_all,
    },
    clock::{Clock, SystemClock, Timestamp},
    ids::{Caller, Tenant, ThreadId},
    tasks,
};

use index::SessionIndex;

const SCHEMA_VERSION: u32 = 1;
/// How long a session is kept after its last use.
pub(crate) const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// How often last uses are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// Number of last uses in one commit.
const FLUSH_BATCH_SIZE: usize = 200;
/// Largest text of what a client said at `initialize`.
const MAX_CLIENT_BYTES: usize = 16 << 10;

/// Who a session belongs to. To all others it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionOwner {
    pub(crate) tenant: Tenant,
    pub(crate) caller: Caller,
}

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct McpSession {
    pub(crate) id: SmolStr,
    pub(crate) caller: Caller,
    pub(crate) thread: ThreadId,
    /// The parameters of `initialize`: protocol version, capabilities, client info.
    pub(crate) client: Value,
    pub(crate) created_at: Timestamp,
    #[serde(default)]
    pub(crate) settings: SessionSettings,
}

/// What a client has set in its session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SessionSettings {
    /// The resources that it subscribed to.
    pub(crate) subscriptions: Vec<String>,
    /// The least level of log lines that it wants.
    pub(crate) log_level: Option<LoggingLevel>,
}

/// How many sessions there may be; each tenant has a guaranteed share on top of the total.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLimits {
    pub(crate) total: usize,
    pub(crate) per_caller: usize,
    /// At the limit, a session that was not used for so long makes room.
    pub(crate) idle: Duration,
}

/// Why a session cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateSessionError {
    #[error("{0} MCP sessions are in use, as many as there may be (`mcp_endpoint.max_sessions`)")]
    TooMany(usize),
    #[error("this caller uses {0} MCP sessions, as many as it may (`mcp_endpoint.max_sessions_per_caller`)")]
    TooManyOfCaller(usize),
    #[error("the parameters of `initialize` have {0} bytes, at most {MAX_CLIENT_BYTES} are allowed")]
    TooLarge(usize),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The sessions of MCP clients.
pub(crate) struct McpSessions {
    store: Arc<dyn Backend>,
    index: Mutex<SessionIndex>,
    /// Stops the flusher when this is dropped.
    flusher: OnceCell<DropGuard>,
}

impl McpSessions {
    pub(crate) fn new(store: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self { store, index: Mutex::default(), flusher: OnceCell::new() })
    }

    /// Creates a session. The id must be new and hard to guess. Returns the unused session whose place it takes.
    ///
    /// # Errors
    /// When there are too many sessions, or the store does not answer.
    pub(crate) async fn create(
        self: &Arc<Self>,
        owner: &SessionOwner,
        session: &McpSession,
        limits: SessionLimits,
        now: Timestamp,
    ) -> Result<Option<SmolStr>, CreateSessionError> {
        self.ensure_loaded(now).await?;
        let bytes = session.client.to_string().len();
        if bytes > MAX_CLIENT_BYTES {
            return Err(CreateSessionError::TooLarge(bytes));
        }
        let value = encode(Table::McpSessions, &session.id, session)?;
        let replaced = self.lock().reserve(owner, &session.id, limits, now)?;
        let mut place = Place { sessions: self, id: &session.id, is_stored: false };
        let change = Change::Put { value, schema: SCHEMA_VERSION, expires: Some(now + RETENTION) };
        self.commit(&owner.tenant, vec![(session.id.clone(), Expect::Absent, change)], now).await?;
        place.is_stored = true;
        if let Some((tenant, id)) = &replaced {
            self.commit(tenant, vec![(id.clone(), Expect::Any, Change::Remove)], now).await?;
        }
        Ok(replaced.map(|(_, id)| id))
    }

    /// The session with this id, if it belongs to this owner, and records its use.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn load(
        self: &Arc<Self>,
        owner: &SessionOwner,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<McpSession>, StoreError> {
        self.ensure_loaded(now).await?;
        let session = self.load_row(owner, id, now).await?.map(|(session, _)| session);
        if let Some(session) = &session {
            self.lock().insert(owner, &session.id, now);
        }
        Ok(session)
    }

    async fn load_row(
        &self,
        owner: &SessionOwner,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<(McpSession, RowVersion)>, StoreError> {
        let key = RowKey { partition: partition(&owner.tenant), table: Table::McpSessions, id: id.into() };
        let row = self.store.load(&[key], now).await?.pop().flatten();
        let found = row.and_then(|row| Some((read(id, &row)?, row.version)));
        Ok(found.filter(|(session, _)| session.caller == owner.caller))
    }

    /// Stores what a client has set in its session, if the session has not ended. `settings` is read again when another request has
    /// changed the row.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn save_settings(
        &self,
        owner: &SessionOwner,
        id: &str,
        settings: impl Fn() -> SessionSettings,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        loop {
            let Some((mut session, version)) = self.load_row(owner, id, now).await? else { return Ok(()) };
            session.settings = settings();
            let value = encode(Table::McpSessions, &session.id, &session)?;
            let change = Change::Put { value, schema: SCHEMA_VERSION, expires: Some(now + RETENTION) };
            match self.commit(&owner.tenant, vec![(session.id, Expect::Same(version), change)], now).await {
                Err(StoreError::Conflict { .. }) => {}
                saved => return saved,
            }
        }
    }

    /// Records the use of a session; it is written with the next flush.
    pub(crate) fn touch(&self, id: &str, now: Timestamp) {
        self.lock().touch(id, now);
    }

    /// Ends a session; returns whether the owner had one with this id.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        owner: &SessionOwner,
        id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if self.load(owner, id, now).await?.is_none() {
            return Ok(false);
        }
        self.commit(&owner.tenant, vec![(id.into(), Expect::Any, Change::Remove)], now).await?;
        self.lock().remove(id);
        Ok(true)
    }

    /// The number of sessions of a caller.
    #[cfg(test)]
    pub(crate) fn count(&self, owner: &SessionOwner) -> usize {
        self.lock().count(owner)
    }

    /// The number of sessions.
    pub(crate) fn total(&self) -> usize {
        self.lock().total()
    }

    /// Writes the last uses, one commit for many sessions, and forgets sessions that have expired.
    ///
    /// # Errors
    /// When the store does not answer. What was not written is written with the next flush.
    pub(crate) async fn flush(&self, now: Timestamp) -> Result<(), StoreError> {
        let unwritten = self.lock().find_unwritten(now);
        let mut by_tenant: HashMap<Tenant, Vec<(SmolStr, Timestamp)>> = HashMap::new();
        for (tenant, id, expires) in unwritten {
            by_tenant.entry(tenant).or_default().push((id, expires));
        }
        for (tenant, expiries) in by_tenant {
            for expiries in expiries.chunks(FLUSH_BATCH_SIZE) {
                let touch = |(id, expires): &(SmolStr, Timestamp)| {
                    (id.clone(), Expect::Any, Change::Touch { expires: Some(*expires) })
                };
                self.commit(&tenant, expiries.iter().map(touch).collect(), now).await?;
                self.lock().mark_written(expiries);
            }
        }
        Ok(())
    }

    /// Reads the sessions of earlier processes on first use, and starts the flusher.
    async fn ensure_loaded(self: &Arc<Self>, now: Timestamp) -> Result<(), StoreError> {
        let load = async || {
            let scan = Scan::new(Table::McpSessions, ScanScope::All).limit(500);
            for (key, row) in read_all(&*self.store, scan, now).await? {
                let Some(session) = read(&key.id, &row) else { continue };
                let owner = SessionOwner { tenant: key.partition.tenant, caller: session.caller };
                self.lock().insert_stored(&owner, &session.id, row.expires.unwrap_or(now));
            }
            let (sessions, stop) = (Arc::downgrade(self), CancellationToken::new());
            tasks::spawn("MCP sessions", stop.clone(), move |stop| Box::pin(run_flusher(sessions.clone(), stop)));
            Ok::<_, StoreError>(stop.drop_guard())
        };
        self.flusher.get_or_try_init(load).await.map(drop)
    }

    async fn commit(
        &self,
        tenant: &Tenant,
        writes: Vec<(SmolStr, Expect, Change)>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (table, durability) = (Table::McpSessions, Durability::KillSafe);
        let writes = writes.into_iter().map(|(id, expect, change)| Write { table, id, expect, change, durability });
        let batch = writes.fold(Batch::new(partition(tenant)), Batch::with);
        self.store.commit(batch, now).await.map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, SessionIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the sessions; given back unless the session was stored.
struct Place<'a> {
    sessions: &'a McpSessions,
    id: &'a str,
    is_stored: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_stored {
            self.sessions.lock().remove(self.id);
        }
    }
}

/// Writes last uses from time to time. What the last minute brought is lost when the process ends, which shortens a day by a minute.
async fn run_flusher(sessions: Weak<McpSessions>, stop: CancellationToken) {
    loop {
        if stop.run_until_cancelled(tokio::time::sleep(FLUSH_INTERVAL)).await.is_none() {
            return;
        }
        let Some(sessions) = sessions.upgrade() else { return };
        if let Err(error) = sessions.flush(SystemClock.now()).await {
            tracing::warn!(%error, "could not write the last use of MCP sessions; retrying");
        }
    }
}

fn read(id: &str, row: &Row) -> Option<McpSession> {
    let read = decode(Table::McpSessions, &id.into(), SCHEMA_VERSION, row);
    read.inspect_err(StoreError::log_skipped).ok().map(|(session, _)| session)
}

fn partition(tenant: &Tenant) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::McpSessions }
}

#[cfg(test)]
mod tests;
