//! Times of the last success of each tool: over all threads, and per thread.
//!
//! In: a success from every successful call, so recording must be cheap. Out: its time. In memory only, because a store
//! write per success would cost more than most calls. Times before this process come from the journal: the first query
//! about a thread, or about all threads, backfills them. Decisions depend on other data: recovery is in the status
//! record, and requirements between tools use the thread's evidence.

use std::{
    hash::{Hash, RandomState},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use hashlink::LruCache;

use super::StatusKey;
use crate::sharded::{SHARDS, Sharded};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

/// Maximum number of entries per shard; about 100,000 in total.
const MAX_PER_SHARD: usize = 100_000 / SHARDS;

/// Times of the last success of tools in threads.
pub(crate) struct Successes {
    times: Sharded<LruCache<StatusKey, Timestamp, RandomState>>,
    /// The threads that were backfilled from the journal.
    backfilled_threads: Sharded<LruCache<ThreadKey, (), RandomState>>,
    /// Whether the times over all threads were backfilled.
    shared_backfilled: AtomicBool,
}

impl Default for Successes {
    fn default() -> Self {
        let (times, backfilled_threads) = (Sharded::new(lru), Sharded::new(lru));
        Self { times, backfilled_threads, shared_backfilled: AtomicBool::default() }
    }
}

fn lru<K: Eq + Hash, V>() -> LruCache<K, V, RandomState> {
    LruCache::with_hasher(MAX_PER_SHARD, RandomState::new())
}

impl Successes {
    /// Records a success. A full shard evicts its oldest entry.
    pub(crate) fn note(&self, key: StatusKey, at: Timestamp) {
        self.times.shard(&key).insert(key, at);
    }

    pub(crate) fn get(&self, key: &StatusKey) -> Option<Timestamp> {
        self.times.shard(key).peek(key).copied()
    }

    pub(crate) fn forget(&self, key: &StatusKey) {
        self.times.shard(key).remove(key);
    }

    /// Whether the times over all threads must be backfilled. Returns `true` once.
    pub(crate) fn claim_shared_backfill(&self) -> bool {
        !self.shared_backfilled.swap(true, Ordering::Relaxed)
    }

    /// Whether a thread was backfilled.
    pub(crate) fn is_backfilled(&self, thread: &ThreadKey) -> bool {
        self.backfilled_threads.shard(thread).contains_key(thread)
    }

    /// Adds the times before this process of a thread. Newer recorded times stay.
    pub(crate) fn backfill(&self, thread: ThreadKey, found: impl IntoIterator<Item = (StatusKey, Timestamp)>) {
        for (key, at) in found {
            if self.get(&key).is_none_or(|recorded| recorded < at) {
                self.note(key, at);
            }
        }
        // An evicted thread is backfilled again on the next query.
        self.backfilled_threads.shard(&thread).insert(thread, ());
    }
}

/// The last success of one tool over all threads. Stored in the tool, so that calls update it without a lock.
pub(crate) struct LastSuccess(AtomicI64);

/// Marks a tool that never succeeded.
const NEVER: i64 = i64::MIN;

impl Default for LastSuccess {
    fn default() -> Self {
        Self(AtomicI64::new(NEVER))
    }
}

impl LastSuccess {
    pub(crate) fn note(&self, at: Timestamp) {
        // Load first: of many calls within a millisecond only one stores, which avoids cache line contention.
        if self.0.load(Ordering::Relaxed) != at.millis() {
            self.0.store(at.millis(), Ordering::Relaxed);
        }
    }

    /// Adds a time before this process.
    pub(crate) fn backfill(&self, at: Timestamp) {
        self.0.fetch_max(at.millis(), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Timestamp> {
        Some(self.0.load(Ordering::Relaxed)).filter(|millis| *millis != NEVER).map(Timestamp::from_millis)
    }

    pub(crate) fn forget(&self) {
        self.0.store(NEVER, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::{
        ids::{Tenant, ThreadId},
        tool::ToolName,
    };

    fn key(number: i64) -> StatusKey {
        let thread = ThreadId::new(format!("t{number}")).unwrap();
        StatusKey::thread(&ToolName::new("tool").unwrap(), &Tenant::default(), &thread)
    }

    #[test]
    fn however_many_threads_succeed_the_newest_are_remembered_and_the_memory_is_bounded() {
        let successes = Successes::default();
        for number in 0..300_000 {
            successes.note(key(number), Timestamp::from_millis(number));
            assert_eq!(successes.get(&key(number)), Some(Timestamp::from_millis(number)));
        }
        let retained: Vec<i64> = (0..300_000).filter(|number| successes.get(&key(*number)).is_some()).collect();
        assert!((70_000..=100_000).contains(&retained.len()), "{} retained", retained.len());
        assert!((250_000..300_000).all(|number| retained.binary_search(&number).is_ok()), "the newest stay");
    }

    #[test]
    fn successes_of_one_moment_make_room_for_each_other() {
        let successes = Successes::default();
        for number in 0..200_000 {
            successes.note(key(number), Timestamp::default());
        }
        assert!(successes.get(&key(199_999)).is_some());
    }

    #[test]
    fn a_success_that_is_forgotten_was_never_there() {
        let last = LastSuccess::default();
        assert_eq!(last.get(), None);
        last.note(Timestamp::from_millis(7));
        assert_eq!(last.get(), Some(Timestamp::from_millis(7)));
        last.forget();
        assert_eq!(last.get(), None);
    }
}
