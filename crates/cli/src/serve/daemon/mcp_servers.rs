//! MCP servers of a changed config: stops and starts them in the running hub.
//!
//! In: the servers before and after. Out: the changed hub, or why not; the servers are then as before. Servers with unchanged settings keep their processes and sessions, also if tools of [tools] that name them have changed.

use std::{any::Any, sync::Arc, time::Duration};

use toolhub::{DuplicateSource, ToolHub, ToolSource as _, config::McpServerPlan, mcp::McpSource};

use crate::config::{self, McpServers};

/// How often a command looks whether its servers are connected.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The servers before and after a reload.
pub(super) struct ServerChange {
    pub(super) old: McpServers,
    pub(super) new: McpServers,
}

impl ServerChange {
    /// Stops and starts the servers that differ. If one cannot be added, all are as before.
    pub(super) async fn apply(&self, hub: &ToolHub) -> Result<(), DuplicateSource> {
        replace(hub, &self.old, &self.new).await
    }

    /// Restores the servers from before, with new connections.
    pub(super) async fn undo(&self, hub: &ToolHub) {
        if let Err(error) = replace(hub, &self.new, &self.old).await {
            tracing::error!(%error, "cannot restore an MCP server after a failed reload; restart the hub");
        }
    }
}

async fn replace(hub: &ToolHub, old: &McpServers, new: &McpServers) -> Result<(), DuplicateSource> {
    let is_same =
        |name: &String| matches!((old.get(name), new.get(name)), (Some(old), Some(new)) if new.is_same_server(old));
    let stopped: Vec<_> = old.keys().filter(|name| !is_same(name)).map(String::as_str).collect();
    let started = new.iter().filter(|(name, _)| !is_same(name));
    let started = started.filter_map(|(name, plan)| Some(Arc::new(config::mcp_source(name, plan)?) as _));
    hub.replace_sources(&stopped, started.collect()).await?;
    for (name, plan) in new.iter().filter(|(name, plan)| is_same(name) && old.get(*name) != Some(plan)) {
        replace_single_tools(hub, name, plan).await;
    }
    Ok(())
}

/// Changes the tools with names of their own, of a server that stays connected. New ones appear with its next list, which is read now.
async fn replace_single_tools(hub: &ToolHub, name: &str, plan: &McpServerPlan) {
    let (Some(running), Some(changed)) = (hub.source(name), config::mcp_source(name, plan)) else { return };
    let running: &dyn Any = &*running;
    let Some(running) = running.downcast_ref::<McpSource>() else { return };
    if let Err(error) = running.take_single_tools(&changed).await {
        // The next list of the server is registered with the new settings.
        tracing::warn!(server = name, %error, "changed tools of an MCP server are not registered yet");
    }
    hub.redeclare_source(name);
    running.refresh();
}

/// Waits until the first attempt to connect to each server has ended, which its `startup_timeout` ensures.
pub(crate) async fn wait_for_first_connections(hub: &ToolHub) {
    let is_starting = || hub.sources().iter().any(|source| source.info().status.is_starting());
    while is_starting() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
