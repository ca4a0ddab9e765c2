//! MCP servers added and removed over the API: changed in the hub and stored, or neither.
//!
//! In: a name and a definition. Out: the changed hub and store, or why not. `api_servers` builds the definitions.

use std::sync::Arc;

use serde_json::Value;
use toolhub::{HubChange, ToolSource, mcp, server::ToolChangeError};

use super::Daemon;
use crate::{
    config,
    serve::{
        api_definitions::{self as definitions, Section},
        api_servers,
    },
};

impl Daemon {
    /// Connects to the MCP servers of a hub that was opened without them.
    pub(crate) async fn connect_mcp_servers(&self) {
        let (loaded, store) = (self.loaded(), self.backend());
        let load = async |section| match definitions::load_all(&store, section).await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::warn!(%error, "what was added over the API is not available");
                Default::default()
            }
        };
        for (name, plan) in api_servers::merge(&loaded.config, &load(Section::McpServers).await) {
            self.hub.remove_source(&name).await;
            if let Some(source) = config::mcp_source(&name, &plan) {
                let _ = self.hub.add_source(Arc::new(source));
            }
        }
        let configured = loaded.config.tools.iter().filter(|(_, tool)| tool.has_own_mcp_server());
        let configured = configured.filter_map(|(name, tool)| tool.builder(name));
        let stored = load(Section::Tools).await;
        let stored = stored.iter().filter(|(name, _)| self.hub.source(name).is_some());
        let stored = stored.filter_map(|(name, request)| self.tool_builder(name, request).ok());
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
        if let Err(error) = definitions::save(&self.backend(), Section::McpServers, name, Some(request)).await {
            self.hub.remove_source(name).await;
            return Err(ToolChangeError::Store(error.to_string()));
        }
        Ok(())
    }

    /// Removes a server that was added over the API, with its approved definitions.
    pub(super) async fn remove_server(&self, name: &str) -> Result<(), ToolChangeError> {
        let _guard = self.reload_lock.lock().await;
        let store = self.backend();
        let unavailable = |error: toolhub::backend::StoreError| ToolChangeError::Store(error.to_string());
        let stored = definitions::load_one(&store, Section::McpServers, name).await.map_err(unavailable)?;
        if stored.is_none() || self.loaded().config.mcp_servers.contains_key(name) {
            return Err(ToolChangeError::Configured);
        }
        definitions::save(&store, Section::McpServers, name, None).await.map_err(unavailable)?;
        self.hub.remove_source(name).await;
        if let Err(error) = mcp::forget_server(&store, name, self.hub.now()).await {
            tracing::warn!(server = name, %error, "the approved definitions of a removed MCP server stay in the store");
        }
        Ok(())
    }
}
