//! The channel from a running tool to its caller: progress and log lines.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use toolhub_types::progress::CallUpdate;

/// Number of updates buffered for a slow reader.
const BACKLOG: usize = 64;

/// The sender of updates. A slow reader misses the oldest ones; a tool never waits for a reader.
///
/// A tool may keep its context, and with it this sender, after the call has ended. So the end of the call closes the channel
/// explicitly.
#[derive(Clone)]
pub(crate) struct UpdateSink(Arc<Mutex<Option<broadcast::Sender<CallUpdate>>>>);

impl UpdateSink {
    pub(crate) fn new() -> (Self, broadcast::Receiver<CallUpdate>) {
        let (sender, receiver) = broadcast::channel(BACKLOG);
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    pub(crate) fn send(&self, update: CallUpdate) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // Sending fails if the caller dropped its receiver; the tool continues.
            let _ = sender.send(update);
        }
    }

    /// Closes the channel, because the call has ended.
    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
