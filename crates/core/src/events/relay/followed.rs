//! The threads that listeners of this node follow.
//!
//! In: listeners that come and go. Out: the set of their threads, and a signal when it changes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use toolhub_types::ids::ThreadKey;

#[derive(Default)]
pub(crate) struct Followed {
    /// The number of listeners of each thread.
    threads: Mutex<HashMap<ThreadKey, usize>>,
    changed: Notify,
}

impl Followed {
    pub(super) fn add(self: &Arc<Self>, thread: ThreadKey) -> FollowedThread {
        let mut threads = self.lock();
        let listeners = threads.entry(thread.clone()).or_default();
        *listeners += 1;
        if *listeners == 1 {
            self.changed.notify_one();
        }
        FollowedThread { thread, followed: self.clone() }
    }

    /// Waits until the set may have changed since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Has the set compared with its rows again.
    pub(super) fn check_again(&self) {
        self.changed.notify_one();
    }

    pub(super) fn threads(&self) -> HashSet<ThreadKey> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn contains(&self, thread: &ThreadKey) -> bool {
        self.lock().contains_key(thread)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, usize>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener of a thread; the thread is followed until all of them are dropped.
pub(crate) struct FollowedThread {
    thread: ThreadKey,
    followed: Arc<Followed>,
}

impl Drop for FollowedThread {
    fn drop(&mut self) {
        let mut threads = self.followed.lock();
        if let Some(listeners) = threads.get_mut(&self.thread) {
            *listeners -= 1;
            if *listeners == 0 {
                threads.remove(&self.thread);
                self.followed.changed.notify_one();
            }
        }
    }
}
