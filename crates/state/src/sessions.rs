//! Session lifetimes: whether a thread's session is open, its limit of states, and the sessions this node tracks.
//!
//! In: the row of a thread's session, or that a session was used. Out: whether its states are visible, the write that
//! starts or extends it, and the threads to check after a timeout. `manager/session.rs` reads, writes and cleans up.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use toolhub_storage::backend::{Change, Durability, Expect, Row, RowVersion, StoreError, Table, Write};
use toolhub_types::{
    ids::ThreadKey,
    state_config::{ManagerType, StateManagerConfig},
    timestamp::Timestamp,
};

/// The row id of a thread's session, in the table of states. No state may have the name `~`.
pub(crate) const SESSION_ROW: &str = "~/session";
const LAYOUT: u32 = 1;
/// How long the row outlives the session, so that the sweeper can find it. If no sweeper does so within a year, the
/// next session of the thread cleans up.
const ROW_RETENTION: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum number of sessions a node tracks. The instances of an untracked session are closed when they are idle.
const MAX_TRACKED_SESSIONS: usize = 100_000;
/// Maximum interval between two sweeps for ended sessions.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The state of a thread's session, as a request found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// Sessions are disabled: a state lives until its own expiry.
    Disabled,
    /// There is no open session; holds the version of the row that an ended one left. Its states are not visible.
    Ended(Option<RowVersion>),
    /// The session is open.
    Open {
        /// The version of its row.
        row_version: RowVersion,
        /// When it started.
        started_at: Timestamp,
        /// When it ends, unless it is used before.
        expires_at: Timestamp,
    },
}

impl Session {
    pub(crate) fn from_row(row: Option<&Row>, now: Timestamp) -> Self {
        let Some(row) = row else { return Self::Ended(None) };
        let expires_at = row.expires.map_or(now, |at| at - ROW_RETENTION);
        if expires_at > now {
            Self::Open { row_version: row.version, started_at: row.created, expires_at }
        } else {
            Self::Ended(Some(row.version))
        }
    }

    /// The same session at a later time, when it may have ended.
    pub fn at(self, now: Timestamp) -> Self {
        match self {
            Self::Open { row_version, expires_at, .. } if expires_at <= now => Self::Ended(Some(row_version)),
            other => other,
        }
    }

    /// Whether the stored states of the thread are invisible.
    pub(crate) fn is_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// Whether a row created at this time is part of the session.
    pub fn covers(self, created: Timestamp) -> bool {
        match self {
            Self::Disabled => true,
            Self::Ended(_) => false,
            Self::Open { started_at, .. } => created >= started_at,
        }
    }

    /// Whether a connection last used at this time is visible. A connection needs no session: tools without state use it too.
    pub(crate) fn covers_connection(self, updated: Timestamp) -> bool {
        self == Self::Ended(None) || self.covers(updated)
    }
}

/// Whether a batch failed because the session changed concurrently: it started, ended or got one more state. The caller
/// must load the session again and retry.
pub(crate) fn is_conflict(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict { table: Table::State, id, .. } if id == SESSION_ROW)
}

/// One write to the row of a session.
pub(crate) fn write(expect: Expect, change: Change) -> Write {
    Write { table: Table::State, id: SESSION_ROW.into(), expect, change, durability: Durability::KillSafe }
}

/// The session settings, and the sessions this node tracks.
pub(crate) struct Sessions {
    timeout: Duration,
    max_states: usize,
    tracked: Mutex<HashMap<ThreadKey, TrackedSession>>,
    /// Notified when a thread starts a session while instances of its previous one may still exist.
    pub cleanup_needed: Notify,
}

/// A session as this node last saw it.
struct TrackedSession {
    started_at: Timestamp,
    expires_at: Timestamp,
    /// Whether the thread had an earlier session whose instances may still exist.
    has_predecessor: bool,
}

impl Sessions {
    /// `None` when sessions are not configured.
    pub(crate) fn from_config(config: &StateManagerConfig) -> Option<Self> {
        (config.manager_type == Some(ManagerType::Session)).then(|| Self {
            timeout: config.session_timeout,
            max_states: config.max_states_per_session,
            tracked: Mutex::default(),
            cleanup_needed: Notify::new(),
        })
    }

    /// Maximum number of contexts per thread.
    pub(crate) fn max_states(&self) -> usize {
        self.max_states
    }

