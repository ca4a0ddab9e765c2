//! The threads this node has seen lately, in memory.
//!
//! In: every call that names a thread, so it must cost next to nothing. Out: when a thread was active and whether calls run
//! in it; and what has to be written down. Writing is done by `book.rs`, in the background.

use std::collections::HashMap;

use std::time::Duration;

use tokio::sync::Notify;

use crate::sharded::{SHARDS, Sharded};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// A thread whose last call was so long ago is forgotten here, once it is written down.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(600);
/// How many threads one part of the map remembers; about 100,000 in all.
const MAX_PER_SHARD: usize = 100_000 / SHARDS;

/// The threads this node has seen lately.
pub(crate) struct ThreadActivity {
    threads: Sharded<HashMap<ThreadKey, ThreadEntry>>,
    /// How old the activity in the store may grow before it is written again.
    stale_after: Duration,
    /// Told when something has to be written.
    pub(super) flush_needed: Notify,
}

/// What is remembered of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadEntry {
    /// When this node first saw it.
    pub(super) first_seen: Timestamp,
    pub(super) last_active: Timestamp,
    /// The last activity that is in the store.
    last_stored: Option<Timestamp>,
    /// Calls that are not in the store yet.
    pub(super) unstored_calls: u64,
    running: u32,
}

/// What is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushScope {
    /// What the store does not know, or knows from long ago.
    Stale,
    /// Everything.
    All,
}

impl ThreadActivity {
    pub(crate) fn new(stale: Duration) -> Self {
        Self { threads: Sharded::default(), stale_after: stale, flush_needed: Notify::new() }
    }

    /// A call names this thread.
    pub(crate) fn record_call(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (1, 0));
    }

    /// Somebody uses this thread who makes no call.
    pub(crate) fn record_use(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (0, 0));
    }

    /// A call begins in this thread. To be followed by `leave`.
    pub(crate) fn begin_call(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (1, 1));
    }

    /// Something is done in this thread that is no call, or a call that was counted before. To be followed by `leave`.
    pub(crate) fn begin_uncounted(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (0, 1));
    }

    fn record(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp, (calls, running): (u64, u32)) {
        let owner = ThreadKey::new(tenant, thread);
        let mut part = self.threads.shard(&owner);
        let mut due = false;
        let known = part.entry(owner).or_insert_with(|| {
            due = true;
            ThreadEntry { first_seen: now, last_active: now, last_stored: None, unstored_calls: 0, running: 0 }
        });
        known.last_active = known.last_active.max(now);
        known.unstored_calls += calls;
        known.running += running;
        due |= known.last_stored.is_some_and(|written| known.last_active.since(written) >= self.stale_after);
        drop(part);
        if due {
            self.flush_needed.notify_one();
        }
    }

    /// A call has ended in this thread.
    pub(crate) fn end_call(&self, tenant: &Tenant, thread: &ThreadId) {
        let owner = ThreadKey::new(tenant, thread);
        if let Some(known) = self.threads.shard(&owner).get_mut(&owner) {
            known.running = known.running.saturating_sub(1);
        }
    }

    /// A thread the store has just been told of.
    pub(super) fn insert_stored(&self, owner: ThreadKey, at: Timestamp) {
        let known =
            ThreadEntry { first_seen: at, last_active: at, last_stored: Some(at), unstored_calls: 0, running: 0 };
        self.threads.shard(&owner).entry(owner).or_insert(known);
    }

    pub(super) fn get(&self, owner: &ThreadKey) -> Option<ThreadEntry> {
        self.threads.shard(owner).get(owner).copied()
    }

    /// How many threads were used lately: those with a call within about ten minutes.
    pub(crate) fn count(&self) -> usize {
        self.threads.shards().map(|part| part.len()).sum()
    }

    /// Whether calls run in it.
    pub(crate) fn is_running(&self, owner: &ThreadKey) -> bool {
        self.get(owner).is_some_and(|known| known.running > 0)
    }

    /// Forgets a thread, unless a call runs in it or it was active after this moment. Says whether it is forgotten now.
    pub(crate) fn forget(&self, owner: &ThreadKey, unless_after: Timestamp) -> bool {
        let mut part = self.threads.shard(owner);
        let stays = part.get(owner).is_some_and(|known| known.running > 0 || known.last_active > unless_after);
        if !stays {
            part.remove(owner);
        }
        !stays
    }

    /// The threads that have to be written down.
    pub(super) fn due_for_flush(&self, what: FlushScope, now: Timestamp) -> Vec<(ThreadKey, ThreadEntry)> {
        let mut found = Vec::new();
        for part in self.threads.shards() {
            let what = if part.len() > MAX_PER_SHARD { FlushScope::All } else { what };
            let due = part.iter().filter(|(_, known)| match (what, known.last_stored) {
                (_, None) => true,
                (FlushScope::All, Some(_)) => known.has_unstored(),
                (FlushScope::Stale, Some(written)) => {
                    known.last_active.since(written) >= self.stale_after
                        || (known.has_unstored() && now.since(known.last_active) >= FORGET_AFTER)
                }
            });
            found.extend(due.map(|(owner, known)| (owner.clone(), *known)));
        }
        found
    }

    /// This much is in the store now. Says whether the thread is still known here.
    pub(super) fn mark_stored(&self, owner: &ThreadKey, as_it_was: &ThreadEntry) -> bool {
        let mut part = self.threads.shard(owner);
        let Some(known) = part.get_mut(owner) else { return false };
        known.last_stored = Some(as_it_was.last_active);
        known.unstored_calls = known.unstored_calls.saturating_sub(as_it_was.unstored_calls);
        true
    }

    /// Forgets what is written down and not needed. Where there are too many, also what was used lately; and if the store
    /// does not take them, the oldest are lost, because memory must have an end.
    pub(super) fn evict(&self, now: Timestamp) {
        for mut part in self.threads.shards() {
            let full = part.len() > MAX_PER_SHARD;
            let old = |known: &ThreadEntry| full || now.since(known.last_active) >= FORGET_AFTER;
            part.retain(|_, known| known.running > 0 || known.has_unstored() || !old(known));
            if part.len() > 4 * MAX_PER_SHARD {
                let mut times: Vec<Timestamp> = part.values().map(|known| known.last_active).collect();
                let at = times.len() - 2 * MAX_PER_SHARD;
                let oldest = *times.select_nth_unstable(at).1;
                part.retain(|_, known| known.running > 0 || known.last_active > oldest);
            }
            // Room that a rush has taken is given back.
            if part.capacity() > 4 * part.len().max(16) {
                part.shrink_to_fit();
            }
        }
    }
}

