//! In-memory activity of the threads this node has seen recently.
//!
//! In: every call that names a thread, so recording must be cheap. Out: when a thread was active, whether calls run in
//! it, and which entries must be flushed. `store.rs` flushes them in the background.

use std::collections::HashMap;

use std::time::Duration;

use tokio::sync::Notify;

use toolhub_storage::sharded::{SHARDS, Sharded};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// Idle time after which a stored thread is evicted from memory.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of threads per shard; about 100,000 in total.
const MAX_PER_SHARD: usize = 100_000 / SHARDS;

/// The threads this node has seen recently.
pub(crate) struct ThreadActivity {
    threads: Sharded<HashMap<ThreadKey, ThreadEntry>>,
    /// Maximum age of the activity in the store before it is written again.
    stale_after: Duration,
    /// Notified when an entry must be flushed.
    pub(super) flush_needed: Notify,
}

/// The recorded activity of one thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadEntry {
    /// When this node first saw the thread.
    pub(super) first_seen: Timestamp,
    pub(super) last_active: Timestamp,
    /// The last activity that is in the store.
    last_stored: Option<Timestamp>,
    /// Calls that are not in the store yet.
    pub(super) unstored_calls: u64,
    /// Number of calls that run in the thread.
    running: u32,
}

/// The activity of a thread that was removed from memory, if it had any.
#[must_use]
pub(crate) struct ForgottenThread(Option<ThreadEntry>);

/// Which entries a flush writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushScope {
    /// Entries that are missing or stale in the store.
    Stale,
    /// All entries with unstored activity.
    All,
}

impl ThreadActivity {
    pub(crate) fn new(stale_after: Duration) -> Self {
        Self { threads: Sharded::default(), stale_after, flush_needed: Notify::new() }
    }

