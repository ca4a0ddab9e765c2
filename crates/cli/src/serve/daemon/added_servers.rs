//! MCP servers added and removed over the API: changed in the hub and stored, or neither.
//!
//! In: a name and a definition. Out: the changed hub and store, or why not. `api_servers` builds the definitions.

use std::sync::Arc;

use serde_json::Value;
use toolhub::{HubChange, ToolSource, backend::StoreError, mcp, server::ToolChangeError};

use super::Daemon;
use crate::{
    config,
    serve::{
        api_definitions::{self as definitions, Definition, Section, Stored},
        api_servers,
    },
};

impl Daemon {
    /// Connects to the MCP servers of a hub that was opened without them.
    pub(crate) async fn connect_mcp_servers(&self) {
        let (loaded, store) = (self.loaded(), self.backend());
        let stored = definitions::load_all(&store, self.hub.now()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what was added over the API is not available");
            Stored::default()
        });
        for (name, plan) in api_servers::merge(&loaded.config, &stored.servers) {
            self.hub.remove_source(&name).await;
            if let Some(source) = config::mcp_source(&name, &plan) {
                let _ = self.hub.add_source(Arc::new(source));
            }
        }
        let configured = loaded.config.tools.iter().filter(|(_, tool)| tool.has_own_mcp_server());
        let configured = configured.filter_map(|(name, tool)| tool.builder(name));
        let stored = stored.tools.iter().filter(|(name, _)| self.hub.source(name).is_some());
        let stored = stored.filter_map(|(name, definition)| self.tool_builder(name, &definition.request).ok());
        let change = configured.chain(stored).fold(HubChange::tools_only(), HubChange::put);
        if let Err(error) = self.hub.apply(change).await {
            tracing::warn!(%error, "tools of MCP servers are not available");
        }
    }

    /// Adds a server and stores it. The hub is changed first and the store last, so that a crash in between leaves the stored servers
    /// unchanged.
    pub(super) async fn add_server(&self, name: &str, request: &Value) -> Result<(), ToolChangeError> {
        let _guard = self.reload_lock.lock().await;
        let loaded = self.loaded();
        if loaded.config.mcp_servers.contains_key(name) {
            return Err(ToolChangeError::Configured);
        }
        if self.hub.source(name).is_some() {
            return Err(ToolChangeError::NameTaken);
        }
        let before = self.row_to_create(Section::McpServers, name).await?;
        let hosts = &loaded.config.server.tool_hosts;
        let plan = api_servers::build_new(name, request, hosts, |base| self.hub.get(base).is_some())?;
        let refused = |why: String| ToolChangeError::Refused(why);
        let source = config::mcp_source(name, &plan).ok_or_else(|| refused("its settings are not valid".into()))?;
        let names = source.tool_names();
        if let Some(other) =
            self.hub.sources().iter().find(|other| other.tool_names().iter().any(|it| names.contains(it)))
        {
            return Err(refused(format!("the tools of `{}` have the same prefix; set another `prefix`", other.name())));
        }
        self.hub.add_source(Arc::new(source)).map_err(|error| refused(error.to_string()))?;
        let section = Section::McpServers;
        match definitions::save(&self.backend(), (section, name), request, before, self.hub.now()).await {
            Ok(version) => {
                self.set_definition(section, name, Some(Definition { request: request.clone(), version }));
                Ok(())
            }
            Err(error) => {
                self.hub.remove_source(name).await;
                match error {
                    StoreError::Conflict { .. } => Err(self.resync(ToolChangeError::NameTaken).await),
                    error => Err(ToolChangeError::Store(error.to_string())),
                }
            }
        }
    }

    /// Removes a server that was added over the API, with its approved definitions.
    pub(super) async fn remove_server(&self, name: &str) -> Result<(), ToolChangeError> {
        let _guard = self.reload_lock.lock().await;
        let store = self.backend();
        let unavailable = |error: StoreError| ToolChangeError::Store(error.to_string());
        let stored = self.stored_row(Section::McpServers, name).await?;
        if stored.is_none() || self.loaded().config.mcp_servers.contains_key(name) {
            return Err(ToolChangeError::Configured);
        }
        definitions::remove(&store, (Section::McpServers, name), self.hub.now()).await.map_err(unavailable)?;
        self.hub.remove_source(name).await;
        self.set_definition(Section::McpServers, name, None);
        if let Err(error) = mcp::forget_server(&store, name, self.hub.now()).await {
            tracing::warn!(server = name, %error, "the approved definitions of a removed MCP server stay in the store");
        }
        Ok(())
    }
}
