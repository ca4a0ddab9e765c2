//! A map in parts, each under a lock of its own, so that calls on several cores seldom wait for each other.
//!
//! In: a key. Out: the part where it belongs, locked. What a part is, and how much it holds, is its owner's affair.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many parts there are: well above the number of cores that could meet.
pub(crate) const SHARDS: usize = 64;

pub(crate) struct Sharded<M> {
    shards: [Mutex<M>; SHARDS],
    hasher: RandomState,
}

impl<M: Default> Default for Sharded<M> {
    fn default() -> Self {
        Self::new(M::default)
    }
}

impl<M> Sharded<M> {
    pub(crate) fn new(make: impl Fn() -> M) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(make())), hasher: RandomState::new() }
    }

    /// The part where this key belongs. To be held for a few lines.
    pub(crate) fn shard(&self, key: &impl Hash) -> MutexGuard<'_, M> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every part, one after the other. To be held for a few lines each.
    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, M>> {
        self.shards.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
