//! The threads that listeners of this node follow.
//!
//! In: listeners that come and go, and which threads the store has announced to all nodes. Out: the set of their threads, and a signal when
//! it changes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use toolhub_types::ids::ThreadKey;

#[derive(Default)]
pub(crate) struct Followed {
    threads: Mutex<HashMap<ThreadKey, Listeners>>,
    changed: Notify,
    announced: Notify,
}

/// The listeners of one thread.
#[derive(Default)]
struct Listeners {
    count: usize,
    /// Whether the nodes have been notified of the row of the thread.
    is_announced: bool,
    /// Whether a listener no longer waits for that: it may have missed events.
    is_late: bool,
}

impl Followed {
    pub(super) fn add(self: &Arc<Self>, thread: ThreadKey) -> FollowedThread {
        let mut threads = self.lock();
        let listeners = threads.entry(thread.clone()).or_default();
        listeners.count += 1;
        if listeners.count == 1 {
            self.changed.notify_one();
        }
        FollowedThread { thread, followed: self.clone() }
    }

    /// Waits until the nodes have been notified that this one follows the thread. After the longest wait it returns too, and the listeners
    /// of the thread get a reset later.
    pub(super) async fn announced(&self, thread: &ThreadKey, longest: Duration) {
        let is_announced = async {
            loop {
                let announced = self.announced.notified();
                if self.lock().get(thread).is_none_or(|listeners| listeners.is_announced) {
                    return;
                }
                announced.await;
            }
        };
        if timeout(longest, is_announced).await.is_err()
            && let Some(listeners) = self.lock().get_mut(thread)
        {
            listeners.is_late = !listeners.is_announced;
        }
    }

    /// Records that the nodes have been notified of the row of a thread. Returns whether its listeners may have missed events.
    pub(super) fn announce(&self, thread: &ThreadKey) -> bool {
        let mut threads = self.lock();
        let Some(listeners) = threads.get_mut(thread) else { return false };
        listeners.is_announced = true;
        self.announced.notify_waiters();
        std::mem::take(&mut listeners.is_late)
    }

    /// Has all threads announced again: nodes may not know of their rows.
    pub(super) fn forget_announcements(&self) {
        self.lock().values_mut().for_each(|listeners| listeners.is_announced = false);
    }

    /// The threads that are not announced.
    pub(super) fn unannounced(&self) -> HashSet<ThreadKey> {
        let threads = self.lock();
        threads.iter().filter(|(_, listeners)| !listeners.is_announced).map(|(thread, _)| thread.clone()).collect()
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

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, Listeners>> {
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
            listeners.count -= 1;
            if listeners.count == 0 {
                threads.remove(&self.thread);
                self.followed.changed.notify_one();
            }
        }
    }
}
