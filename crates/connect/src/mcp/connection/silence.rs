//! Whether a server that answers no probe is busy or hung: what has arrived from it, and since when nothing has.
//!
//! In: probes without an answer. Out: the time since which the server is silent, and the calls that it may be busy with.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::Connection;

/// When the first probe without an answer began, and how many messages had arrived by then.
#[derive(Default)]
pub(super) struct Silence(Mutex<Option<(Instant, u64)>>);

impl Connection {
    /// Whether a call that was sent before this time waits for an answer.
    pub(crate) fn has_call_sent_before(&self, time: Instant) -> bool {
        self.router.has_call_sent_before(time)
    }

    /// How many messages of the server have arrived.
    pub(crate) fn messages_received(&self) -> u64 {
        self.router.messages_received()
    }

    /// When the first probe without an answer began since which nothing has arrived. This one began at a time with so many messages
    /// received.
    pub(crate) fn silent_since(&self, began: Instant, received: u64) -> Instant {
        let mut silence = self.silence.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *silence {
            Some((since, known)) if known == received => since,
            _ => silence.insert((began, received)).0,
        }
    }
}
