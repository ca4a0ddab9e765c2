//! News from a running call.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use toolhub_types::progress::Progress;

/// How much progress is kept for a caller that does not look.
const BACKLOG: usize = 64;

/// Where progress goes. A reader that is too slow misses the oldest news; a tool never waits for a reader.
///
/// A tool may keep its context after the call has ended, and with it this; so the end is said, not waited for.
#[derive(Clone)]
pub(crate) struct ProgressSink(Arc<Mutex<Option<broadcast::Sender<Progress>>>>);

impl ProgressSink {
    pub(crate) fn new() -> (Self, broadcast::Receiver<Progress>) {
        let (sender, receiver) = broadcast::channel(BACKLOG);
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    pub(crate) fn send(&self, progress: Progress) {
        if let Some(line) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // A caller that no longer listens is no reason to stop.
            let _ = line.send(progress);
        }
    }

    /// The call has ended.
    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
