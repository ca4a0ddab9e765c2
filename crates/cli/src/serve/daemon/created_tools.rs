//! Tools created, replaced and removed over the API: changed in the hub and stored, or neither.
//!
//! In: a name and a definition. Out: the changed hub and store, or why not. `api_tools` builds the definitions.

use std::time::Duration;

use serde_json::Value;
use toolhub::{HubChange, ToolBuilder, backend::StoreError, server::ToolChangeError};

use super::Daemon;
use crate::serve::{
    api_definitions::{self as definitions, Definition, Section},
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
        let before = match exists {
            true => self.stored_row(Section::Tools, name).await?.map(|row| row.version),
            false => self.row_to_create(Section::Tools, name).await?,
        };
        self.apply_change(HubChange::tools_only().put(tool)).await?;
        if let Err(why) = self.wait_for_own_server(name).await {
            self.undo(name).await;
            return Err(ToolChangeError::Refused(why));
        }
        let section = Section::Tools;
        match definitions::save(&self.backend(), (section, name), request, before, self.hub.now()).await {
            Ok(version) => {
                self.set_definition(section, name, Some(Definition { request: request.clone(), version }));
                Ok(())
            }
            Err(error) => {
                self.undo(name).await;
                match error {
                    StoreError::Conflict { .. } if exists => Err(self.resync(ToolChangeError::Conflict).await),
                    StoreError::Conflict { .. } => Err(self.resync(ToolChangeError::NameTaken).await),
                    error => Err(ToolChangeError::Store(error.to_string())),
                }
            }
        }
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

    async fn apply_change(&self, change: HubChange) -> Result<(), ToolChangeError> {
        let changed = self.hub.apply(change).await;
        changed.map(drop).map_err(|error| ToolChangeError::Refused(error.to_string()))
    }

    /// Restores the tool of the definition that was in the hub before, if there was one.
    async fn undo(&self, name: &str) {
        let known = self.definitions();
        let previous = known.tools.get(name).map(|before| self.tool_builder(name, &before.request)).transpose();
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
        let stored = self.stored_row(Section::Tools, name).await?;
        if stored.is_none() && self.hub.get(name).is_none() {
            // It is the name of an MCP server in the config.
            return Err(ToolChangeError::Configured);
        }
        self.apply_change(HubChange::tools_only().remove(name)).await?;
        if let Err(error) = definitions::remove(&self.backend(), (Section::Tools, name), self.hub.now()).await {
            self.undo(name).await;
            return Err(ToolChangeError::Store(error.to_string()));
        }
        self.set_definition(Section::Tools, name, None);
        Ok(())
    }
}
