//! The resources whose changes a server is asked to report.

use std::{collections::BTreeSet, time::Duration};

use tokio::{sync::watch, time::Instant};

use crate::mcp::{connection::Connection, era::Era, source::McpSource};

/// How long the requests about changed subscriptions may take together: the list of the tools is not read meanwhile.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(20);

/// The resources whose changes the hub wants to know, and those that the server was asked for.
pub(super) struct WatchedResources {
    wanted: watch::Receiver<Vec<String>>,
    /// Of the legacy era, which has a request for each.
    subscribed: BTreeSet<String>,
}

impl WatchedResources {
    pub(super) fn new(source: &McpSource) -> Self {
        Self { wanted: source.watched.subscribe(), subscribed: BTreeSet::new() }
    }

    pub(super) fn current(&self) -> Vec<String> {
        self.wanted.borrow().clone()
    }

    pub(super) fn take_changed(&mut self) -> Vec<String> {
        self.wanted.borrow_and_update().clone()
    }

    /// Waits until they change.
    pub(super) async fn changed(&mut self) -> Vec<String> {
        if self.wanted.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.take_changed()
    }

    /// Subscribes to what is wanted and ends other subscriptions, in the legacy era. A refused request is not repeated.
    pub(super) async fn subscribe(&mut self, source: &McpSource, connection: &Connection) {
        if connection.facts().era != Era::Legacy || !connection.facts().watches_resources {
            return;
        }
        let wanted: BTreeSet<String> = self.current().into_iter().collect();
        let changed: Vec<_> = wanted.symmetric_difference(&self.subscribed).cloned().collect();
        let deadline = Instant::now() + SUBSCRIBE_TIMEOUT;
        for uri in &changed {
            let request = connection.watch_resource(uri, wanted.contains(uri));
            if !matches!(tokio::time::timeout_at(deadline, request).await, Ok(Ok(()))) {
                tracing::debug!(server = source.server.name, "an MCP server refused to watch a resource");
            }
        }
        self.subscribed = wanted;
    }
}
