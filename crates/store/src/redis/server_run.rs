//! Says which server the connection for writes has found, so that the connections for reads and notifications follow it.
//!
//! In: the run of each server that the connection for writes is opened to. Out: for another connection, that its own server was replaced.
//! On a Cluster, where each server has a run of its own, nothing is said; its client finds the servers.

use tokio::sync::watch;

/// The side of the connection for writes.
pub(super) struct ServerRun(watch::Sender<String>);

/// The side of another connection.
#[derive(Clone)]
pub(super) struct RunWatcher(watch::Receiver<String>);

impl ServerRun {
    pub(super) fn new(run: String) -> Self {
        Self(watch::Sender::new(run))
    }

    pub(super) fn watcher(&self) -> RunWatcher {
        RunWatcher(self.0.subscribe())
    }

    /// The connection for writes is open to this run of a server.
    pub(super) fn set(&self, run: &str) {
        self.0.send_replace(run.to_owned());
    }

    /// The server of the connection for writes is a replica: nothing may be read from it either.
    pub(super) fn set_demoted(&self) {
        self.0.send_replace(String::new());
    }
}

impl RunWatcher {
    /// Called before a connection is opened: only what is found later replaces its server.
    pub(super) fn mark_seen(&mut self) {
        self.0.mark_unchanged();
    }

    /// Returns when the connection for writes has found another server than this one.
    pub(super) async fn replaced(&mut self, own: &str) {
        loop {
            if self.0.changed().await.is_err() {
                return std::future::pending().await;
            }
            if *self.0.borrow_and_update() != own {
                return;
            }
        }
    }
}
