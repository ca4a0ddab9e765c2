//! A named thread of a store that is restarted after a panic.
//!
//! In: work that loops until its channel is closed. Out: a handle; dropping it waits until the thread has ended. The owner of the
//! handle closes the channel first: it declares the sender before the handle, because fields are dropped in order.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    thread::{Builder, JoinHandle},
};

/// What a thread does.
///
/// An implementation promises that `run` returns soon after its channel is closed, also if it panicked before, and that it waits
/// or takes a task from the channel before it may panic again.
pub(crate) trait Work: Send + 'static {
    /// Runs until the channel is closed.
    fn run(&mut self);

    /// Called after `run` panicked, before it is called again: discards what the panic may have left inconsistent, and logs which store
    /// it was and what happens next.
    fn recover(&mut self);
}

/// Handle of a thread.
pub(crate) struct WorkerThread(Option<JoinHandle<()>>);

impl WorkerThread {
    pub(crate) fn spawn(name: &'static str, mut work: impl Work) -> io::Result<Self> {
        let run = move || {
            while panic::catch_unwind(AssertUnwindSafe(|| work.run())).is_err() {
                work.recover();
            }
        };
        Builder::new().name(name.into()).spawn(run).map(|thread| Self(Some(thread)))
    }
}

impl Drop for WorkerThread {
    /// The next opening must find everything written and the lock free.
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // An error means that `recover` panicked, and the panic has been logged.
            let _ = thread.join();
        }
    }
}
