//! Resolves the config of one tool of an MCP server.
//!
//! In: the raw keys. Out: plain values that can be compared. A tool with a `server_url` has a server of its own; one with a `server`
//! is added to the plan of that server.

use toolhub_core::ToolBuilder;

use super::{
    ToolPlan,
    mcp::{self, deny_read_only},
    rest::{self, RestPlan},
};
use crate::{
    config::{
        Diagnostics, KeyPath, Problem,
        raw::{Annotations, INAPPLICABLE_CONNECTION_KEYS, Rest, ToolConfig},
    },
    mcp::{McpServer, NamedToolSettings},
};

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpToolPlan {
    server: Server,
    /// Its name at the server.
    tool: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Server {
    /// A section of the config.
    Named(String),
    /// An address that offers only this tool.
    Address(Box<RestPlan>),
}

/// The keys of an address; they belong to the section of a server.
const ADDRESS_KEYS: [&str; 5] = ["headers", "auth", "allow_hosts", "connection", "ca_file"];

/// Resolves the tool; `None` if its server is missing or ambiguous.
pub(super) fn resolve(
    name: &str,
    config: &ToolConfig,
    at: &KeyPath,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<McpToolPlan> {
    let server = match (&config.server, &config.server_url) {
        (Some(_), Some(_)) => {
            let message = "`server` and `server_url` exclude each other";
            diagnostics.report(&at.key("server_url"), message, "keep one of `server` and `server_url`");
            return None;
        }
        (None, None) => {
            let help = "add server = \"NAME\" for a section [mcp_servers.NAME], or server_url = \"https://…\"";
            diagnostics.report(at, "the tool has neither `server` nor `server_url`", help);
            return None;
        }
        (Some(server), None) => {
            for key in ADDRESS_KEYS.iter().filter(|key| diagnostics.is_set(&at.key(key))).collect::<Vec<_>>() {
                let message = format!("`{key}` belongs to the server, not to its tool");
                diagnostics.report(&at.key(key), message, format!("move it to [mcp_servers.{server}]"));
            }
            Server::Named(server.clone())
        }
        (None, Some(url)) => Server::Address(Box::new(address(url, config, at, diagnostics))),
    };
    Some(McpToolPlan { server, tool: config.tool.clone().unwrap_or_else(|| name.to_owned()) })
}

fn address(url: &str, config: &ToolConfig, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> RestPlan {
    let request = Rest {
        url: Some(url.to_owned()),
        headers: config.rest.headers.clone(),
        auth: config.rest.auth.clone(),
        allow_hosts: config.rest.allow_hosts.clone(),
        connection: config.rest.connection.clone(),
        ca_file: config.rest.ca_file.clone(),
        ..Rest::default()
    };
    for (key, instead) in INAPPLICABLE_CONNECTION_KEYS {
        let at = at.key("connection").key(key);
        if diagnostics.is_set(&at) {
            let message = format!("`{key}` of a connection does not apply to MCP servers");
            diagnostics.report(&at, message, format!("remove it, or set `{instead}` of the tool"));
        }
    }
    let plan = rest::resolve_server(&request, "server_url", at, diagnostics);
    mcp::check_arguments(&plan, &at.key("server_url"), diagnostics);
    plan
}

impl McpToolPlan {
    /// The server in the config; `None` if it has one of its own.
    pub(super) fn server(&self) -> Option<&str> {
        match &self.server {
            Server::Named(name) => Some(name),
            Server::Address(_) => None,
        }
    }

    pub(super) fn obstacles(&self, at: &KeyPath) -> Vec<Problem> {
        match &self.server {
            Server::Named(_) => Vec::new(),
            Server::Address(address) => address.obstacles(at),
        }
    }

    pub(super) fn allow_hosts(&mut self, hosts: &[String]) {
        if let Server::Address(address) = &mut self.server {
            address.allow_hosts(hosts);
        }
    }

    /// The tool with a server of its own; `None` if its server is another.
    pub(super) fn single_tool(&self, name: &str, plan: &ToolPlan, is_offline: bool) -> Option<ToolBuilder> {
        let Server::Address(address) = &self.server else { return None };
        let server = McpServer::from_request(name, address.request());
        let server = if is_offline { server.disabled() } else { server };
        server.named_tool(name.to_owned(), self.settings(plan)).only_named_tools().ok()
    }

    /// How its server offers it.
    pub(super) fn settings(&self, plan: &ToolPlan) -> NamedToolSettings {
        let Annotations { read_only, idempotent, .. } = plan.overrides.annotations;
        let (mut overrides, parameters) = (plan.overrides.clone(), plan.parameters.clone());
        // The server may deny these two.
        overrides.annotations.read_only = read_only.filter(|value| !value);
        overrides.annotations.idempotent = idempotent.filter(|value| !value);
        let refine = move |tool: ToolBuilder| {
            let mut is_read_only = false;
            let mut tool = overrides.apply(deny_read_only(tool, &overrides.annotations)).annotations(|own| {
                is_read_only = own.read_only;
            });
            if !is_read_only {
                tool = tool.policy(|own| own.cache = None);
            }
            match &parameters {
                Some(schema) => tool.parameters(schema.clone()),
                None => tool,
            }
        };
        NamedToolSettings {
            tool: self.tool.clone(),
            read_only: read_only == Some(true),
            idempotent: idempotent == Some(true),
            refine: std::sync::Arc::new(refine),
        }
    }
}
