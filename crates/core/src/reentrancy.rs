//! Refuses a nested call that needs a lock its caller already holds (re-entrancy), because it would wait for itself.
//!
//! In: the exclusive locks of an execution, such as those of an instance or a state. Out: whether a nested call asks
//! for one of them. A task-local chain of held locks is passed from task to task with each nested call. A task that a
//! tool spawns itself is not tracked: a call made there waits like any other, until its timeout.

use std::{
    any::Any,
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

tokio::task_local! {
    static HELD_LOCKS: Arc<HeldLocks>;
}

/// Identifies an exclusive lock by its address. The holder of the lock keeps the address alive; the nested calls hold
/// only a weak reference.
pub(crate) type LockId = Weak<dyn Any + Send + Sync>;

/// The locks of one execution, linked to those of the enclosing ones.
pub(crate) struct HeldLocks {
    locks: Vec<LockId>,
    released: AtomicBool,
    outer: Option<Arc<HeldLocks>>,
}

/// The call needs a lock that an enclosing call holds.
pub(crate) struct Reentrant;

impl HeldLocks {
    /// Runs work as part of the execution that holds these locks.
    pub(crate) fn scope<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        HELD_LOCKS.scope(self, work)
    }

    fn holds(&self, lock: &LockId) -> bool {
        let live = !self.released.load(Ordering::Acquire);
        live && self.locks.iter().any(|held| std::ptr::addr_eq(held.as_ptr(), lock.as_ptr()))
    }
}

/// The locks held around the current work.
pub(crate) fn current() -> Option<Arc<HeldLocks>> {
    let mut held = HELD_LOCKS.try_with(Arc::clone).ok();
    // Released entries are skipped, so that a chain of calls that outlive each other does not grow forever.
    while let Some(released) = held.take_if(|held| held.released.load(Ordering::Acquire)) {
        held = released.outer.clone();
    }
    held
}

/// Runs the work with these locks registered as held.
///
/// # Errors
/// When an enclosing execution holds one of them.
pub(crate) async fn with_locks<T>(locks: Vec<LockId>, work: impl Future<Output = T>) -> Result<T, Reentrant> {
    let outer = current();
    let mut next = outer.as_ref();
    while let Some(held) = next {
        if locks.iter().any(|lock| held.holds(lock)) {
            return Err(Reentrant);
        }
        next = held.outer.as_ref();
    }
    let held = Arc::new(HeldLocks { locks, released: AtomicBool::new(false), outer });
    let _release = ReleaseOnDrop(held.clone());
    Ok(held.scope(work).await)
}

/// Marks the locks as released, however the work ends.
struct ReleaseOnDrop(Arc<HeldLocks>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.released.store(true, Ordering::Release);
    }
}
