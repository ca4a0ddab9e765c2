//! Remembers something about each of many, and forgets who was not heard of for long.
//!
//! In: who was just heard of, and when. Out: what is remembered about them, to be changed in place.
//! At most 10,000 are remembered, and an hour long; when there are more, the one not heard of for longest goes.

use std::{
    hash::{Hash, RandomState},
    time::Duration,
};

use hashlink::{LruCache, lru_cache::Entry};

use toolhub_storage::clock::Instant;

const MAX_ENTRIES: usize = 10_000;
const ENTRY_TTL: Duration = Duration::from_secs(3600);

/// How many are forgotten at most each time one is heard of. More than one, so that forgetting keeps up with
/// remembering; few, so that nobody waits while thousands are forgotten.
const EVICTIONS_PER_TOUCH: usize = 4;

/// What is remembered, by whom it is about; the first is the one not heard of for longest.
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
    /// Somebody is heard of. Gives what is remembered about them; nothing, if that is too long ago.
    pub(super) fn touch(&mut self, who: K, now: Instant) -> &mut V {
        // Marked as used before others are forgotten, so that it is not among them.
        let most = if self.0.get(&who).is_some() { MAX_ENTRIES } else { MAX_ENTRIES - 1 };
        self.evict(now, most);
        let known = match self.0.entry(who) {
            Entry::Occupied(mut known) => {
                known.to_back();
                known.into_mut()
            }
            Entry::Vacant(free) => free.insert(TimedEntry { value: V::default(), last_seen: now }),
        };
        if is_expired(known.last_seen, now) {
            known.value = V::default();
        }
        known.last_seen = now;
        &mut known.value
    }

    /// Forgets what is beyond so many, and some whose time is over.
    fn evict(&mut self, now: Instant, most: usize) {
        for _ in 0..EVICTIONS_PER_TOUCH {
            let Some((_, longest)) = self.0.iter().next() else { return };
            if !is_expired(longest.last_seen, now) && self.0.len() <= most {
                return;
            }
            self.0.remove_lru();
        }
    }
}

fn is_expired(heard: Instant, now: Instant) -> bool {
    now.saturating_duration_since(heard) >= ENTRY_TTL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn at_most_so_many_are_remembered_and_the_one_silent_for_longest_goes() {
        let (mut recent, now) = (ExpiringLru::<u32, u32>::default(), Instant::now());
        for who in 0..10_000 {
            *recent.touch(who, now) = who + 1;
        }
        recent.touch(0, now);
        recent.touch(77_777, now);
        assert_eq!(recent.0.len(), MAX_ENTRIES);
        assert_eq!(*recent.touch(0, now), 1);
        // The second was silent for longest; the third then makes room for it.
        assert_eq!(*recent.touch(1, now), 0);
        assert_eq!(*recent.touch(2, now), 0);
        assert_eq!(*recent.touch(9_999, now), 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_hour_of_silence_nothing_is_known_and_all_is_given_back_bit_by_bit() {
        let (mut recent, begin) = (ExpiringLru::<u32, u32>::default(), Instant::now());
        for who in 0..100 {
            *recent.touch(who, begin) = 1;
        }
        let later = begin + ENTRY_TTL;
        assert_eq!(*recent.touch(99, later - Duration::from_millis(1)), 1);
        assert_eq!(*recent.touch(98, later), 0);
        for _ in 0..30 {
            recent.touch(99, later);
        }
        assert_eq!(recent.0.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_heard_of_again_in_time_is_never_forgotten() {
        let (mut recent, begin) = (ExpiringLru::<&str, u32>::default(), Instant::now());
        for half_hours in 0..10 {
            let seen = recent.touch("steady", begin + ENTRY_TTL / 2 * half_hours);
            assert_eq!(*seen, half_hours);
            *seen += 1;
        }
    }
}
