//! Sessions in the store: checked by every read, extended by every write, purged after their timeout.
//!
//! In: the partition of a thread. Out: its rows, without those of an ended session. When sessions are disabled, and for
//! rows that belong to no thread, these functions pass through to the store.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{BATCH_SIZE, StateManager, deletion::unconditional_removal};
use crate::{
    ContextId, StateError,
    sessions::{self, Session, Sessions},
};
use toolhub_storage::backend::{
    Batch, Change, Expect, Partition, Row, RowKey, RowVersion, Scan, Scope, StoreError, Table, Write,
};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// Sessions per page of a scan. Large, because a store without an index over partitions scans all rows for each page.
const SCAN_PAGE_SIZE: usize = 10_000;

impl StateManager {
    /// Loads rows of one partition and the session they belong to. Rows of an ended session are `None`.
    pub(crate) async fn load_in_session(
        &self,
        partition: &Partition,
        keys: &[RowKey],
        now: Timestamp,
    ) -> Result<(Session, Vec<Option<Row>>), StoreError> {
        if self.sessions_for(partition).is_none() {
            let rows = if keys.is_empty() { Vec::new() } else { self.0.store.load(keys, now).await? };
            return Ok((Session::Disabled, rows));
        }
        let session_key =
            RowKey { partition: partition.clone(), table: Table::State, id: sessions::SESSION_ROW.into() };
        let mut rows = self.0.store.load(&[keys, &[session_key]].concat(), now).await?;
        let session = Session::from_row(rows.pop().flatten().as_ref(), now);
        if session.is_ended() {
            rows.fill(None);
        }
        Ok((session, rows))
    }

    /// The writes that a batch must include to start or extend the session. `unseen`: the names of the states of which
    /// the batch writes a kind that did not exist. Purges the rows of an ended session first.
    ///
    /// When the batch fails with [`sessions::is_conflict`], load the session and compute these writes again.
    ///
    /// # Errors
    /// [`Limit`](StateError::Limit) when the session has reached its limit of contexts.
    pub(crate) async fn session_writes(
        &self,
        partition: &Partition,
        session: Session,
        unseen: &[&str],
        now: Timestamp,
    ) -> Result<Vec<Write>, StateError> {
        let Some((sessions, owner)) = self.sessions_for(partition) else { return Ok(Vec::new()) };
        // A call may outlive its session, and an ended session must not be extended.
        match session.at(now) {
            Session::Disabled => Ok(Vec::new()),
            Session::Ended(row_version) => {
                check_capacity(sessions, HashSet::new(), unseen)?;
                // If another request starts a session first, the write below expects no row and fails with a conflict.
                self.purge_session(partition, row_version, now).await?;
                Ok(vec![sessions.begin(&owner, now)])
            }
            Session::Open { row_version, started_at, expires_at } => {
                let names = if unseen.is_empty() { HashSet::new() } else { self.state_names(partition, now).await? };
                let grows = unseen.iter().any(|name| !names.contains(*name));
                if grows {
                    check_capacity(sessions, names, unseen)?;
                }
                Ok(vec![sessions.extend(&owner, (row_version, started_at, expires_at), grows, now)])
            }
        }
    }

