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

use toolhub_storage::backend::{Change, Durability, Expect, Row, Seen, StoreError, Table, Write};
use toolhub_types::{
    ids::ThreadKey,
    state_config::{ManagerType, StateManagerConfig},
    timestamp::Timestamp,
};

/// The row of a thread's session, in the table of states. No state may be called `~`.
pub(crate) const ROW: &str = "~/session";
const LAYOUT: u32 = 1;
/// The row outlives the session by this much, so that whoever cleans up can find it. Should nobody do so in a year, the
/// next session of the thread will.
const LINGERS: Duration = Duration::from_secs(365 * 24 * 3600);
/// How many sessions a node remembers. Of one that is forgotten the instances are closed when they are idle.
const MOST: usize = 100_000;
/// How long whoever ends sessions rests at most.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What a request has found of a thread's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Session {
    /// No sessions are kept here: a state lives as long as it was told to.
    Endless,
    /// There is none, or it is over; then this is what is left of it. Nothing of it is to be seen any more.
    Over(Option<Seen>),
    /// It goes on.
    Open {
        /// Its row.
        seen: Seen,
        /// When it began.
        began: Timestamp,
        /// When it is over, unless it is used until then.
        end: Timestamp,
    },
}

impl Session {
    pub(crate) fn of(row: Option<&Row>, now: Timestamp) -> Self {
        let Some(row) = row else { return Self::Over(None) };
        let end = row.expires.map_or(now, |at| at - LINGERS);
        if end > now { Self::Open { seen: row.seen, began: row.created, end } } else { Self::Over(Some(row.seen)) }
    }

    /// The same at a later time: it may be over by then.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        match self {
            Self::Open { seen, end, .. } if end <= now => Self::Over(Some(seen)),
            other => other,
        }
    }

    /// Whether nothing that is stored is to be seen.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Over(_))
    }

    /// Whether something that was made then is a part of it.
    pub(crate) fn covers(self, made: Timestamp) -> bool {
        match self {
            Self::Endless => true,
            Self::Over(_) => false,
            Self::Open { began, .. } => made >= began,
        }
    }
}

/// Whether a batch failed because the session has changed meanwhile: it began, it ended, or got one more state. Look at it
/// again and write again.
pub(crate) fn is_conflict(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict { table: Table::State, id, .. } if id == ROW)
}

/// One write to the row of a session.
pub(crate) fn write(expect: Expect, change: Change) -> Write {
    Write { table: Table::State, id: ROW.into(), expect, change, durability: Durability::KillSafe }
}

/// The sessions this node has seen, and the settings of all.
pub(crate) struct Sessions {
    timeout: Duration,
    most_states: usize,
    here: Mutex<HashMap<ThreadKey, Here>>,
    /// Told when a thread has begun a session although the one before left instances behind.
    pub(crate) stirred: Notify,
}

/// A session as this node saw it last.
struct Here {
    began: Timestamp,
    end: Timestamp,
    /// Whether the thread had an earlier one, whose instances may still be there.
    follows: bool,
}

impl Sessions {
    /// `None` where the config asks for none.
    pub(crate) fn of(config: &StateManagerConfig) -> Option<Self> {
        (config.manager_type == Some(ManagerType::Session)).then(|| Self {
            timeout: config.session_timeout,
            most_states: config.max_states_per_session,
            here: Mutex::default(),
            stirred: Notify::new(),
        })
    }

    /// How many contexts a thread may have.
    pub(crate) fn most_states(&self) -> usize {
        self.most_states
    }

    /// How long to rest between two looks.
    pub(crate) fn rest(&self) -> Duration {
        (self.timeout / 8).clamp(Duration::from_millis(100), LONGEST_REST)
    }

    /// The write with which a thread's session begins.
    pub(crate) fn begin(&self, owner: &ThreadKey, now: Timestamp) -> Write {
        self.note(owner, (now, now + self.timeout), now);
        write(Expect::Absent, self.put(now + self.timeout))
    }

    /// The write with which an open session goes on; `grows` when it gets one more state.
    pub(crate) fn go_on(
        &self,
        owner: &ThreadKey,
        open: (Seen, Timestamp, Timestamp),
        grows: bool,
        now: Timestamp,
    ) -> Write {
        let (seen, began, end) = open;
        // Where the clock of another node is ahead of ours, its word holds.
        let end = end.max(now + self.timeout);
        self.note(owner, (began, end), now);
        // A row that is put is another one for whoever has seen it before: of two that add a state, one must look again.
        let touch = Change::Touch { expires: Some(end + LINGERS) };
        write(Expect::Same(seen), if grows { self.put(end) } else { touch })
    }

    fn put(&self, end: Timestamp) -> Change {
        Change::Put { value: b"{}".as_slice().into(), schema: LAYOUT, expires: Some(end + LINGERS) }
    }

    /// A session is used here.
    fn note(&self, owner: &ThreadKey, (began, end): (Timestamp, Timestamp), now: Timestamp) {
        let mut here = self.lock();
        let room = here.len() < MOST;
        let Some(known) = here.get_mut(owner) else {
            if room {
                here.insert(owner.clone(), Here { began, end, follows: false });
            }
            return;
        };
        let follows = known.follows || known.is_before(began, now);
        *known = Here { began, end, follows };
        drop(here);
        if follows {
            self.stirred.notify_one();
        }
    }

    /// The threads to look at: their session may be over, or was followed by another one.
    pub(crate) fn due(&self, now: Timestamp) -> HashSet<ThreadKey> {
        let here = self.lock();
        let due = here.iter().filter(|(_, known)| known.follows || known.end <= now);
        due.map(|(owner, _)| owner.clone()).collect()
    }

    /// A session that was looked at goes on. Says whether it is another one than before.
    pub(crate) fn goes_on(&self, owner: &ThreadKey, began: Timestamp, end: Timestamp, now: Timestamp) -> bool {
        let mut here = self.lock();
        let Some(known) = here.get_mut(owner) else { return false };
        let another = known.follows || known.is_before(began, now);
        *known = Here { began, end: end.max(known.end), follows: false };
        another
    }

    /// A session is over.
    pub(crate) fn forget(&self, owner: &ThreadKey) {
        self.lock().remove(owner);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, Here>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Here {
    /// Whether it is over, and the one that began then is another one. One that only seems to have begun at another time,
    /// because two began it at once, is not over.
    fn is_before(&self, began: Timestamp, now: Timestamp) -> bool {
        self.began != began && self.end <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::ids::{Tenant, ThreadId};

    #[test]
    fn a_node_whose_clock_is_behind_does_not_shorten_a_session() {
        let config = StateManagerConfig { manager_type: Some(ManagerType::Session), ..Default::default() };
        let sessions = Sessions::of(&config).unwrap();
        let owner = ThreadKey::new(&Tenant::default(), &ThreadId::new("t1").unwrap());
        let at = |minutes: i64| Timestamp::from_millis(minutes * 60_000);
        let seen = Seen { version: 1, stamp: 0 };
        for (now, end) in [(at(5), at(70)), (at(10), at(70)), (at(11), at(71))] {
            let write = sessions.go_on(&owner, (seen, at(0), at(70)), false, now);
            assert_eq!(write.change, Change::Touch { expires: Some(end + LINGERS) });
        }
    }
}
