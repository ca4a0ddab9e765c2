//! Remembers when tools last succeeded: each for everybody, and in each thread.
//!
//! In: a success, told by every good call, so it must cost next to nothing. Out: its time. In memory only: nothing is
//! written for a plain success, because a write for every call would cost more than most calls. What was before this process
//! the journal knows: it is asked by whoever is first asked about a thread, or about all, and what it says is brought here. What
//! others depend on is kept elsewhere: that a tool recovered in its record, and that others may go on in the thread's
//! evidence.

use std::{
    hash::{Hash, RandomState},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use hashlink::LruCache;

use super::StatusKey;
use crate::sharded::{SHARDS, Sharded};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

/// How many threads' successes one part of the map remembers; about 100,000 in all.
const MAX_PER_SHARD: usize = 100_000 / SHARDS;

/// When tools last succeeded in threads.
pub(crate) struct Successes {
    times: Sharded<LruCache<StatusKey, Timestamp, RandomState>>,
    /// The threads of which the journal was asked.
    backfilled_threads: Sharded<LruCache<ThreadKey, (), RandomState>>,
    /// Whether it was asked of everybody.
    shared_backfilled: AtomicBool,
}

impl Default for Successes {
    fn default() -> Self {
        let (times, recalled) = (Sharded::new(lru), Sharded::new(lru));
        Self { times, backfilled_threads: recalled, shared_backfilled: AtomicBool::default() }
    }
}

fn lru<K: Eq + Hash, V>() -> LruCache<K, V, RandomState> {
    LruCache::with_hasher(MAX_PER_SHARD, RandomState::new())
}

impl Successes {
    /// Notes a success. Where the memory is full, the one that was noted longest ago is forgotten.
    pub(crate) fn note(&self, whose: StatusKey, at: Timestamp) {
        self.times.shard(&whose).insert(whose, at);
    }

    pub(crate) fn get(&self, whose: &StatusKey) -> Option<Timestamp> {
        self.times.shard(whose).peek(whose).copied()
    }

    pub(crate) fn forget(&self, whose: &StatusKey) {
        self.times.shard(whose).remove(whose);
    }

    /// Whether what was before this process is still to be learnt of everybody. Said once.
    pub(crate) fn claim_shared_backfill(&self) -> bool {
        !self.shared_backfilled.swap(true, Ordering::Relaxed)
    }

    /// Whether what was before this process is known of a thread.
    pub(crate) fn is_backfilled(&self, thread: &ThreadKey) -> bool {
        self.backfilled_threads.shard(thread).contains_key(thread)
    }

    /// Takes in what was before this process in a thread. What was noted meanwhile is newer.
    pub(crate) fn backfill(&self, thread: ThreadKey, found: impl IntoIterator<Item = (StatusKey, Timestamp)>) {
        for (whose, at) in found {
            if self.get(&whose).is_none_or(|noted| noted < at) {
                self.note(whose, at);
            }
        }
        // One that is forgotten is asked for once more when somebody asks about it.
        self.backfilled_threads.shard(&thread).insert(thread, ());
    }
}

/// When one tool last succeeded, whoever called it. It lies in the tool, where every call can reach it without a lock.
pub(crate) struct LastSuccess(AtomicI64);

/// Before all time: it never did.
const NEVER: i64 = i64::MIN;

impl Default for LastSuccess {
    fn default() -> Self {
        Self(AtomicI64::new(NEVER))
    }
}

impl LastSuccess {
    pub(crate) fn note(&self, at: Timestamp) {
        // Looked at first: of the many calls within a millisecond one writes, and the others leave each other's cache alone.
        if self.0.load(Ordering::Relaxed) != at.millis() {
            self.0.store(at.millis(), Ordering::Relaxed);
        }
    }

    /// Takes in what was before this process.
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
        let kept: Vec<i64> = (0..300_000).filter(|number| successes.get(&key(*number)).is_some()).collect();
        assert!((70_000..=100_000).contains(&kept.len()), "{} kept", kept.len());
        assert!((250_000..300_000).all(|number| kept.binary_search(&number).is_ok()), "the newest stay");
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
