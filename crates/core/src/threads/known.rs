//! The threads this node has seen lately, in memory.
//!
//! In: every call that names a thread, so it must cost next to nothing. Out: when a thread was active and whether calls run
//! in it; and what has to be written down. Writing is done by `book.rs`, in the background.

use std::collections::HashMap;

use std::time::Duration;

use tokio::sync::Notify;

use crate::sharded::{PARTS, Sharded};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// A thread whose last call was so long ago is forgotten here, once it is written down.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(600);
/// How many threads one part of the map remembers; about 100,000 in all.
const MOST: usize = 100_000 / PARTS;

/// The threads this node has seen lately.
pub(crate) struct Known {
    threads: Sharded<HashMap<ThreadKey, Thread>>,
    /// How old the activity in the store may grow before it is written again.
    stale: Duration,
    /// Told when something has to be written.
    pub(super) due: Notify,
}

/// What is remembered of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thread {
    /// When this node first saw it.
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// The last activity that is in the store.
    written: Option<Timestamp>,
    /// Calls that are not in the store yet.
    pub(super) calls: u64,
    running: u32,
}

/// What is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// What the store does not know, or knows from long ago.
    Stale,
    /// Everything.
    All,
}

impl Known {
    pub(crate) fn new(stale: Duration) -> Self {
        Self { threads: Sharded::default(), stale, due: Notify::new() }
    }

    /// A call names this thread.
    pub(crate) fn note(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.seen(tenant, thread, now, (1, 0));
    }

    /// Somebody uses this thread who makes no call.
    pub(crate) fn used(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.seen(tenant, thread, now, (0, 0));
    }

    /// A call begins in this thread. To be followed by `leave`.
    pub(crate) fn enter(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.seen(tenant, thread, now, (1, 1));
    }

    /// Something is done in this thread that is no call, or a call that was counted before. To be followed by `leave`.
    pub(crate) fn come_back(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.seen(tenant, thread, now, (0, 1));
    }

    fn seen(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp, (calls, running): (u64, u32)) {
        let owner = ThreadKey::new(tenant, thread);
        let mut part = self.threads.part(&owner);
        let mut due = false;
        let known = part.entry(owner).or_insert_with(|| {
            due = true;
            Thread { first: now, last: now, written: None, calls: 0, running: 0 }
        });
        known.last = known.last.max(now);
        known.calls += calls;
        known.running += running;
        due |= known.written.is_some_and(|written| known.last.since(written) >= self.stale);
        drop(part);
        if due {
            self.due.notify_one();
        }
    }

    /// A call has ended in this thread.
    pub(crate) fn leave(&self, tenant: &Tenant, thread: &ThreadId) {
        let owner = ThreadKey::new(tenant, thread);
        if let Some(known) = self.threads.part(&owner).get_mut(&owner) {
            known.running = known.running.saturating_sub(1);
        }
    }

    /// A thread the store has just been told of.
    pub(super) fn made(&self, owner: ThreadKey, at: Timestamp) {
        let known = Thread { first: at, last: at, written: Some(at), calls: 0, running: 0 };
        self.threads.part(&owner).entry(owner).or_insert(known);
    }

    pub(super) fn get(&self, owner: &ThreadKey) -> Option<Thread> {
        self.threads.part(owner).get(owner).copied()
    }

    /// How many threads were used lately: those with a call within about ten minutes.
    pub(crate) fn many(&self) -> usize {
        self.threads.parts().map(|part| part.len()).sum()
    }

    /// Whether calls run in it.
    pub(crate) fn is_running(&self, owner: &ThreadKey) -> bool {
        self.get(owner).is_some_and(|known| known.running > 0)
    }

    /// Forgets a thread, unless a call runs in it or it was active after this moment. Says whether it is forgotten now.
    pub(crate) fn forget(&self, owner: &ThreadKey, unless_after: Timestamp) -> bool {
        let mut part = self.threads.part(owner);
        let stays = part.get(owner).is_some_and(|known| known.running > 0 || known.last > unless_after);
        if !stays {
            part.remove(owner);
        }
        !stays
    }

    /// The threads that have to be written down.
    pub(super) fn due(&self, what: Due, now: Timestamp) -> Vec<(ThreadKey, Thread)> {
        let mut found = Vec::new();
        for part in self.threads.parts() {
            let what = if part.len() > MOST { Due::All } else { what };
            let due = part.iter().filter(|(_, known)| match (what, known.written) {
                (_, None) => true,
                (Due::All, Some(_)) => known.is_unwritten(),
                (Due::Stale, Some(written)) => {
                    known.last.since(written) >= self.stale
                        || (known.is_unwritten() && now.since(known.last) >= FORGET_AFTER)
                }
            });
            found.extend(due.map(|(owner, known)| (owner.clone(), *known)));
        }
        found
    }

