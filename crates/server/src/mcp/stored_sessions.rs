//! Sessions of MCP clients: rows in the store, so that a client goes on with its session after a pause or a restart.
//!
//! In: what a client said at `initialize`, with the owner and the thread of its session. Out: the same, for its owner only, until the
//! session was not used for a day. An index in memory counts sessions and collects their last uses, which are written in batches. It is
//! told of the sessions of other nodes by `sessions`; what was used there within the last minute may not be known here.

mod index;
mod record;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use smol_str::SmolStr;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolhub_core::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, RowKey, RowVersion, Scan,
        Scope as ScanScope, StoreError, Table, Watcher, Write, decode, encode, read_all,
    },
    clock::{Clock, Timestamp},
    ids::{Caller, Tenant},
    tasks,
};

use index::SessionIndex;
pub(crate) use record::{McpSession, SessionSettings};

const SCHEMA_VERSION: u32 = 1;
/// How long a session is kept after its last use.
pub(crate) const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// How often last uses are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// Number of last uses in one commit.
const FLUSH_BATCH_SIZE: usize = 200;
/// How often all sessions are read again, in flushes: what other nodes have written about uses is not reported.
const FLUSHES_PER_RELOAD: u32 = 60;
/// How many sessions that turn out to be used elsewhere are passed over when one has to make room.
const MAX_PASSED_OVER: usize = 100;
/// Largest text of what a client said at `initialize`.
const MAX_CLIENT_BYTES: usize = 16 << 10;

/// Who a session belongs to. To all others it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionOwner {
    pub(crate) tenant: Tenant,
    pub(crate) caller: Caller,
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
    clock: Arc<dyn Clock>,
    index: Mutex<SessionIndex>,
    /// Stops the flusher when this is dropped.
    flusher: OnceCell<DropGuard>,
}