    /// Counts a call that names this thread but does not run in it.
    pub(crate) fn record_call(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (1, 0));
    }

    /// Records a use of this thread that is not a call.
    pub(crate) fn record_use(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (0, 0));
    }

    /// Records the start of a call in this thread. Must be followed by [`end_call`](Self::end_call).
    pub(crate) fn begin_call(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (1, 1));
    }

    /// Records the start of work that is not a call, or of a call that was counted before. Must be followed by
    /// [`end_call`](Self::end_call).
    pub(crate) fn begin_uncounted(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp) {
        self.record(tenant, thread, now, (0, 1));
    }

    fn record(&self, tenant: &Tenant, thread: &ThreadId, now: Timestamp, (calls, running): (u64, u32)) {
        let owner = ThreadKey::new(tenant, thread);
        let mut shard = self.threads.shard(&owner);
        let mut due = false;
        let entry = shard.entry(owner).or_insert_with(|| {
            due = true;
            ThreadEntry { first_seen: now, last_active: now, last_stored: None, unstored_calls: 0, running: 0 }
        });
        entry.last_active = entry.last_active.max(now);
        entry.unstored_calls += calls;
        entry.running += running;
        due |= entry.last_stored.is_some_and(|stored| entry.last_active.since(stored) >= self.stale_after);
        drop(shard);
        if due {
            self.flush_needed.notify_one();
        }
    }

    /// Records the end of a call or other work in this thread.
    pub(crate) fn end_call(&self, tenant: &Tenant, thread: &ThreadId) {
        let owner = ThreadKey::new(tenant, thread);
        if let Some(entry) = self.threads.shard(&owner).get_mut(&owner) {
            entry.running = entry.running.saturating_sub(1);
        }
    }

    /// Records that a thread is in the store, where it was last active at this time.
    pub(super) fn insert_stored(&self, owner: ThreadKey, at: Timestamp) {
        let entry =
            ThreadEntry { first_seen: at, last_active: at, last_stored: Some(at), unstored_calls: 0, running: 0 };
        self.threads.shard(&owner).entry(owner).or_insert(entry).last_stored.get_or_insert(at);
    }

    /// Whether this node knows that the thread is in the store.
    pub(super) fn is_stored(&self, owner: &ThreadKey) -> bool {
        self.threads.shard(owner).get(owner).is_some_and(|entry| entry.last_stored.is_some())
    }

    pub(super) fn get(&self, owner: &ThreadKey) -> Option<ThreadEntry> {
        self.threads.shard(owner).get(owner).copied()
    }

    /// The number of recently active threads: those with a call within about ten minutes.
    pub(crate) fn count(&self) -> usize {
        self.threads.shards().map(|shard| shard.len()).sum()
    }

    /// Whether calls run in the thread.
    pub(crate) fn is_running(&self, owner: &ThreadKey) -> bool {
        self.get(owner).is_some_and(|entry| entry.running > 0)
    }

    /// Whether a call runs in the thread or it was active after this time.
    pub(crate) fn is_active(&self, owner: &ThreadKey, after: Timestamp) -> bool {
        self.get(owner).is_some_and(|entry| entry.is_active(after))
    }

    /// Removes a thread, unless a call runs in it or it was active after `unless_after`. Returns what was removed, so that it can
    /// be restored.
    pub(crate) fn forget(&self, owner: &ThreadKey, unless_after: Timestamp) -> Option<ForgottenThread> {
        let mut shard = self.threads.shard(owner);
        let is_active = shard.get(owner).is_some_and(|entry| entry.is_active(unless_after));
        (!is_active).then(|| ForgottenThread(shard.remove(owner)))
    }

    /// Restores a thread that was to be removed. Unless it is known to be still stored, it will be stored again.
    pub(crate) fn restore(&self, owner: &ThreadKey, ForgottenThread(forgotten): ForgottenThread, is_stored: bool) {
        let Some(forgotten) = forgotten else { return };
        let mut shard = self.threads.shard(owner);
        let last_stored = forgotten.last_stored.filter(|_| is_stored);
        let entry = shard.entry(owner.clone()).or_insert(ThreadEntry { unstored_calls: 0, last_stored, ..forgotten });
        entry.first_seen = entry.first_seen.min(forgotten.first_seen);
        entry.unstored_calls += forgotten.unstored_calls;
    }

    /// Records that another node has deleted a thread. Unless a call runs in it, it is forgotten.
    pub(crate) fn mark_removed(&self, owner: &ThreadKey) {
        let mut shard = self.threads.shard(owner);
        match shard.get_mut(owner) {
            Some(entry) if entry.running > 0 => entry.last_stored = None,
            _ => drop(shard.remove(owner)),
        }
    }

    /// The threads that this node knows to be in the store.
    pub(crate) fn stored(&self) -> Vec<ThreadKey> {
        let stored = |shard: &HashMap<ThreadKey, ThreadEntry>| {
            let stored = shard.iter().filter(|(_, entry)| entry.last_stored.is_some());
            stored.map(|(owner, _)| owner.clone()).collect::<Vec<_>>()
        };
        self.threads.shards().flat_map(|shard| stored(&shard)).collect()
    }

    /// Removes the threads that are not in the store, unless a call runs in them or they were active after `unless_after`.
    pub(super) fn forget_unstored(&self, unless_after: Timestamp) {
        for mut shard in self.threads.shards() {
            shard.retain(|_, entry| entry.last_stored.is_some() || entry.is_active(unless_after));
        }
    }

    /// The threads of a tenant that are not in the store, at most `limit` of those after this id, the first ones by id.
    pub(super) fn unstored(&self, tenant: &Tenant, after: Option<&ThreadId>, limit: usize) -> Vec<ThreadKey> {
        let mut found = Vec::new();
        for shard in self.threads.shards() {
            let unstored = shard.iter().filter(|(owner, entry)| {
                entry.last_stored.is_none()
                    && owner.tenant == *tenant
                    && after.is_none_or(|after| owner.thread > *after)
            });
            found.extend(unstored.map(|(owner, _)| owner.clone()));
        }
        if found.len() > limit {
            found.select_nth_unstable_by(limit, |a, b| a.thread.cmp(&b.thread));
            found.truncate(limit);
        }
        found
    }

    /// The threads to flush. A shard over its limit flushes all, so that it can be evicted.
    pub(super) fn due_for_flush(&self, scope: FlushScope, now: Timestamp) -> Vec<ThreadKey> {
        let mut found = Vec::new();
        for shard in self.threads.shards() {
            let scope = if shard.len() > MAX_PER_SHARD { FlushScope::All } else { scope };
            let due = shard.iter().filter(|(_, entry)| match (scope, entry.last_stored) {
                (_, None) => true,
                (FlushScope::All, Some(_)) => entry.has_unstored(),
                (FlushScope::Stale, Some(stored)) => {
                    entry.last_active.since(stored) >= self.stale_after
                        || (entry.has_unstored() && now.since(entry.last_active) >= FORGET_AFTER)
                }
            });
            found.extend(due.map(|(owner, _)| owner.clone()));
        }
        found
    }

    /// Records that this entry is in the store now.
    pub(super) fn mark_stored(&self, owner: &ThreadKey, flushed: &ThreadEntry) {
        if let Some(entry) = self.threads.shard(owner).get_mut(owner) {
            entry.last_stored = Some(flushed.last_active);
            entry.unstored_calls = entry.unstored_calls.saturating_sub(flushed.unstored_calls);
        }
    }

    /// Evicts stored entries that are idle, and recently used ones too from a shard over its limit. If the store cannot
    /// be written, a shard over four times its limit drops its oldest entries, because memory must stay bounded.
    pub(super) fn evict(&self, now: Timestamp) {
        for mut shard in self.threads.shards() {
            let is_full = shard.len() > MAX_PER_SHARD;
            let is_idle = |entry: &ThreadEntry| is_full || now.since(entry.last_active) >= FORGET_AFTER;
            shard.retain(|_, entry| entry.running > 0 || entry.has_unstored() || !is_idle(entry));
            if shard.len() > 4 * MAX_PER_SHARD {
                let mut times: Vec<Timestamp> = shard.values().map(|entry| entry.last_active).collect();
                let excess = times.len() - 2 * MAX_PER_SHARD;
                let cutoff = *times.select_nth_unstable(excess).1;
                shard.retain(|_, entry| entry.running > 0 || entry.last_active > cutoff);
            }
            // Release the capacity a burst of threads has allocated.
            if shard.capacity() > 4 * shard.len().max(16) {
                shard.shrink_to_fit();
            }
        }
    }
}