    /// The interval between two sweeps for ended sessions.
    pub(crate) fn sweep_interval(&self) -> Duration {
        (self.timeout / 8).clamp(Duration::from_millis(100), MAX_SWEEP_INTERVAL)
    }

    /// The write that starts a thread's session.
    pub(crate) fn begin(&self, owner: &ThreadKey, now: Timestamp) -> Write {
        self.track(owner, (now, now + self.timeout), now);
        write(Expect::Absent, self.put(now + self.timeout))
    }

    /// The write that extends an open session; `grows` when the session gets one more state.
    pub(crate) fn extend(
        &self,
        owner: &ThreadKey,
        open: (RowVersion, Timestamp, Timestamp),
        grows: bool,
        now: Timestamp,
    ) -> Write {
        let (row_version, started_at, expires_at) = open;
        // A node whose clock is behind must not shorten what another node has written.
        let expires_at = expires_at.max(now + self.timeout);
        self.track(owner, (started_at, expires_at), now);
        // A put changes the row version, a touch does not: of two concurrent calls that add a state, one must retry.
        let touch = Change::Touch { expires: Some(expires_at + ROW_RETENTION) };
        write(Expect::Same(row_version), if grows { self.put(expires_at) } else { touch })
    }

    fn put(&self, expires_at: Timestamp) -> Change {
        Change::Put { value: b"{}".as_slice().into(), schema: LAYOUT, expires: Some(expires_at + ROW_RETENTION) }
    }

    /// Records that a session was used on this node.
    fn track(&self, owner: &ThreadKey, (started_at, expires_at): (Timestamp, Timestamp), now: Timestamp) {
        let mut tracked = self.lock();
        let has_capacity = tracked.len() < MAX_TRACKED_SESSIONS;
        let Some(session) = tracked.get_mut(owner) else {
            if has_capacity {
                tracked.insert(owner.clone(), TrackedSession { started_at, expires_at, has_predecessor: false });
            }
            return;
        };
        let has_predecessor = session.has_predecessor || session.is_replaced_by(started_at, now);
        *session = TrackedSession { started_at, expires_at, has_predecessor };
        drop(tracked);
        if has_predecessor {
            self.cleanup_needed.notify_one();
        }
    }

    /// The threads to check: their session may have ended, or another session has replaced it.
    pub(crate) fn due(&self, now: Timestamp) -> HashSet<ThreadKey> {
        let tracked = self.lock();
        let due = tracked.iter().filter(|(_, session)| session.has_predecessor || session.expires_at <= now);
        due.map(|(owner, _)| owner.clone()).collect()
    }

    /// Records that a checked session is open. Returns whether it replaced the session tracked before.
    pub(crate) fn record_open(
        &self,
        owner: &ThreadKey,
        started_at: Timestamp,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> bool {
        let mut tracked = self.lock();
        let Some(session) = tracked.get_mut(owner) else { return false };
        let replaced = session.has_predecessor || session.is_replaced_by(started_at, now);
        let expires_at = expires_at.max(session.expires_at);
        *session = TrackedSession { started_at, expires_at, has_predecessor: false };
        replaced
    }

    /// Stops tracking a session that has ended.
    pub(crate) fn forget(&self, owner: &ThreadKey) {
        self.lock().remove(owner);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, TrackedSession>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackedSession {
    /// Whether it has ended and the session that started at this time is another one. A differing start alone does not
    /// prove that: two nodes may have started the same session concurrently.
    fn is_replaced_by(&self, started_at: Timestamp, now: Timestamp) -> bool {
        self.started_at != started_at && self.expires_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::ids::{Tenant, ThreadId};

    #[test]
    fn a_node_whose_clock_is_behind_does_not_shorten_a_session() {
        let config = StateManagerConfig { manager_type: Some(ManagerType::Session), ..Default::default() };
        let sessions = Sessions::from_config(&config).unwrap();
        let owner = ThreadKey::new(&Tenant::default(), &ThreadId::new("t1").unwrap());
        let at = |minutes: i64| Timestamp::from_millis(minutes * 60_000);
        let row_version = RowVersion { number: 1, stamp: 0 };
        for (now, expires_at) in [(at(5), at(70)), (at(10), at(70)), (at(11), at(71))] {
            let write = sessions.extend(&owner, (row_version, at(0), at(70)), false, now);
            assert_eq!(write.change, Change::Touch { expires: Some(expires_at + ROW_RETENTION) });
        }
    }
}
