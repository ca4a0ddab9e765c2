//! A memory store that several hubs share. What they saw of it is recorded, and checked at the end of the test.

use std::{sync::Arc, thread};

use toolhub::{
    backend::{Backend, Memory},
    testing::history::History,
};

#[derive(Default)]
pub(crate) struct SharedMemory {
    pub(crate) memory: Arc<Memory>,
    history: Arc<History>,
}

impl SharedMemory {
    /// A connection for one hub.
    pub(crate) fn connect(&self) -> Arc<dyn Backend> {
        self.record(self.memory.clone())
    }

    /// The same through a store that a test interferes with, and that leads to this memory.
    pub(crate) fn record(&self, store: Arc<dyn Backend>) -> Arc<dyn Backend> {
        self.history.record(store)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.history.assert_promises_kept();
        }
    }
}