impl ThreadEntry {
    /// Whether the store has heard of it.
    pub(super) fn is_stored(&self) -> bool {
        self.last_stored.is_some()
    }

    fn has_unstored(&self) -> bool {
        self.unstored_calls > 0 || self.last_stored != Some(self.last_active)
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

    fn flush(known: &ThreadActivity, what: FlushScope, now: Timestamp) -> usize {
        let due = known.due_for_flush(what, now);
        due.iter().for_each(|(owner, thread)| assert!(known.mark_stored(owner, thread)));
        due.len()
    }

    #[test]
    fn a_thread_is_written_when_it_is_first_seen_and_then_once_a_minute_while_it_is_active() {
        let known = ThreadActivity::new(MINUTE);
        let ThreadKey { tenant, thread } = owner(1);
        known.record_call(&tenant, &thread, at(0));
        assert_eq!(flush(&known, FlushScope::Stale, at(0)), 1);
        known.record_call(&tenant, &thread, at(0) + MINUTE / 2);
        assert_eq!(flush(&known, FlushScope::Stale, at(1)), 0);
        known.record_call(&tenant, &thread, at(1));
        assert_eq!(flush(&known, FlushScope::Stale, at(1)), 1);
        assert_eq!(flush(&known, FlushScope::All, at(1)), 0);
    }

    #[test]
    fn what_is_written_and_idle_is_forgotten_and_what_runs_is_not() {
        let known = ThreadActivity::new(MINUTE);
        let [idle, busy] = [owner(1), owner(2)];
        known.record_call(&idle.tenant, &idle.thread, at(0));
        known.begin_call(&busy.tenant, &busy.thread, at(0));
        known.evict(at(60));
        assert!(known.get(&idle).is_some(), "it is not written yet");
        assert_eq!(flush(&known, FlushScope::Stale, at(60)), 2);
        known.evict(at(60));
        assert!(known.get(&idle).is_none());
        assert!(known.is_running(&busy) && !known.forget(&busy, at(99)));
        known.end_call(&busy.tenant, &busy.thread);
        assert!(!known.forget(&busy, at(-1)), "it was active since");
        assert!(known.forget(&busy, at(0)));
    }

    #[test]
    fn a_store_that_takes_nothing_does_not_fill_the_memory() {
        let known = ThreadActivity::new(MINUTE);
        for number in 0..600_000 {
            let ThreadKey { tenant, thread } = owner(number);
            known.record_call(&tenant, &thread, Timestamp::from_millis(number));
        }
        known.evict(Timestamp::from_millis(600_000));
        let kept = (0..600_000).filter(|number| known.get(&owner(*number)).is_some()).count();
        assert!((100_000..=400_000).contains(&kept), "{kept}");
        assert!(known.get(&owner(599_999)).is_some(), "the newest stay");
    }
}
