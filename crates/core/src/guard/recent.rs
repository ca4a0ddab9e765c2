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

const MOST: usize = 10_000;
const LONGEST: Duration = Duration::from_secs(3600);

/// How many are forgotten at most each time one is heard of. More than one, so that forgetting keeps up with
/// remembering; few, so that nobody waits while thousands are forgotten.
const AT_A_TIME: usize = 4;

/// What is remembered, by whom it is about; the first is the one not heard of for longest.
#[derive(Debug)]
pub(super) struct Recent<K, V>(LruCache<K, Known<V>, RandomState>);

#[derive(Debug)]
struct Known<V> {
    value: V,
    heard: Instant,
}

impl<K: Eq + Hash, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(LruCache::with_hasher(MOST, RandomState::new()))
    }
}

impl<K: Eq + Hash, V: Default> Recent<K, V> {
    /// Somebody is heard of. Gives what is remembered about them; nothing, if that is too long ago.
    pub(super) fn hear(&mut self, who: K, now: Instant) -> &mut V {
        // Marked as used before others are forgotten, so that it is not among them.
        let most = if self.0.get(&who).is_some() { MOST } else { MOST - 1 };
        self.forget(now, most);
        let known = match self.0.entry(who) {
            Entry::Occupied(mut known) => {
                known.to_back();
                known.into_mut()
            }
            Entry::Vacant(free) => free.insert(Known { value: V::default(), heard: now }),
        };
        if is_over(known.heard, now) {
            known.value = V::default();
        }
        known.heard = now;
        &mut known.value
    }

    /// Forgets what is beyond so many, and some whose time is over.
    fn forget(&mut self, now: Instant, most: usize) {
        for _ in 0..AT_A_TIME {
            let Some((_, longest)) = self.0.iter().next() else { return };
            if !is_over(longest.heard, now) && self.0.len() <= most {
                return;
            }
            self.0.remove_lru();
        }
    }
}

fn is_over(heard: Instant, now: Instant) -> bool {
    now.saturating_duration_since(heard) >= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn at_most_so_many_are_remembered_and_the_one_silent_for_longest_goes() {
        let (mut recent, now) = (Recent::<u32, u32>::default(), Instant::now());
        for who in 0..10_000 {
            *recent.hear(who, now) = who + 1;
        }
        recent.hear(0, now);
        recent.hear(77_777, now);
        assert_eq!(recent.0.len(), MOST);
        assert_eq!(*recent.hear(0, now), 1);
        // The second was silent for longest; the third then makes room for it.
        assert_eq!(*recent.hear(1, now), 0);
        assert_eq!(*recent.hear(2, now), 0);
        assert_eq!(*recent.hear(9_999, now), 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_hour_of_silence_nothing_is_known_and_all_is_given_back_bit_by_bit() {
        let (mut recent, begin) = (Recent::<u32, u32>::default(), Instant::now());
        for who in 0..100 {
            *recent.hear(who, begin) = 1;
        }
        let later = begin + LONGEST;
        assert_eq!(*recent.hear(99, later - Duration::from_millis(1)), 1);
        assert_eq!(*recent.hear(98, later), 0);
        for _ in 0..30 {
            recent.hear(99, later);
        }
        assert_eq!(recent.0.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_heard_of_again_in_time_is_never_forgotten() {
        let (mut recent, begin) = (Recent::<&str, u32>::default(), Instant::now());
        for half_hours in 0..10 {
            let seen = recent.hear("steady", begin + LONGEST / 2 * half_hours);
            assert_eq!(*seen, half_hours);
            *seen += 1;
        }
    }
}
