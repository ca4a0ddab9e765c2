//! Whose turn it is to write a state.
//!
//! In: a call that may write the states of its tool. Out: the call, alone with them until it is committed. Calls on this
//! node write one context one after the other, in the order they came, so they meet no conflict; other nodes are kept out
//! by the compare-and-set at the end. Readers take no turn.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::ContextId;
use crate::{reentrancy::LockId, sharded::Sharded};
use toolhub_types::ids::Tenant;

type LockKey = (Tenant, ContextId);
type Lock = Arc<AsyncMutex<()>>;

/// The turns of all states somebody writes or waits for.
#[derive(Default)]
pub(crate) struct WriteLocks(Sharded<HashMap<LockKey, Lock>>);

/// A place in the line for one state, forgotten with the last one who stands there.
pub(crate) struct WriteLockEntry {
    key: LockKey,
    lock: Lock,
    locks: Arc<WriteLocks>,
}

/// A turn, until it is dropped.
pub(crate) struct WriteLock {
    // Before the place, so that the place sees whether anybody else is there.
    _guard: OwnedMutexGuard<()>,
    _entry: WriteLockEntry,
}

impl WriteLocks {
    pub(crate) fn entry(self: &Arc<Self>, whose: LockKey) -> WriteLockEntry {
        let lock = self.0.shard(&whose).entry(whose.clone()).or_default().clone();
        WriteLockEntry { key: whose, lock, locks: self.clone() }
    }
}

impl WriteLockEntry {
    /// What is held with the turn. Weak: calls that outlive the turn must not keep its place.
    pub(crate) fn lock_id(&self) -> LockId {
        let lock: Weak<AsyncMutex<()>> = Arc::downgrade(&self.lock);
        lock
    }

    pub(crate) async fn acquire(self) -> WriteLock {
        WriteLock { _guard: self.lock.clone().lock_owned().await, _entry: self }
    }
}

impl Drop for WriteLockEntry {
    fn drop(&mut self) {
        let mut part = self.locks.0.shard(&self.key);
        // The map's share and this one: nobody else is there, and while the part is locked nobody comes.
        if Arc::strong_count(&self.lock) == 2 {
            part.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reentrancy;

    #[tokio::test]
    async fn a_place_is_forgotten_with_the_last_one_there_whoever_was_called_from_it_still_runs() {
        let turns = Arc::new(WriteLocks::default());
        let whose = || (Tenant::default(), "t/s".parse().unwrap());
        let places = || turns.0.shards().map(|part| part.len()).sum::<usize>();
        let (place, waiting) = (turns.entry(whose()), turns.entry(whose()));
        let things = vec![place.lock_id()];
        let turn = place.acquire().await;
        let Ok(called_from_there) = reentrancy::with_locks(things, async { reentrancy::current() }).await else {
            panic!("held alone")
        };
        assert!(called_from_there.is_some());
        drop(turn);
        assert_eq!(places(), 1, "somebody waits");
        drop(waiting);
        assert_eq!(places(), 0);
    }
}
