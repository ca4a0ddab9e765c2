//! Progress channel of a running call.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use toolhub_types::progress::Progress;

/// Number of progress messages buffered for a slow reader.
const BACKLOG: usize = 64;

/// The sender of progress messages. A slow reader misses the oldest messages; a tool never waits for a reader.
///
/// A tool may keep its context, and with it this sender, after the call has ended. So the end of the call closes the channel
/// explicitly.
#[derive(Clone)]
pub(crate) struct ProgressSink(Arc<Mutex<Option<broadcast::Sender<Progress>>>>);

impl ProgressSink {
    pub(crate) fn new() -> (Self, broadcast::Receiver<Progress>) {
        let (sender, receiver) = broadcast::channel(BACKLOG);
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    pub(crate) fn send(&self, progress: Progress) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // Sending fails if the caller dropped its receiver; the tool continues.
            let _ = sender.send(progress);
        }
    }

    /// Closes the channel, because the call has ended.
    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
