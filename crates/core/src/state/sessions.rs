//! Sessions: whether one goes on, how many states fit in, and which this node has seen.
//!
//! In: the row of a thread's session, or the news that one was used. Out: whether its states are there, the write that
//! lets it begin or go on, and which threads to look at when time has passed. Reading, writing and cleaning up is done
//! by `manager/session.rs`.

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

/// The row of a thread's session, in the table of states. No state may be called `~`.
pub(crate) const SESSION_ROW: &str = "~/session";
const LAYOUT: u32 = 1;
/// The row outlives the session by this much, so that whoever cleans up can find it. Should nobody do so in a year, the
/// next session of the thread will.
const ROW_RETENTION: Duration = Duration::from_secs(365 * 24 * 3600);
/// How many sessions a node remembers. Of one that is forgotten the instances are closed when they are idle.
const MAX_TRACKED_SESSIONS: usize = 100_000;
/// How long whoever ends sessions rests at most.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// What a request has found of a thread's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Session {
    /// No sessions are kept here: a state lives as long as it was told to.
    Disabled,
    /// There is none, or it is over; then this is what is left of it. Nothing of it is to be seen any more.
    Ended(Option<RowVersion>),
    /// It goes on.
    Open {
        /// Its row.
        row_version: RowVersion,
        /// When it began.
        started_at: Timestamp,
        /// When it is over, unless it is used until then.
        expires_at: Timestamp,
    },
}

impl Session {
    pub(crate) fn from_row(row: Option<&Row>, now: Timestamp) -> Self {
        let Some(row) = row else { return Self::Ended(None) };
        let end = row.expires.map_or(now, |at| at - ROW_RETENTION);
        if end > now {
            Self::Open { row_version: row.version, started_at: row.created, expires_at: end }
        } else {
            Self::Ended(Some(row.version))
        }
    }

    /// The same at a later time: it may be over by then.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        match self {
            Self::Open { row_version: seen, expires_at: end, .. } if end <= now => Self::Ended(Some(seen)),
            other => other,
        }
    }

    /// Whether nothing that is stored is to be seen.
    pub(crate) fn is_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// Whether something that was made then is a part of it.
    pub(crate) fn covers(self, made: Timestamp) -> bool {
        match self {
            Self::Disabled => true,
            Self::Ended(_) => false,
            Self::Open { started_at: began, .. } => made >= began,
        }
    }
}

/// Whether a batch failed because the session has changed meanwhile: it began, it ended, or got one more state. Look at it
/// again and write again.
pub(crate) fn is_conflict(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict { table: Table::State, id, .. } if id == SESSION_ROW)
}

/// One write to the row of a session.
pub(crate) fn write(expect: Expect, change: Change) -> Write {
    Write { table: Table::State, id: SESSION_ROW.into(), expect, change, durability: Durability::KillSafe }
}

/// The sessions this node has seen, and the settings of all.
pub(crate) struct Sessions {
    timeout: Duration,
    max_states: usize,
    tracked: Mutex<HashMap<ThreadKey, TrackedSession>>,
    /// Told when a thread has begun a session although the one before left instances behind.
    pub(crate) cleanup_needed: Notify,
}

/// A session as this node saw it last.
struct TrackedSession {
    started_at: Timestamp,
    expires_at: Timestamp,
    /// Whether the thread had an earlier one, whose instances may still be there.
    has_predecessor: bool,
}

impl Sessions {
    /// `None` where the config asks for none.
    pub(crate) fn from_config(config: &StateManagerConfig) -> Option<Self> {
        (config.manager_type == Some(ManagerType::Session)).then(|| Self {
            timeout: config.session_timeout,
            max_states: config.max_states_per_session,
            tracked: Mutex::default(),
            cleanup_needed: Notify::new(),
        })
    }

    /// How many contexts a thread may have.
    pub(crate) fn max_states(&self) -> usize {
        self.max_states
    }

    /// How long to rest between two looks.
    pub(crate) fn sweep_interval(&self) -> Duration {
        (self.timeout / 8).clamp(Duration::from_millis(100), MAX_SWEEP_INTERVAL)
    }

    /// The write with which a thread's session begins.
    pub(crate) fn begin(&self, owner: &ThreadKey, now: Timestamp) -> Write {
        self.track(owner, (now, now + self.timeout), now);
        write(Expect::Absent, self.put(now + self.timeout))
    }

    /// The write with which an open session goes on; `grows` when it gets one more state.
    pub(crate) fn extend(
        &self,
        owner: &ThreadKey,
        open: (RowVersion, Timestamp, Timestamp),
        grows: bool,
        now: Timestamp,
    ) -> Write {
        let (seen, began, end) = open;
        // Where the clock of another node is ahead of ours, its word holds.
        let end = end.max(now + self.timeout);
        self.track(owner, (began, end), now);
        // A row that is put is another one for whoever has seen it before: of two that add a state, one must look again.
        let touch = Change::Touch { expires: Some(end + ROW_RETENTION) };
        write(Expect::Same(seen), if grows { self.put(end) } else { touch })
    }

    fn put(&self, end: Timestamp) -> Change {
        Change::Put { value: b"{}".as_slice().into(), schema: LAYOUT, expires: Some(end + ROW_RETENTION) }
    }

    /// A session is used here.
    fn track(&self, owner: &ThreadKey, (began, end): (Timestamp, Timestamp), now: Timestamp) {
        let mut here = self.lock();
        let room = here.len() < MAX_TRACKED_SESSIONS;
        let Some(known) = here.get_mut(owner) else {
            if room {
                here.insert(
                    owner.clone(),
                    TrackedSession { started_at: began, expires_at: end, has_predecessor: false },
                );
            }
            return;
        };
        let follows = known.has_predecessor || known.is_replaced_by(began, now);
        *known = TrackedSession { started_at: began, expires_at: end, has_predecessor: follows };
        drop(here);
        if follows {
            self.cleanup_needed.notify_one();
        }
    }

    /// The threads to look at: their session may be over, or was followed by another one.
    pub(crate) fn due(&self, now: Timestamp) -> HashSet<ThreadKey> {
        let here = self.lock();
        let due = here.iter().filter(|(_, known)| known.has_predecessor || known.expires_at <= now);
        due.map(|(owner, _)| owner.clone()).collect()
    }

    /// A session that was looked at goes on. Says whether it is another one than before.
    pub(crate) fn record_open(&self, owner: &ThreadKey, began: Timestamp, end: Timestamp, now: Timestamp) -> bool {
        let mut here = self.lock();
        let Some(known) = here.get_mut(owner) else { return false };
        let another = known.has_predecessor || known.is_replaced_by(began, now);
        *known = TrackedSession { started_at: began, expires_at: end.max(known.expires_at), has_predecessor: false };
        another
    }

    /// A session is over.
    pub(crate) fn forget(&self, owner: &ThreadKey) {
        self.lock().remove(owner);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, TrackedSession>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackedSession {
    /// Whether it is over, and the one that began then is another one. One that only seems to have begun at another time,
    /// because two began it at once, is not over.
    fn is_replaced_by(&self, began: Timestamp, now: Timestamp) -> bool {
        self.started_at != began && self.expires_at <= now
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
        let seen = RowVersion { number: 1, stamp: 0 };
        for (now, end) in [(at(5), at(70)), (at(10), at(70)), (at(11), at(71))] {
            let write = sessions.extend(&owner, (seen, at(0), at(70)), false, now);
            assert_eq!(write.change, Change::Touch { expires: Some(end + ROW_RETENTION) });
        }
    }
}