    /// Extends an open session that was used by a reader.
    pub(crate) async fn touch_session(
        &self,
        partition: &Partition,
        session: Session,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some((sessions, owner)) = self.sessions_for(partition) else { return Ok(()) };
        let Session::Open { row_version, started_at, expires_at } = session.at(now) else {
            return Ok(());
        };
        let touch = sessions.extend(&owner, (row_version, started_at, expires_at), false, now);
        match self.0.store.commit(Batch::new(partition.clone()).with(touch), now).await {
            // A concurrent write has extended the session already, or the session has ended.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The sessions of these contexts, by thread; empty when sessions are disabled.
    pub(super) async fn load_sessions(
        &self,
        tenant: &Tenant,
        contexts: impl Iterator<Item = &ContextId>,
        now: Timestamp,
    ) -> Result<HashMap<ThreadId, Session>, StoreError> {
        if self.0.sessions.is_none() {
            return Ok(HashMap::new());
        }
        let threads: HashSet<&ThreadId> = contexts.filter_map(ContextId::thread).collect();
        let threads: Vec<ThreadId> = threads.into_iter().cloned().collect();
        let key = |thread: &ThreadId| RowKey {
            partition: Partition::for_thread(tenant.clone(), thread.clone()),
            table: Table::State,
            id: sessions::SESSION_ROW.into(),
        };
        let keys: Vec<RowKey> = threads.iter().map(key).collect();
        let rows = self.0.store.load(&keys, now).await?;
        Ok(threads.into_iter().zip(rows.iter().map(|row| Session::from_row(row.as_ref(), now))).collect())
    }

    /// The interval between two sweeps for ended sessions; `None` when sessions are disabled.
    #[doc(hidden)]
    pub fn session_sweep_interval(&self) -> Option<Duration> {
        self.0.sessions.as_ref().map(Sessions::sweep_interval)
    }

    /// Waits until there is a reason to sweep before the interval has passed.
    #[doc(hidden)]
    pub async fn wait_session_cleanup(&self) {
        match &self.0.sessions {
            Some(sessions) => sessions.cleanup_needed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The threads whose session may have ended: those this node tracks, and with `scans` those found in the store.
    #[doc(hidden)]
    pub async fn find_ended_sessions(&self, scans: bool) -> Result<HashSet<ThreadKey>, StoreError> {
        let Some(sessions) = &self.0.sessions else { return Ok(HashSet::new()) };
        let now = self.now();
        let mut ended = sessions.due(now);
        if !scans {
            return Ok(ended);
        }
        let scan = Scan::new(Table::State, Scope::All).prefix(sessions::SESSION_ROW).limit(SCAN_PAGE_SIZE);
        for (key, row) in self.0.store.read_all(scan, now).await? {
            if Session::from_row(Some(&row), now).is_ended() {
                ended.extend(thread_key_of(&key.partition));
            }
        }
        Ok(ended)
    }

    /// Purges an ended session. Returns whether the thread's instances must be closed, because they were created in it.
    #[doc(hidden)]
    pub async fn end_session(&self, owner: &ThreadKey) -> Result<bool, StoreError> {
        let Some(sessions) = &self.0.sessions else { return Ok(false) };
        let (partition, now) = (Partition::from(owner), self.now());
        match self.load_in_session(&partition, &[], now).await?.0 {
            Session::Disabled => Ok(false),
            Session::Open { started_at, expires_at, .. } => {
                Ok(sessions.record_open(owner, started_at, expires_at, now))
            }
            Session::Ended(row_version) => {
                // A request that starts a new session concurrently has purged the old one itself; the next sweep finds
                // it.
                let purged = self.purge_session(&partition, row_version, now).await?;
                if purged {
                    sessions.forget(owner);
                    self.forget_connections(owner);
                }
                Ok(purged)
            }
        }
    }

    /// Removes the connection states of a thread.
    #[doc(hidden)]
    pub fn forget_connections(&self, owner: &ThreadKey) {
        self.0.connections.remove_thread(owner);
    }

    /// Removes all states, snapshots and history entries of a thread whose session has ended; `false` when a new
    /// session started concurrently.
    async fn purge_session(
        &self,
        partition: &Partition,
        row_version: Option<RowVersion>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let commit = async |batch| match self.0.store.commit(batch, now).await {
            Err(error) if sessions::is_conflict(&error) => Ok(false),
            result => result.map(|_| true),
        };
        // Remove the session row first: requests that still use the session then fail, and no new rows mix with the
        // old.
        if let Some(row_version) = row_version {
            let removal = sessions::write(Expect::Same(row_version), Change::Remove);
            if !commit(Batch::new(partition.clone()).with(removal)).await? {
                return Ok(false);
            }
        }
        for table in [Table::History, Table::Versions, Table::State] {
            loop {
                let scan = Scan::new(table, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
                let rows = self.0.store.scan(scan, now).await?.rows;
                if rows.is_empty() {
                    break;
                }
                if rows.iter().any(|(key, _)| key.id == sessions::SESSION_ROW) {
                    return Ok(false);
                }
                let mut batch = Batch::new(partition.clone()).with(sessions::write(Expect::Absent, Change::Keep));
                batch.writes.extend(rows.into_iter().map(|(key, _)| unconditional_removal(table, key.id)));
                if !commit(batch).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The names of the states of a thread.
    async fn state_names(&self, partition: &Partition, now: Timestamp) -> Result<HashSet<String>, StoreError> {
        let scan = Scan::new(Table::State, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
        let rows = self.0.store.read_all(scan, now).await?;
        let states = rows.iter().filter(|(key, _)| key.id != sessions::SESSION_ROW);
        Ok(states.filter_map(|(key, _)| Some(key.id.rsplit_once('/')?.0.to_owned())).collect())
    }

    /// The sessions and the thread, if sessions are enabled and this is the partition of a thread.
    fn sessions_for(&self, partition: &Partition) -> Option<(&Sessions, ThreadKey)> {
        Some((self.0.sessions.as_ref()?, thread_key_of(partition)?))
    }
}

fn thread_key_of(partition: &Partition) -> Option<ThreadKey> {
    Some(ThreadKey::new(&partition.tenant, partition.thread()?))
}

fn check_capacity(sessions: &Sessions, mut names: HashSet<String>, unseen: &[&str]) -> Result<(), StateError> {
    names.extend(unseen.iter().map(|name| (*name).to_owned()));
    let limit = sessions.max_states();
    if names.len() > limit { Err(StateError::Limit { limit }) } else { Ok(()) }
}
