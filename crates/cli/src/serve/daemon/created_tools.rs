//! Tools created, replaced and removed over the API: changed in the hub and stored, or neither.
//!
//! In: a name and a definition. Out: the changed hub and store, or why not. `api_tools` builds the definitions.

use std::time::Duration;

use serde_json::Value;
use toolhub::{HubChange, ToolBuilder, server::ToolChangeError};

use super::Daemon;
use crate::serve::{
    api_definitions::{self as definitions, Section},
    api_tools,
};

/// How long to wait for the MCP server of a new tool, and how often to look.
const CONNECT_WAIT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Daemon {
    /// Registers or replaces a tool and stores it. The hub is changed first and the store last, so that a crash in between leaves
    /// the stored tools unchanged. If storing fails, the change of the hub is undone.
    pub(super) async fn put_tool(&self, name: &str, request: &Value, exists: bool) -> Result<(), ToolChangeError> {
        let _guard = self.reload_lock.lock().await;
        if self.loaded().config.tools.contains_key(name) {
            return Err(ToolChangeError::Configured);
        }
        if self.hub.get(name).is_some() != exists {
            return Err(ToolChangeError::NameTaken);
        }
        let hosts = &self.loaded().config.server.tool_hosts;
        let tool = api_tools::build_new(name, request, hosts, |base| self.hub.get(base).is_some())?;
        let before = self.stored_tool(name).await?;
        self.apply_change(HubChange::tools_only().put(tool)).await?;
        if let Err(why) = self.wait_for_own_server(name).await {
            self.undo(name, before).await;
            return Err(ToolChangeError::Refused(why));
        }
        self.persist_tool(name, Some(request), before).await
    }

    /// Waits until the MCP server of a new tool, if it has one, has registered it.
    async fn wait_for_own_server(&self, name: &str) -> Result<(), String> {
        let Some(server) = self.hub.source(name) else { return Ok(()) };
        let first_attempt = async {
            while self.hub.get(name).is_none() && server.info().status.is_starting() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(CONNECT_WAIT, first_attempt).await;
        if self.hub.get(name).is_some() {
            return Ok(());
        }
        let info = server.info();
        let reason = info.tools.into_iter().find_map(|tool| tool.reason).or(info.status.last_error);
        Err(format!("its MCP server does not offer it: {}", reason.as_deref().unwrap_or("it does not answer")))
    }

    /// Builds a tool requested over the API, under the current config.
    pub(super) fn tool_builder(&self, name: &str, request: &Value) -> Result<ToolBuilder, ToolChangeError> {
        let hosts = &self.loaded().config.server.tool_hosts;
        api_tools::build(name, request, hosts, |base| self.hub.get(base).is_some())
    }

    /// The stored definition of a tool.
    async fn stored_tool(&self, name: &str) -> Result<Option<Value>, ToolChangeError> {
        definitions::load_one(&self.backend(), Section::Tools, name)
            .await
            .map_err(|error| ToolChangeError::Store(error.to_string()))
    }

    async fn apply_change(&self, change: HubChange) -> Result<(), ToolChangeError> {
        let changed = self.hub.apply(change).await;
        changed.map(drop).map_err(|error| ToolChangeError::Refused(error.to_string()))
    }

    /// Stores what the hub has already applied. If the store fails, the hub's change is undone.
    async fn persist_tool(
        &self,
        name: &str,
        request: Option<&Value>,
        before: Option<Value>,
    ) -> Result<(), ToolChangeError> {
        let Err(error) = definitions::save(&self.backend(), Section::Tools, name, request).await else { return Ok(()) };
        self.undo(name, before).await;
        Err(ToolChangeError::Store(error.to_string()))
    }

    /// Restores the tool of the definition from before, if there was one.
    async fn undo(&self, name: &str, before: Option<Value>) {
        let previous = before.map(|before| self.tool_builder(name, &before)).transpose();
        let undone = match previous {
            Ok(Some(tool)) => self.apply_change(HubChange::tools_only().put(tool)).await,
            Ok(None) => self.apply_change(HubChange::tools_only().remove(name)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = undone {
            tracing::error!(tool = name, %error, "cannot undo the change of a tool; it differs from its stored definition until the next restart");
        }
    }

    /// Removes a tool from the hub and from the store.
    pub(super) async fn delete_tool(&self, name: &str) -> Result<(), ToolChangeError> {
        let _guard = self.reload_lock.lock().await;
        if self.loaded().config.tools.contains_key(name) {
            return Err(ToolChangeError::Configured);
        }
        let before = self.stored_tool(name).await?;
        if before.is_none() && self.hub.get(name).is_none() {
            // It is the name of an MCP server in the config.
            return Err(ToolChangeError::Configured);
        }
        self.apply_change(HubChange::tools_only().remove(name)).await?;
        self.persist_tool(name, None, before).await
    }
}
