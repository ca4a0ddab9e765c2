//! Tools of a server with names and settings of their own.
//!
//! In: the name of a tool at its server, and what is different here. Out: a server that offers it too, or offers nothing else.

use std::{collections::BTreeMap, sync::Arc};

use toolhub_core::{Kind, ToolBuilder, ToolName};

use super::{McpServer, McpServerError, Refine};
use crate::mcp::catalog::NamedTool;

/// A tool with a name of its own.
#[derive(Clone)]
pub(crate) struct NamedToolSettings {
    /// Its name at the server.
    pub(crate) tool: String,
    /// Whether the owner says that it changes nothing, and that it may be called twice.
    pub(crate) read_only: bool,
    pub(crate) idempotent: bool,
    pub(crate) refine: Refine,
}

impl NamedToolSettings {
    /// Whether the owner says the same about the effects of the tool.
    pub(crate) fn has_hints_of(&self, other: &Self) -> bool {
        (self.read_only, self.idempotent) == (other.read_only, other.idempotent)
    }
}

impl McpServer {
    /// Offers a tool of the server under a name of its own too, without the prefix, changed by `change`.
    pub fn tool_as(
        self,
        name: impl Into<String>,
        tool: impl Into<String>,
        change: impl Fn(ToolBuilder) -> ToolBuilder + Send + Sync + 'static,
    ) -> Self {
        let settings =
            NamedToolSettings { tool: tool.into(), read_only: false, idempotent: false, refine: Arc::new(change) };
        self.named_tool(name.into(), settings)
    }

    pub(crate) fn named_tool(mut self, name: String, settings: NamedToolSettings) -> Self {
        self.named_tools.insert(name, settings);
        self
    }

    /// One tool of the server, under the server's name here; no other tool is offered. For
    /// [`ToolHub::register_mcp`](toolhub_core::ToolHub::register_mcp). It appears when the server is connected.
    ///
    /// ```
    /// use toolhub_connect::mcp::McpServer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let search = McpServer::http("search", "https://mcp.example.com/mcp")
    ///     .single_tool("web_search", |tool| tool.description("Searches the web.").read_only())?;
    /// # drop(search); // `hub.register_mcp(search)` adds it to a running hub
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a setting is not valid.
    pub fn single_tool(
        self,
        tool: impl Into<String>,
        change: impl Fn(ToolBuilder) -> ToolBuilder + Send + Sync + 'static,
    ) -> Result<ToolBuilder, McpServerError> {
        let name = self.name.clone();
        self.tool_as(name, tool, change).only_named_tools()
    }

    /// The tool of this server that has its name; no other is offered.
    pub(crate) fn only_named_tools(mut self) -> Result<ToolBuilder, McpServerError> {
        self.only_named = true;
        Ok(ToolBuilder::from_source(Kind::Mcp, self.source()?))
    }
}

/// The tools of a server with names of their own.
pub(in crate::mcp) struct SingleTools {
    /// For the catalog.
    pub(in crate::mcp) names: Vec<NamedTool>,
    /// The settings, by name.
    pub(in crate::mcp) settings: BTreeMap<String, NamedToolSettings>,
}

impl SingleTools {
    pub(in crate::mcp) fn new(settings: BTreeMap<String, NamedToolSettings>) -> Result<Self, McpServerError> {
        let names = settings.iter().map(|(name, settings)| {
            let name = ToolName::new(name.as_str()).map_err(|_| McpServerError::ToolName(name.clone()))?;
            let NamedToolSettings { tool, read_only, idempotent, .. } = settings;
            Ok(NamedTool { name, original_name: tool.clone(), read_only: *read_only, idempotent: *idempotent })
        });
        let names = names.collect::<Result<_, McpServerError>>()?;
        Ok(Self { names, settings })
    }

    /// The settings of the tool with these names here and at the server.
    pub(in crate::mcp) fn find(&self, name: &ToolName, original_name: &str) -> Option<&NamedToolSettings> {
        self.settings.get(name.as_str()).filter(|settings| settings.tool == original_name)
    }
}
