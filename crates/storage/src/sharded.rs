//! A sharded mutex: one value per shard, each under its own lock, to reduce contention between cores.
//!
//! In: a key. Out: the key's shard, locked. The owner decides what a shard is and how much it holds.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The number of shards: well above the number of cores that could contend.
pub const SHARDS: usize = 64;

/// Values by key, distributed over locked shards.
#[derive(Debug)]
pub struct Sharded<M> {
    shards: [Mutex<M>; SHARDS],
    hasher: RandomState,
}

impl<M: Default> Default for Sharded<M> {
    fn default() -> Self {
        Self::new(M::default)
    }
}

impl<M> Sharded<M> {
    /// Each shard holds what `make` returns.
    pub fn new(make: impl Fn() -> M) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(make())), hasher: RandomState::new() }
    }

    /// The shard of this key. Hold it for a few lines only.
    pub fn shard(&self, key: &impl Hash) -> MutexGuard<'_, M> {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every shard, one after the other. Hold each for a few lines only.
    pub fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, M>> {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
