//! MCP servers of a changed config: stops and starts them in the running hub.
//!
//! In: the names of the servers to stop and to start. Out: the changed hub, or why not; the servers are then as before, with new
//! connections. Servers with unchanged settings keep their processes and sessions.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use toolhub::{DuplicateSource, SourceConnection, ToolHub};

use crate::config::Config;

/// How often a command looks whether its servers are connected.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The servers that a reload replaces.
pub(super) struct ServerChange<'a> {
    pub(super) old: &'a Config,
    pub(super) new: &'a Config,
    pub(super) stop: &'a [String],
    pub(super) start: &'a [String],
}

impl ServerChange<'_> {
    /// Stops and starts the servers. If one cannot be added, all are as before.
    pub(super) async fn apply(&self, hub: &ToolHub) -> Result<(), DuplicateSource> {
        stop(hub, self.stop).await;
        let started = start(hub, self.new, self.start);
        if started.is_err() {
            self.undo(hub).await;
        }
        started
    }

    /// Restores the servers of the old config.
    pub(super) async fn undo(&self, hub: &ToolHub) {
        stop(hub, self.start).await;
        if let Err(error) = start(hub, self.old, self.stop) {
            tracing::error!(%error, "cannot restore an MCP server after a failed reload; restart the hub");
        }
    }
}

async fn stop(hub: &ToolHub, servers: &[String]) {
    join_all(servers.iter().map(|name| hub.remove_source(name))).await;
}

fn start(hub: &ToolHub, config: &Config, servers: &[String]) -> Result<(), DuplicateSource> {
    let mut sources = servers.iter().filter_map(|name| config.mcp_source(name));
    sources.try_for_each(|source| hub.add_source(Arc::new(source)))
}

/// Waits until the first attempt to connect to each server has ended, which its `startup_timeout` ensures.
pub(crate) async fn wait_for_first_connections(hub: &ToolHub) {
    let is_connecting = || hub.sources().iter().any(|source| source.info().connection == SourceConnection::Connecting);
    while is_connecting() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