    /// This much is in the store now. Says whether the thread is still known here.
    pub(super) fn written(&self, owner: &ThreadKey, as_it_was: &Thread) -> bool {
        let mut part = self.threads.part(owner);
        let Some(known) = part.get_mut(owner) else { return false };
        known.written = Some(as_it_was.last);
        known.calls = known.calls.saturating_sub(as_it_was.calls);
        true
    }

    /// Forgets what is written down and not needed. Where there are too many, also what was used lately; and if the store
    /// does not take them, the oldest are lost, because memory must have an end.
    pub(super) fn tidy(&self, now: Timestamp) {
        for mut part in self.threads.parts() {
            let full = part.len() > MOST;
            let old = |known: &Thread| full || now.since(known.last) >= FORGET_AFTER;
            part.retain(|_, known| known.running > 0 || known.is_unwritten() || !old(known));
            if part.len() > 4 * MOST {
                let mut times: Vec<Timestamp> = part.values().map(|known| known.last).collect();
                let at = times.len() - 2 * MOST;
                let oldest = *times.select_nth_unstable(at).1;
                part.retain(|_, known| known.running > 0 || known.last > oldest);
            }
            // Room that a rush has taken is given back.
            if part.capacity() > 4 * part.len().max(16) {
                part.shrink_to_fit();
            }
        }
    }
}

impl Thread {
    /// Whether the store has heard of it.
    pub(super) fn is_written(&self) -> bool {
        self.written.is_some()
    }

    fn is_unwritten(&self) -> bool {
        self.calls > 0 || self.written != Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn owner(number: i64) -> ThreadKey {
        ThreadKey { tenant: Tenant::default(), thread: ThreadId::new(format!("t{number}")).unwrap() }
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    fn write(known: &Known, what: Due, now: Timestamp) -> usize {
        let due = known.due(what, now);
        due.iter().for_each(|(owner, thread)| assert!(known.written(owner, thread)));
        due.len()
    }

    #[test]
    fn a_thread_is_written_when_it_is_first_seen_and_then_once_a_minute_while_it_is_active() {
        let known = Known::new(MINUTE);
        let ThreadKey { tenant, thread } = owner(1);
        known.note(&tenant, &thread, at(0));
        assert_eq!(write(&known, Due::Stale, at(0)), 1);
        known.note(&tenant, &thread, at(0) + MINUTE / 2);
        assert_eq!(write(&known, Due::Stale, at(1)), 0);
        known.note(&tenant, &thread, at(1));
        assert_eq!(write(&known, Due::Stale, at(1)), 1);
        assert_eq!(write(&known, Due::All, at(1)), 0);
    }

    #[test]
    fn what_is_written_and_idle_is_forgotten_and_what_runs_is_not() {
        let known = Known::new(MINUTE);
        let [idle, busy] = [owner(1), owner(2)];
        known.note(&idle.tenant, &idle.thread, at(0));
        known.enter(&busy.tenant, &busy.thread, at(0));
        known.tidy(at(60));
        assert!(known.get(&idle).is_some(), "it is not written yet");
        assert_eq!(write(&known, Due::Stale, at(60)), 2);
        known.tidy(at(60));
        assert!(known.get(&idle).is_none());
        assert!(known.is_running(&busy) && !known.forget(&busy, at(99)));
        known.leave(&busy.tenant, &busy.thread);
        assert!(!known.forget(&busy, at(-1)), "it was active since");
        assert!(known.forget(&busy, at(0)));
    }

    #[test]
    fn a_store_that_takes_nothing_does_not_fill_the_memory() {
        let known = Known::new(MINUTE);
        for number in 0..600_000 {
            let ThreadKey { tenant, thread } = owner(number);
            known.note(&tenant, &thread, Timestamp::from_millis(number));
        }
        known.tidy(Timestamp::from_millis(600_000));
        let kept = (0..600_000).filter(|number| known.get(&owner(*number)).is_some()).count();
        assert!((100_000..=400_000).contains(&kept), "{kept}");
        assert!(known.get(&owner(599_999)).is_some(), "the newest stay");
    }
}
