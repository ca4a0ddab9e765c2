//! Times of the last success of each tool: over all threads, and per thread.
//!
//! In: a success from every successful call, so recording must be cheap; successes before this process, from the journal.
//! Out: the time of the last one. In memory only, because a store write per success would cost more than most calls.
//! `evidence/recall.rs` reads the journal.

use std::hash::{Hash, RandomState};

use std::sync::atomic::{AtomicI64, Ordering};

use hashlink::LruCache;
use tokio::sync::OnceCell;

use super::StatusKey;
use toolhub_storage::sharded::{SHARDS, Sharded};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

/// Maximum number of entries per shard; about 100,000 in total.
const MAX_PER_SHARD: usize = 100_000 / SHARDS;

/// Times of the last success of tools in threads.
pub(crate) struct Successes {
    times: Sharded<LruCache<StatusKey, LatestSuccess, RandomState>>,
    /// The threads whose successes were recalled from the journal, and the revision of the registry at that time.
    recalled_threads: Sharded<LruCache<ThreadKey, u64, RandomState>>,
    /// Set when the times over all threads were recalled.
    pub(crate) shared_recall: OnceCell<()>,
}

/// The last success of a tool in a thread.
#[derive(Debug, Clone, Copy)]
struct LatestSuccess {
    at: Timestamp,
    /// Whether the tool's status was reset since. As evidence it counts nevertheless.
    before_reset: bool,
}

impl Default for Successes {
    fn default() -> Self {
        let (times, recalled_threads) = (Sharded::new(lru), Sharded::new(lru));
        Self { times, recalled_threads, shared_recall: OnceCell::new() }
    }
}

fn lru<K: Eq + Hash, V>() -> LruCache<K, V, RandomState> {
    LruCache::with_hasher(MAX_PER_SHARD, RandomState::new())
}

impl Successes {
    /// Records a success. A full shard evicts its oldest entry.
    pub(crate) fn note(&self, key: StatusKey, at: Timestamp) {
        self.times.shard(&key).insert(key, LatestSuccess { at, before_reset: false });
    }

    /// The last success.
    pub(crate) fn get(&self, key: &StatusKey) -> Option<Timestamp> {
        self.times.shard(key).peek(key).map(|latest| latest.at)
    }

    /// The last success, unless the tool's status was reset since.
    pub(crate) fn get_since_reset(&self, key: &StatusKey) -> Option<Timestamp> {
        self.times.shard(key).peek(key).filter(|latest| !latest.before_reset).map(|latest| latest.at)
    }

    /// Marks the success as older than a reset of the tool's status.
    pub(crate) fn mark_reset(&self, key: &StatusKey) {
        if let Some(latest) = self.times.shard(key).peek_mut(key) {
            latest.before_reset = true;
        }
    }

    pub(crate) fn forget(&self, key: &StatusKey) {
        self.times.shard(key).remove(key);
    }

    /// Makes the next query about a thread read the journal again.
    pub(crate) fn forget_recall(&self, thread: &ThreadKey) {
        self.recalled_threads.shard(thread).remove(thread);
    }

    /// The revision of the registry for which a thread's successes were recalled.
    pub(crate) fn recalled_revision(&self, thread: &ThreadKey) -> Option<u64> {
        self.recalled_threads.shard(thread).peek(thread).copied()
    }

    /// Adds a success before this process. A newer recorded one stays. `reset` is the time of the last reset of the tool's
    /// status.
    pub(crate) fn recall(&self, key: StatusKey, at: Timestamp, reset: Option<Timestamp>) {
        let mut times = self.times.shard(&key);
        if times.peek(&key).is_none_or(|recorded| recorded.at < at) {
            times.insert(key, LatestSuccess { at, before_reset: Some(at) <= reset });
        }
    }

    /// Records that a thread's successes were recalled. An evicted thread is recalled again on the next query.
    pub(crate) fn mark_recalled(&self, thread: ThreadKey, revision: u64) {
        self.recalled_threads.shard(&thread).insert(thread, revision);
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
