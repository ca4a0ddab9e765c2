//! Notices a call that would wait for itself.
//!
//! In: the things an execution works alone with, such as an instance or a state. Out: whether a call that is made from
//! inside it asks for one of them. Calls know where they were made because the chain of held things is handed from task to
//! task with them; a task that a tool spawns itself is not followed, and a call made there waits like any other, until its
//! time is up.

use std::{
    any::Any,
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

tokio::task_local! {
    static HELD: Arc<HeldLocks>;
}

/// Something only one execution at a time works with. Two are the same if they lie in the same place. It is kept alive by
/// whoever works with it, and not by the calls that were made from there.
pub(crate) type LockId = Weak<dyn Any + Send + Sync>;

/// Things somebody works alone with, and those that are held around it.
pub(crate) struct HeldLocks {
    locks: Vec<LockId>,
    released: AtomicBool,
    outer: Option<Arc<HeldLocks>>,
}

/// The call asks for something that is held by the call around it.
pub(crate) struct Reentrant;

impl HeldLocks {
    /// Runs work as part of the execution that holds all this.
    pub(crate) fn scope<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        HELD.scope(self, work)
    }

    fn holds(&self, thing: &LockId) -> bool {
        let live = !self.released.load(Ordering::Acquire);
        live && self.locks.iter().any(|held| std::ptr::addr_eq(held.as_ptr(), thing.as_ptr()))
    }
}

/// What is held around the current work.
pub(crate) fn current() -> Option<Arc<HeldLocks>> {
    let mut hold = HELD.try_with(Arc::clone).ok();
    // What is over is forgotten, so that a chain of calls that outlive each other does not grow for ever.
    while let Some(over) = hold.take_if(|hold| hold.released.load(Ordering::Acquire)) {
        hold = over.outer.clone();
    }
    hold
}

/// Holds things while the work goes on.
///
/// # Errors
/// When one of them is held by the work around this.
pub(crate) async fn with_locks<T>(things: Vec<LockId>, work: impl Future<Output = T>) -> Result<T, Reentrant> {
    let outer = current();
    let mut next = outer.as_ref();
    while let Some(hold) = next {
        if things.iter().any(|thing| hold.holds(thing)) {
            return Err(Reentrant);
        }
        next = hold.outer.as_ref();
    }
    let hold = Arc::new(HeldLocks { locks: things, released: AtomicBool::new(false), outer });
    let _over = ReleaseOnDrop(hold.clone());
    Ok(hold.scope(work).await)
}

/// However the work ends, nothing is held any longer.
struct ReleaseOnDrop(Arc<HeldLocks>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.released.store(true, Ordering::Release);
    }
}
