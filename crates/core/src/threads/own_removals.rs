//! The threads that this node is deleting, to tell its own deletions from those of other nodes.
//!
//! In: deletions of this node, before they are committed. Out: whether a removed row was removed by this node. Used only if
//! something watches the rows; otherwise nothing is remembered.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use toolhub_types::ids::ThreadKey;

#[derive(Default)]
pub(crate) struct OwnRemovals {
    is_watched: AtomicBool,
    /// How many changes of a thread's row are expected.
    expected: Mutex<HashMap<ThreadKey, u32>>,
}

impl OwnRemovals {
    /// From now on the removals of rows are taken.
    pub(crate) fn start(&self) {
        self.is_watched.store(true, Ordering::Release);
    }

    /// Expects that this node removes the row of a thread. Followed by [`cancel`](Self::cancel) if it does not.
    pub(crate) fn expect(&self, owner: &ThreadKey) {
        if self.is_watched.load(Ordering::Acquire) {
            *self.lock().entry(owner.clone()).or_default() += 1;
        }
    }

    /// The row was not removed after all.
    pub(crate) fn cancel(&self, owner: &ThreadKey) {
        self.take(owner);
    }

    /// Whether a removal of the row was this node's; it is taken for one removal.
    pub(crate) fn take(&self, owner: &ThreadKey) -> bool {
        let mut expected = self.lock();
        let Some(count) = expected.get_mut(owner) else { return false };
        *count -= 1;
        if *count == 0 {
            expected.remove(owner);
        }
        true
    }

    /// Changes were missed; those that were expected may be among them.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, u32>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
