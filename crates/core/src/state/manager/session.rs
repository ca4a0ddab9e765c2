//! The session a state is part of: found with every read, joined to every write, ended when its time is over.
//!
//! In: the partition of a thread. Out: what is there of it, given that nothing of a session that is over is. Where no
//! sessions are kept, and for what belongs to no thread, these functions are the plain ones of the store.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{BATCH_SIZE, StateManager, deletion::unconditional_removal};
use crate::state::{
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

/// How many sessions are looked at in one page. Many: a store without an index over partitions looks at all for each page.
const SCAN_PAGE_SIZE: usize = 10_000;

impl StateManager {
    /// Rows of one partition, together with the session they are part of. What belongs to a session that is over is not
    /// there.
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
        let own = RowKey { partition: partition.clone(), table: Table::State, id: sessions::SESSION_ROW.into() };
        let mut rows = self.0.store.load(&[keys, &[own]].concat(), now).await?;
        let session = Session::from_row(rows.pop().flatten().as_ref(), now);
        if session.is_ended() {
            rows.fill(None);
        }
        Ok((session, rows))
    }

    /// What a batch must write besides, so that the session begins or goes on. `unseen`: the names of the states of which
    /// the batch writes a kind that was not there. What an earlier session has left is gone afterwards.
    ///
    /// When the batch fails and [`sessions::is_conflict`], the session must be loaded again and asked for its writes again.
    ///
    /// # Errors
    /// [`Limit`](StateError::Limit) when the session has no room for one more context.
    pub(crate) async fn session_writes(
        &self,
        partition: &Partition,
        session: Session,
        unseen: &[&str],
        now: Timestamp,
    ) -> Result<Vec<Write>, StateError> {
        let Some((sessions, owner)) = self.sessions_for(partition) else { return Ok(Vec::new()) };
        // A call may take longer than its session: what is over does not go on.
        match session.at(now) {
            Session::Disabled => Ok(Vec::new()),
            Session::Ended(left) => {
                check_capacity(sessions, HashSet::new(), unseen)?;
                // If somebody is quicker, the write below meets his session and fails as it should.
                self.purge_session(partition, left, now).await?;
                Ok(vec![sessions.begin(&owner, now)])
            }
            Session::Open { row_version: seen, started_at: began, expires_at: end } => {
                let names = if unseen.is_empty() { HashSet::new() } else { self.state_names(partition, now).await? };
                let grows = unseen.iter().any(|name| !names.contains(*name));
                if grows {
                    check_capacity(sessions, names, unseen)?;
                }
                Ok(vec![sessions.extend(&owner, (seen, began, end), grows, now)])
            }
        }
    }

    /// Notes that an open session was used by somebody who only reads.
    pub(crate) async fn touch_session(
        &self,
        partition: &Partition,
        session: Session,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some((sessions, owner)) = self.sessions_for(partition) else { return Ok(()) };
        let Session::Open { row_version: seen, started_at: began, expires_at: end } = session.at(now) else {
            return Ok(());
        };
        let touch = sessions.extend(&owner, (seen, began, end), false, now);
        match self.0.store.commit(Batch::new(partition.clone()).with(touch), now).await {
            // Somebody has written to it at this moment, so it goes on without us; or it is over.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The sessions these contexts are part of, by thread; empty where none are kept.
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

    /// How long whoever ends sessions rests between two looks; `None` where there are none.
    pub(crate) fn session_sweep_interval(&self) -> Option<Duration> {
        self.0.sessions.as_ref().map(Sessions::sweep_interval)
    }

    /// Waits until there is a reason to look before that.
    pub(crate) async fn wait_session_cleanup(&self) {
        match &self.0.sessions {
            Some(sessions) => sessions.cleanup_needed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The threads whose session seems to be over: those this node has seen, and what the store holds of others.
    pub(crate) async fn find_ended_sessions(&self) -> Result<HashSet<ThreadKey>, StoreError> {
        let Some(sessions) = &self.0.sessions else { return Ok(HashSet::new()) };
        let now = self.now();
        let mut over = sessions.due(now);
        let scan = Scan::new(Table::State, Scope::All).prefix(sessions::SESSION_ROW).limit(SCAN_PAGE_SIZE);
        for (key, row) in self.0.store.read_all(scan, now).await? {
            if Session::from_row(Some(&row), now).is_ended() {
                over.extend(thread_key_of(&key.partition));
            }
        }
        Ok(over)
    }

    /// Takes away what a session that is over has left. Says whether the thread's instances must go: they were made in it.
    pub(crate) async fn end_session(&self, owner: &ThreadKey) -> Result<bool, StoreError> {
        let Some(sessions) = &self.0.sessions else { return Ok(false) };
        let (partition, now) = (Partition::from(owner), self.now());
        match self.load_in_session(&partition, &[], now).await?.0 {
            Session::Disabled => Ok(false),
            Session::Open { started_at: began, expires_at: end, .. } => {
                Ok(sessions.record_open(owner, began, end, now))
            }
            Session::Ended(left) => {
                // Somebody who begins a new one at this moment has cleared away himself; the next look finds it.
                let gone = self.purge_session(&partition, left, now).await?;
                if gone {
                    sessions.forget(owner);
                    self.forget_connections(owner);
                }
                Ok(gone)
            }
        }
    }

    /// Forgets what is known of the connections of a thread.
    pub(crate) fn forget_connections(&self, owner: &ThreadKey) {
        self.0.connections.remove_thread(owner);
    }

    /// Removes all states, snapshots and entries of a thread whose session is over; says whether nobody came in between.
    async fn purge_session(
        &self,
        partition: &Partition,
        left: Option<RowVersion>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let commit = async |batch| match self.0.store.commit(batch, now).await {
            Err(error) if sessions::is_conflict(&error) => Ok(false),
            done => done.map(|_| true),
        };
        // Its row first: whoever still has the session in hand finds that it is over, and nothing new gets among the old.
        if let Some(seen) = left {
            let gone = sessions::write(Expect::Same(seen), Change::Remove);
            if !commit(Batch::new(partition.clone()).with(gone)).await? {
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

    /// The names of the states a thread has.
    async fn state_names(&self, partition: &Partition, now: Timestamp) -> Result<HashSet<String>, StoreError> {
        let scan = Scan::new(Table::State, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
        let rows = self.0.store.read_all(scan, now).await?;
        let states = rows.iter().filter(|(key, _)| key.id != sessions::SESSION_ROW);
        Ok(states.filter_map(|(key, _)| Some(key.id.rsplit_once('/')?.0.to_owned())).collect())
    }

    /// The sessions, if this is the partition of a thread and they are kept.
    fn sessions_for(&self, partition: &Partition) -> Option<(&Sessions, ThreadKey)> {
        Some((self.0.sessions.as_ref()?, thread_key_of(partition)?))
    }
}

fn thread_key_of(partition: &Partition) -> Option<ThreadKey> {
    Some(ThreadKey::new(&partition.tenant, partition.thread()?))
}

fn check_capacity(sessions: &Sessions, mut names: HashSet<String>, unseen: &[&str]) -> Result<(), StateError> {
    names.extend(unseen.iter().map(|name| (*name).to_owned()));
    let most = sessions.max_states();
    if names.len() > most { Err(StateError::Limit { most }) } else { Ok(()) }
}
