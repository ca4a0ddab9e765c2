//! One exclusive write lock per context, in memory.
//!
//! In: the context a call may write. Out: a lock held until the call is committed. Calls on this node write a context
//! one after another in FIFO order, so they do not conflict; the compare-and-set of the commit detects conflicts with
//! other nodes. Readers take no lock.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::ContextId;
use toolhub_storage::sharded::Sharded;
use toolhub_types::ids::Tenant;

type LockKey = (Tenant, ContextId);
type Lock = Arc<AsyncMutex<()>>;

/// The locks of all contexts that a call writes or waits for.
#[derive(Default)]
pub struct WriteLocks(Sharded<HashMap<LockKey, Lock>>);
toolhub_storage::brief_debug!("WriteLocks" WriteLocks);

/// A reference to the lock of one context. The last reference removes the lock from the map when it is dropped.
pub struct WriteLockEntry {
    key: LockKey,
    lock: Lock,
    locks: Arc<WriteLocks>,
}
toolhub_storage::brief_debug!("WriteLockEntry" WriteLockEntry);

/// The acquired lock, released on drop.
pub struct WriteLock {
    // Declared before the entry: it must drop its share of the lock before the entry counts the shares.
    _guard: OwnedMutexGuard<()>,
    _entry: WriteLockEntry,
}
toolhub_storage::brief_debug!("WriteLock" WriteLock);

impl WriteLocks {
    /// A reference to the lock of this context.
    pub fn entry(self: &Arc<Self>, key: LockKey) -> WriteLockEntry {
        let lock = self.0.shard(&key).entry(key.clone()).or_default().clone();
        WriteLockEntry { key, lock, locks: self.clone() }
    }
}

impl WriteLockEntry {
    /// The identity of the lock for the re-entrancy check. Weak: a call that outlives the lock must not keep its entry.
    pub fn lock_id(&self) -> Weak<dyn Any + Send + Sync> {
        let lock: Weak<AsyncMutex<()>> = Arc::downgrade(&self.lock);
        lock
    }

    /// Waits for the lock.
    pub async fn acquire(self) -> WriteLock {
        WriteLock { _guard: self.lock.clone().lock_owned().await, _entry: self }
    }
}

impl Drop for WriteLockEntry {
    fn drop(&mut self) {
        let mut shard = self.locks.0.shard(&self.key);
        // Two shares are the map's and this one: no other call holds the lock, and the locked shard admits none.
        if Arc::strong_count(&self.lock) == 2 {
            shard.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_entry_is_removed_with_its_last_user_while_nested_calls_still_run() {
        let locks = Arc::new(WriteLocks::default());
        let key = || (Tenant::default(), "t/s".parse().unwrap());
        let entries = || locks.0.shards().map(|shard| shard.len()).sum::<usize>();
        let (entry, waiting) = (locks.entry(key()), locks.entry(key()));
        let _nested = entry.lock_id();
        drop(entry.acquire().await);
        assert_eq!(entries(), 1, "one waiter is left");
        drop(waiting);
        assert_eq!(entries(), 0);
    }
}
