//! A bounded LRU map whose entries expire.
//!
//! In: a key and the time. Out: its value, to be changed in place. It holds at most 10,000 entries; an entry expires
//! after one hour without a touch, and the least recently touched one is evicted when the map is full.

use std::{
    hash::{Hash, RandomState},
    time::Duration,
};

use hashlink::{LruCache, lru_cache::Entry};

use toolhub_storage::clock::Instant;

const MAX_ENTRIES: usize = 10_000;
const ENTRY_TTL: Duration = Duration::from_secs(3600);

/// The maximum number of evictions per touch. More than one, so that eviction keeps up with insertion; few, so that no
/// call waits for thousands of evictions.
const EVICTIONS_PER_TOUCH: usize = 4;

/// The entries, least recently touched first.
#[derive(Debug)]
pub(super) struct ExpiringLru<K, V>(LruCache<K, TimedEntry<V>, RandomState>);

#[derive(Debug)]
struct TimedEntry<V> {
    value: V,
    last_seen: Instant,
}

impl<K: Eq + Hash, V> Default for ExpiringLru<K, V> {
    fn default() -> Self {
        Self(LruCache::with_hasher(MAX_ENTRIES, RandomState::new()))
    }
}

impl<K: Eq + Hash, V: Default> ExpiringLru<K, V> {
    /// Marks the key as used and returns its value; a default value if the key is new or has expired.
    pub(super) fn touch(&mut self, key: K, now: Instant) -> &mut V {
        // `get` marks the key as used before the eviction, so that it is not evicted itself.
        let max_entries = if self.0.get(&key).is_some() { MAX_ENTRIES } else { MAX_ENTRIES - 1 };
        self.evict(now, max_entries);
        let entry = match self.0.entry(key) {
            Entry::Occupied(mut occupied) => {
                occupied.to_back();
                occupied.into_mut()
            }
            Entry::Vacant(vacant) => vacant.insert(TimedEntry { value: V::default(), last_seen: now }),
        };
        if is_expired(entry.last_seen, now) {
            entry.value = V::default();
        }
        entry.last_seen = now;
        &mut entry.value
    }

    /// Evicts entries beyond the maximum, and some that have expired.
    fn evict(&mut self, now: Instant, max_entries: usize) {
        for _ in 0..EVICTIONS_PER_TOUCH {
            let Some((_, oldest)) = self.0.iter().next() else { return };
            if !is_expired(oldest.last_seen, now) && self.0.len() <= max_entries {
                return;
            }
            self.0.remove_lru();
        }
    }
}

fn is_expired(last_seen: Instant, now: Instant) -> bool {
    now.saturating_duration_since(last_seen) >= ENTRY_TTL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn at_most_so_many_are_remembered_and_the_one_silent_for_longest_goes() {
        let (mut lru, now) = (ExpiringLru::<u32, u32>::default(), Instant::now());
        for key in 0..10_000 {
            *lru.touch(key, now) = key + 1;
        }
        lru.touch(0, now);
        lru.touch(77_777, now);
        assert_eq!(lru.0.len(), MAX_ENTRIES);
        assert_eq!(*lru.touch(0, now), 1);
        // The second entry was the oldest and is gone; touching it evicts the third.
        assert_eq!(*lru.touch(1, now), 0);
        assert_eq!(*lru.touch(2, now), 0);
        assert_eq!(*lru.touch(9_999, now), 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_hour_of_silence_nothing_is_known_and_all_is_given_back_bit_by_bit() {
        let (mut lru, start) = (ExpiringLru::<u32, u32>::default(), Instant::now());
        for key in 0..100 {
            *lru.touch(key, start) = 1;
        }
        let later = start + ENTRY_TTL;
        assert_eq!(*lru.touch(99, later - Duration::from_millis(1)), 1);
        assert_eq!(*lru.touch(98, later), 0);
        for _ in 0..30 {
            lru.touch(99, later);
        }
        assert_eq!(lru.0.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_used_before_it_expires_is_never_evicted() {
        let (mut lru, start) = (ExpiringLru::<&str, u32>::default(), Instant::now());
        for half_hours in 0..10 {
            let value = lru.touch("steady", start + ENTRY_TTL / 2 * half_hours);
            assert_eq!(*value, half_hours);
            *value += 1;
        }
    }
}
