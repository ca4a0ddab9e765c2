//! Whether the server of another process answers.
//!
//! In: the results of looking for it. Out: a failure for everything that waits, once it has not answered several times in a row although
//! it accepts connections: its process is stopped or overloaded, and keeps the store and the address.

use tokio::sync::watch;
use toolhub::sqlite::OpenError;

use crate::{config::OpenStoreError, failure::Failure, local_hub::LocalHub};

/// Number of looks without an answer after which the server counts as unresponsive.
pub(super) const MAX_UNANSWERED: u32 = 3;

/// Whether the server answers.
pub(super) struct Responsiveness(watch::Sender<Option<Failure>>);

impl Default for Responsiveness {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Responsiveness {
    /// Changes the state, and wakes those that wait for it.
    pub(super) fn set(&self, failure: Option<Failure>) {
        self.0.send_if_modified(|current| {
            let is_changed = current.is_some() != failure.is_some();
            *current = failure;
            is_changed
        });
    }

    /// Why the server cannot be used now.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.0.borrow().clone()
    }

    /// Waits until the server counts as unresponsive.
    pub(super) async fn lost(&self) -> Failure {
        let mut changes = self.0.subscribe();
        loop {
            // In a statement of its own, because it holds a lock.
            let failure = changes.borrow_and_update().clone();
            match failure {
                Some(failure) => return failure,
                None if changes.changed().await.is_err() => std::future::pending().await,
                None => {}
            }
        }
    }
}

/// The failure for a server that accepts connections and does not answer.
pub(super) fn silent_failure(local: &LocalHub) -> Failure {
    let (url, process) = (local.url(), store_holder(local));
    let holder = process.map(|process| format!(" (process {process} has its store)")).unwrap_or_default();
    let message = format!(
        "the server at {url} accepts connections and does not answer{holder}; its process may be stopped or overloaded"
    );
    let failure = Failure::new("unreachable", message);
    match process {
        Some(process) => failure.help(format!("kill -CONT {process}")).help(format!("or end it: kill {process}")),
        None => failure.help("end the process that listens there, or set another `server.port` in the config"),
    }
}

/// The process that has the store of a config open.
fn store_holder(local: &LocalHub) -> Option<u32> {
    // Nothing is created.
    local.store_path().filter(|path| path.exists())?;
    match local.loaded.config.store.open() {
        Err(OpenStoreError::Open(OpenError::InUse { holder, .. })) => holder.process,
        _ => None,
    }
}
