//! `Link`: whether the service behind a group of tools is connected.
//!
//! In: the supervisor of the connection, through `hub::sources`. Out: the readiness of the tools, read by each call with one atomic
//! load. Kept in memory only: after a restart the connection is made anew.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use toolhub_storage::clock::{self, Instant};

/// How long calls wait for the service to come back before they are refused.
const RECONNECT_GRACE: Duration = Duration::from_secs(2);

/// The connectivity of a service, shared by its tools. A new link is disconnected. Clones are the same link.
#[derive(Debug, Clone)]
pub(crate) struct Link(Arc<LinkState>);

#[derive(Debug)]
struct LinkState {
    is_connected: AtomicBool,
    /// The last loss of the connection.
    loss: Mutex<Loss>,
}

#[derive(Debug, Clone)]
struct Loss {
    at: Instant,
    cause: Option<String>,
}

impl Default for Link {
    fn default() -> Self {
        let loss = Loss { at: Instant::now(), cause: None };
        Self(Arc::new(LinkState { is_connected: AtomicBool::new(false), loss: Mutex::new(loss) }))
    }
}

impl Link {
    /// Whether the service is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.is_connected.load(Ordering::Acquire)
    }

    /// Returns whether this changed anything.
    pub(crate) fn connect(&self) -> bool {
        !self.0.is_connected.swap(true, Ordering::AcqRel)
    }

    /// Records a loss, or the cause of a failed attempt to reconnect. Returns whether the service was connected before.
    pub(crate) fn disconnect(&self, cause: String, now: Instant) -> bool {
        let mut loss = self.0.loss.lock().unwrap_or_else(PoisonError::into_inner);
        let was_connected = self.0.is_connected.swap(false, Ordering::AcqRel);
        let at = if was_connected { now } else { loss.at };
        *loss = Loss { at, cause: Some(cause) };
        was_connected
    }

    /// Why the service is not connected.
    pub(crate) fn cause(&self) -> Option<String> {
        self.0.loss.lock().unwrap_or_else(PoisonError::into_inner).cause.clone()
    }

    /// Until when a call waits for the service; `None` if it is connected.
    pub(crate) fn reconnect_deadline(&self) -> Option<Instant> {
        let lost_at = || self.0.loss.lock().unwrap_or_else(PoisonError::into_inner).at;
        (!self.is_connected()).then(|| clock::deadline_after(lost_at(), RECONNECT_GRACE))
    }
}
