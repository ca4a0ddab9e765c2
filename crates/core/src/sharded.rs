//! A map in parts, each under a lock of its own, so that calls on several cores seldom wait for each other.
//!
//! In: a key. Out: the part of the map where it lies, locked. What is kept, and how much of it, is its owner's affair.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many parts there are: well above the number of cores that could meet.
pub(crate) const PARTS: usize = 64;

pub(crate) struct Sharded<K, V> {
    parts: [Mutex<HashMap<K, V>>; PARTS],
    hasher: RandomState,
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

impl<K: Hash + Eq, V> Sharded<K, V> {
    /// The part where this key lies. To be held for a few lines.
    pub(crate) fn part(&self, key: &K) -> MutexGuard<'_, HashMap<K, V>> {
        let at = self.hasher.hash_one(key) as usize % PARTS;
        self.parts[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every part, one after the other. To be held for a few lines each.
    pub(crate) fn parts(&self) -> impl Iterator<Item = MutexGuard<'_, HashMap<K, V>>> {
        self.parts.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