impl McpSessions {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { store, clock, index: Mutex::default(), flusher: OnceCell::new() })
    }

    /// Watches all sessions from now on.
    pub(crate) fn watch(&self) -> Watcher {
        self.store.watch(Table::McpSessions)
    }

    /// Creates a session. The id must be new and hard to guess. Returns its version, and the unused session whose place it takes.
    ///
    /// # Errors
    /// When there are too many sessions, or the store does not answer.
    pub(crate) async fn create(
        self: &Arc<Self>,
        owner: &SessionOwner,
        session: &McpSession,
        limits: SessionLimits,
        now: Timestamp,
    ) -> Result<(u64, Option<SmolStr>), CreateSessionError> {
        self.ensure_loaded(now).await?;
        let bytes = session.client.to_string().len();
        if bytes > MAX_CLIENT_BYTES {
            return Err(CreateSessionError::TooLarge(bytes));
        }
        let value = encode(Table::McpSessions, &session.id, session)?;
        let replaced = self.reserve(owner, &session.id, limits, now).await?;
        let mut place = Place { sessions: self, id: &session.id, is_stored: false };
        let change = Change::Put { value, schema: SCHEMA_VERSION, expires: Some(now + RETENTION) };
        let version = self.commit(&owner.tenant, vec![(session.id.clone(), Expect::Absent, change)], now).await?;
        place.is_stored = true;
        if let Some((tenant, id)) = &replaced {
            self.commit(tenant, vec![(id.clone(), Expect::Any, Change::Remove)], now).await?;
        }
        Ok((version, replaced.map(|(_, id)| id)))
    }

    /// Takes a place for a session. Returns the unused one whose place it takes: one that no other node has used either.
    async fn reserve(
        &self,
        owner: &SessionOwner,
        id: &SmolStr,
        limits: SessionLimits,
        now: Timestamp,
    ) -> Result<Option<(Tenant, SmolStr)>, CreateSessionError> {
        for _ in 0..MAX_PASSED_OVER {
            let replaced = self.lock().reserve(owner, id, limits, now)?;
            let Some((replaced, unused_owner)) = replaced else { return Ok(None) };
            let mut place = Place { sessions: self, id, is_stored: false };
            let expires = self.load_stored(&unused_owner.tenant, &replaced, now).await?.and_then(|row| row.expires);
            if expires.is_none_or(|expires| expires <= now + RETENTION.saturating_sub(limits.idle)) {
                place.is_stored = true;
                return Ok(Some((unused_owner.tenant, replaced)));
            }
            drop(place);
            self.lock().insert_stored(&unused_owner, &replaced, expires.unwrap_or(now));
        }
        Err(CreateSessionError::TooMany(self.total()))
    }

    /// The session with this id and its version, if it belongs to this owner; records its use.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn load(
        self: &Arc<Self>,
        owner: &SessionOwner,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<(McpSession, u64)>, StoreError> {
        self.ensure_loaded(now).await?;
        let found = self.load_row(owner, id, now).await?;
        if let Some((session, _)) = &found {
            self.lock().insert(owner, &session.id, now);
        }
        Ok(found.map(|(session, version)| (session, version.number)))
    }

    async fn load_row(
        &self,
        owner: &SessionOwner,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<(McpSession, RowVersion)>, StoreError> {
        let row = self.load_stored(&owner.tenant, id, now).await?;
        let found = row.and_then(|row| Some((read(id, &row)?, row.version)));
        Ok(found.filter(|(session, _)| session.caller == owner.caller))
    }

    async fn load_stored(&self, tenant: &Tenant, id: &str, now: Timestamp) -> Result<Option<Row>, StoreError> {
        let key = RowKey { partition: partition(tenant), table: Table::McpSessions, id: id.into() };
        Ok(self.store.load(&[key], now).await?.pop().flatten())
    }

    /// The session of a row that another node has written, and its version. Counts it from now on.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn refresh(&self, key: &RowKey, now: Timestamp) -> Result<Option<(McpSession, u64)>, StoreError> {
        let tenant = &key.partition.tenant;
        let Some(row) = self.load_stored(tenant, &key.id, now).await? else {
            self.forget(&key.id);
            return Ok(None);
        };
        let Some(session) = read(&key.id, &row) else { return Ok(None) };
        let owner = SessionOwner { tenant: tenant.clone(), caller: session.caller.clone() };
        self.lock().merge_stored(&owner, &session.id, row.expires.unwrap_or(now));
        Ok(Some((session, row.version.number)))
    }

    /// Whether a session is counted.
    pub(crate) fn is_known(&self, id: &str) -> bool {
        self.lock().contains(id)
    }

    /// Counts a session no longer that has ended on another node.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Reads all sessions again, and returns them with their versions. One that is about to be stored is counted again
    /// when its change is reported.
    ///
    /// # Errors
    /// When the store does not answer; nothing has changed then.
    pub(crate) async fn reload(&self, now: Timestamp) -> Result<HashMap<SmolStr, (McpSession, u64)>, StoreError> {
        let known = self.lock().ids();
        let scan = Scan::new(Table::McpSessions, ScanScope::All).limit(500);
        let mut found = HashMap::new();
        for (key, row) in read_all(&*self.store, scan, now).await? {
            let Some(session) = read(&key.id, &row) else { continue };
            let owner = SessionOwner { tenant: key.partition.tenant, caller: session.caller.clone() };
            self.lock().merge_stored(&owner, &session.id, row.expires.unwrap_or(now));
            found.insert(key.id, (session, row.version.number));
        }
        let mut index = self.lock();
        known.iter().filter(|id| !found.contains_key(*id)).for_each(|id| index.remove(id));
        drop(index);
        Ok(found)
    }

    /// Changes what a client has set in its session, also if another node has changed something else, if the session has not ended.
    /// Returns the settings and their version.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn change_settings(
        &self,
        owner: &SessionOwner,
        id: &str,
        change: impl Fn(&mut SessionSettings),
    ) -> Result<Option<(SessionSettings, u64)>, StoreError> {
        loop {
            let now = self.clock.now();
            let Some((mut session, version)) = self.load_row(owner, id, now).await? else { return Ok(None) };
            change(&mut session.settings);
            let value = encode(Table::McpSessions, &session.id, &session)?;
            let change = Change::Put { value, schema: SCHEMA_VERSION, expires: Some(now + RETENTION) };
            match self.commit(&owner.tenant, vec![(session.id, Expect::Same(version), change)], now).await {
                Err(StoreError::Conflict { .. }) => {}
                Ok(version) => return Ok(Some((session.settings, version))),
                Err(error) => return Err(error),
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
            self.reload(now).await?;
            let (sessions, stop) = (Arc::downgrade(self), CancellationToken::new());
            tasks::spawn("MCP sessions", stop.clone(), move |stop| Box::pin(run_flusher(sessions.clone(), stop)));
            Ok::<_, StoreError>(stop.drop_guard())
        };
        self.flusher.get_or_try_init(load).await.map(drop)
    }

    /// Returns the version of the first row.
    async fn commit(
        &self,
        tenant: &Tenant,
        writes: Vec<(SmolStr, Expect, Change)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let (table, durability) = (Table::McpSessions, Durability::KillSafe);
        let writes = writes.into_iter().map(|(id, expect, change)| Write { table, id, expect, change, durability });
        let batch = writes.fold(Batch::new(partition(tenant)), Batch::with);
        Ok(self.store.commit(batch, now).await?.first().copied().unwrap_or_default())
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
    for flushes in 1_u32.. {
        if stop.run_until_cancelled(tokio::time::sleep(FLUSH_INTERVAL)).await.is_none() {
            return;
        }
        let Some(sessions) = sessions.upgrade() else { return };
        let now = sessions.clock.now();
        if let Err(error) = sessions.flush(now).await {
            tracing::warn!(%error, "could not write the last use of MCP sessions; retrying");
        }
        if flushes % FLUSHES_PER_RELOAD == 0
            && let Err(error) = sessions.reload(now).await
        {
            tracing::debug!(%error, "the MCP sessions of other nodes cannot be counted; retrying later");
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
