//! The thread that drives the connections of a store.
//!
//! A store can so be opened outside a runtime, serves several of them, and receives notifications while the workers of the caller's runtime
//! are blocked. Dropping the handle closes the connections.

use std::{
    sync::mpsc,
    thread::{Builder, JoinHandle},
};

use tokio::{runtime, sync::oneshot};

use super::{
    error::OpenError,
    open::{Inspection, Opened, inspect, open},
    options::Options,
};

/// Handle of the thread.
pub(super) struct IoThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IoThread {
    /// Starts the thread and waits until it has opened the store.
    pub(super) fn open(options: Options) -> Result<(Self, Opened), OpenError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(OpenError::Runtime)?;
        let (opened, result) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async move {
                match open(&options).await {
                    Ok((parts, tasks)) => {
                        let _ = opened.send(Ok(parts));
                        // The sender sends nothing; it is dropped with the store.
                        let _ = stopped.await;
                        drop(tasks);
                    }
                    Err(error) => {
                        let _ = opened.send(Err(error));
                    }
                }
            });
        };
        let thread = Builder::new().name("toolhub-redis".into()).spawn(run).map_err(OpenError::Runtime)?;
        let handle = Self { stop: Some(stop), thread: Some(thread) };
        let lost = |_| OpenError::Failed("the thread of the store panicked".into());
        let parts: Opened = result.recv().map_err(lost)??;
        Ok((handle, parts))
    }

    /// Checks on a thread of its own whether the store can be opened.
    pub(super) fn inspect(options: Options) -> Result<Inspection, OpenError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(OpenError::Runtime)?;
        let run = move || runtime.block_on(inspect(&options));
        let thread = Builder::new().name("toolhub-redis".into()).spawn(run).map_err(OpenError::Runtime)?;
        thread.join().unwrap_or_else(|_| Err(OpenError::Failed("the thread of the store panicked".into())))
    }
}

impl Drop for IoThread {
    /// Returns when the connections are closed.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, and the panic has been logged.
            let _ = thread.join();
        }
    }
}
