//! The session a state is part of: found with every read, joined to every write, ended when its time is over.
//!
//! In: the partition of a thread. Out: what is there of it, given that nothing of a session that is over is. Where no
//! sessions are kept, and for what belongs to no thread, these functions are the plain ones of the store.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{AT_ONCE, StateManager, remove::removal};
use crate::state::{
    ContextId, StateError,
    sessions::{self, Session, Sessions},
};
use toolhub_storage::backend::{
    Batch, Change, Expect, Key, Partition, Row, Scan, Scope, Seen, StoreError, Table, Write,
};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// How many sessions are looked at in one page. Many: a store without an index over partitions looks at all for each page.
const PAGE: usize = 10_000;

impl StateManager {
    /// Rows of one partition, together with the session they are part of. What belongs to a session that is over is not
    /// there.
    pub(crate) async fn load_in_session(
        &self,
        partition: &Partition,
        keys: &[Key],
        now: Timestamp,
    ) -> Result<(Session, Vec<Option<Row>>), StoreError> {
        if self.kept(partition).is_none() {
            let rows = if keys.is_empty() { Vec::new() } else { self.0.store.load(keys, now).await? };
            return Ok((Session::Endless, rows));
        }
        let own = Key { partition: partition.clone(), table: Table::State, id: sessions::ROW.into() };
        let mut rows = self.0.store.load(&[keys, &[own]].concat(), now).await?;
        let session = Session::of(rows.pop().flatten().as_ref(), now);
        if session.is_over() {
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
        let Some((sessions, owner)) = self.kept(partition) else { return Ok(Vec::new()) };
        // A call may take longer than its session: what is over does not go on.
        match session.at(now) {
            Session::Endless => Ok(Vec::new()),
            Session::Over(left) => {
                room_for(sessions, HashSet::new(), unseen)?;
                // If somebody is quicker, the write below meets his session and fails as it should.
                self.clear_away(partition, left, now).await?;
                Ok(vec![sessions.begin(&owner, now)])
            }
            Session::Open { seen, began, end } => {
                let names = if unseen.is_empty() { HashSet::new() } else { self.names(partition, now).await? };
                let grows = unseen.iter().any(|name| !names.contains(*name));
                if grows {
                    room_for(sessions, names, unseen)?;
                }
                Ok(vec![sessions.go_on(&owner, (seen, began, end), grows, now)])
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
        let Some((sessions, owner)) = self.kept(partition) else { return Ok(()) };
        let Session::Open { seen, began, end } = session.at(now) else { return Ok(()) };
        let touch = sessions.go_on(&owner, (seen, began, end), false, now);
        match self.0.store.commit(Batch::on(partition.clone()).with(touch), now).await {
            // Somebody has written to it at this moment, so it goes on without us; or it is over.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The sessions these contexts are part of, by thread; empty where none are kept.
    pub(super) async fn sessions_of(
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
        let key = |thread: &ThreadId| Key {
            partition: Partition::of_thread(tenant.clone(), thread.clone()),
            table: Table::State,
            id: sessions::ROW.into(),
        };
        let keys: Vec<Key> = threads.iter().map(key).collect();
        let rows = self.0.store.load(&keys, now).await?;
        Ok(threads.into_iter().zip(rows.iter().map(|row| Session::of(row.as_ref(), now))).collect())
    }

    /// How long whoever ends sessions rests between two looks; `None` where there are none.
    pub(crate) fn session_rest(&self) -> Option<Duration> {
        self.0.sessions.as_ref().map(Sessions::rest)
    }

    /// Waits until there is a reason to look before that.
    pub(crate) async fn session_stirred(&self) {
        match &self.0.sessions {
            Some(sessions) => sessions.stirred.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The threads whose session seems to be over: those this node has seen, and what the store holds of others.
    pub(crate) async fn sessions_over(&self) -> Result<HashSet<ThreadKey>, StoreError> {
        let Some(sessions) = &self.0.sessions else { return Ok(HashSet::new()) };
        let now = self.now();
        let mut over = sessions.due(now);
        let scan = Scan::of(Table::State, Scope::All).prefix(sessions::ROW).limit(PAGE);
        for (key, row) in self.0.store.read_all(scan, now).await? {
            if Session::of(Some(&row), now).is_over() {
                over.extend(owner(&key.partition));
            }
        }
        Ok(over)
    }

    /// Takes away what a session that is over has left. Says whether the thread's instances must go: they were made in it.
    pub(crate) async fn end_session(&self, owner: &ThreadKey) -> Result<bool, StoreError> {
        let Some(sessions) = &self.0.sessions else { return Ok(false) };
        let (partition, now) = (Partition::from(owner), self.now());
        match self.load_in_session(&partition, &[], now).await?.0 {
            Session::Endless => Ok(false),
            Session::Open { began, end, .. } => Ok(sessions.goes_on(owner, began, end, now)),
            Session::Over(left) => {
                // Somebody who begins a new one at this moment has cleared away himself; the next look finds it.
                let gone = self.clear_away(&partition, left, now).await?;
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
        self.0.live.forget(owner);
    }

    /// Removes all states, snapshots and entries of a thread whose session is over; says whether nobody came in between.
    async fn clear_away(&self, partition: &Partition, left: Option<Seen>, now: Timestamp) -> Result<bool, StoreError> {
        let commit = async |batch| match self.0.store.commit(batch, now).await {
            Err(error) if sessions::is_conflict(&error) => Ok(false),
            done => done.map(|_| true),
        };
        // Its row first: whoever still has the session in hand finds that it is over, and nothing new gets among the old.
        if let Some(seen) = left {
            let gone = sessions::write(Expect::Same(seen), Change::Remove);
            if !commit(Batch::on(partition.clone()).with(gone)).await? {
                return Ok(false);
            }
        }
        for table in [Table::History, Table::Versions, Table::State] {
            loop {
                let scan = Scan::of(table, Scope::Partition(partition.clone())).limit(AT_ONCE);
                let rows = self.0.store.scan(scan, now).await?.rows;
                if rows.is_empty() {
                    break;
                }
                if rows.iter().any(|(key, _)| key.id == sessions::ROW) {
                    return Ok(false);
                }
                let mut batch = Batch::on(partition.clone()).with(sessions::write(Expect::Absent, Change::Keep));
                batch.writes.extend(rows.into_iter().map(|(key, _)| removal(table, key.id)));
                if !commit(batch).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The names of the states a thread has.
    async fn names(&self, partition: &Partition, now: Timestamp) -> Result<HashSet<String>, StoreError> {
        let scan = Scan::of(Table::State, Scope::Partition(partition.clone())).limit(AT_ONCE);
        let rows = self.0.store.read_all(scan, now).await?;
        let states = rows.iter().filter(|(key, _)| key.id != sessions::ROW);
        Ok(states.filter_map(|(key, _)| Some(key.id.rsplit_once('/')?.0.to_owned())).collect())
    }

    /// The sessions, if this is the partition of a thread and they are kept.
    fn kept(&self, partition: &Partition) -> Option<(&Sessions, ThreadKey)> {
        Some((self.0.sessions.as_ref()?, owner(partition)?))
    }
}

fn owner(partition: &Partition) -> Option<ThreadKey> {
    Some(ThreadKey::new(&partition.tenant, partition.thread()?))
}

fn room_for(sessions: &Sessions, mut names: HashSet<String>, unseen: &[&str]) -> Result<(), StateError> {
    names.extend(unseen.iter().map(|name| (*name).to_owned()));
    let most = sessions.most_states();
    if names.len() > most { Err(StateError::Limit { most }) } else { Ok(()) }
}