impl ThreadEntry {
    pub(super) fn is_stored(&self) -> bool {
        self.last_stored.is_some()
    }

    fn is_active(&self, after: Timestamp) -> bool {
        self.running > 0 || self.last_active > after
    }

    pub(super) fn has_unstored(&self) -> bool {
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

    fn flush(activity: &ThreadActivity, scope: FlushScope, now: Timestamp) -> usize {
        let due = activity.due_for_flush(scope, now);
        due.iter().for_each(|owner| activity.mark_stored(owner, &activity.get(owner).unwrap()));
        due.len()
    }

    #[test]
    fn a_thread_is_written_when_it_is_first_seen_and_then_once_a_minute_while_it_is_active() {
        let activity = ThreadActivity::new(MINUTE);
        let ThreadKey { tenant, thread } = owner(1);
        activity.record_call(&tenant, &thread, at(0));
        assert_eq!(flush(&activity, FlushScope::Stale, at(0)), 1);
        activity.record_call(&tenant, &thread, at(0) + MINUTE / 2);
        assert_eq!(flush(&activity, FlushScope::Stale, at(1)), 0);
        activity.record_call(&tenant, &thread, at(1));
        assert_eq!(flush(&activity, FlushScope::Stale, at(1)), 1);
        assert_eq!(flush(&activity, FlushScope::All, at(1)), 0);
    }

    #[test]
    fn what_is_written_and_idle_is_forgotten_and_what_runs_is_not() {
        let activity = ThreadActivity::new(MINUTE);
        let [idle, busy] = [owner(1), owner(2)];
        activity.record_call(&idle.tenant, &idle.thread, at(0));
        activity.begin_call(&busy.tenant, &busy.thread, at(0));
        activity.evict(at(60));
        assert!(activity.get(&idle).is_some(), "it is not stored yet");
        assert_eq!(flush(&activity, FlushScope::Stale, at(60)), 2);
        activity.evict(at(60));
        assert!(activity.get(&idle).is_none());
        assert!(activity.is_running(&busy) && activity.forget(&busy, at(99)).is_none());
        activity.end_call(&busy.tenant, &busy.thread);
        assert!(activity.forget(&busy, at(-1)).is_none(), "it was active after that");
        activity.record_call(&busy.tenant, &busy.thread, at(0));
        let forgotten = activity.forget(&busy, at(0)).unwrap();
        assert!(activity.get(&busy).is_none());
        activity.record_call(&busy.tenant, &busy.thread, at(1));
        activity.restore(&busy, forgotten, true);
        let restored = activity.get(&busy).unwrap();
        assert_eq!((restored.first_seen, restored.last_active, restored.unstored_calls), (at(0), at(1), 2));
    }

    #[test]
    fn a_store_that_takes_nothing_does_not_fill_the_memory() {
        let activity = ThreadActivity::new(MINUTE);
        for number in 0..600_000 {
            let ThreadKey { tenant, thread } = owner(number);
            activity.record_call(&tenant, &thread, Timestamp::from_millis(number));
        }
        activity.evict(Timestamp::from_millis(600_000));
        let retained = (0..600_000).filter(|number| activity.get(&owner(*number)).is_some()).count();
        assert!((100_000..=400_000).contains(&retained), "{retained}");
        assert!(activity.get(&owner(599_999)).is_some(), "the newest stay");
    }
}
