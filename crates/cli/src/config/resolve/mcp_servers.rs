//! Resolves `[mcp_servers.NAME]`: each server by the library's rules, and the names of its tools among all others.
//!
//! In: the raw sections, and the tools that the config defines. Out: plans that can be compared. No server is started or asked here, so
//! which tools it has is not known.

use std::{collections::BTreeMap, sync::LazyLock};

use toolhub::{
    command::Guard,
    config::{McpServerConfig, McpServerPlan, ToolPlan},
};

use super::{
    super::{suggest::closest, tree::Path},
    Diagnostics, Tools,
};

/// The servers as written, by name.
pub(super) type RawServers = BTreeMap<String, McpServerConfig>;

/// The servers, by name. A reload does not restart a server whose plan is equal.
pub(crate) type McpServers = BTreeMap<String, McpServerPlan>;

/// The guard process of programs: this binary.
pub(crate) static GUARD: LazyLock<Option<Guard>> = LazyLock::new(|| {
    let guard = Guard::this_program();
    if let Err(error) = &guard {
        tracing::warn!(
            %error,
            "programs run without a guard process; their child processes may survive a crash of the hub"
        );
    }
    guard.ok()
});

pub(super) fn resolve(raw: &RawServers, tools: &Tools, diagnostics: &mut Diagnostics<'_>) -> McpServers {
    let mut servers = McpServers::new();
    for (name, server) in raw {
        let at = Path::of(["mcp_servers", name]);
        if let Some(plan) = server.plan(name, &at, diagnostics) {
            servers.insert(name.clone(), plan);
        }
        check_prefix(name, raw, tools, diagnostics);
    }
    for (name, plan) in tools.iter().filter_map(|(name, tool)| Some((name, tool.plan()?))) {
        add_tool(name, plan, raw, &mut servers, diagnostics);
    }
    servers
}

/// Adds a tool of `[tools]` to the server that it names.
fn add_tool(
    name: &str,
    plan: &ToolPlan,
    raw: &RawServers,
    servers: &mut McpServers,
    diagnostics: &mut Diagnostics<'_>,
) {
    let at = Path::of(["tools", name]);
    let Some(server) = plan.mcp_server() else {
        if plan.has_own_mcp_server() && raw.contains_key(name) {
            let message = format!("`{name}` is both a tool with its own MCP server and a server in [mcp_servers]");
            diagnostics.report(&at, message, "rename one of them, or use `server` instead of `server_url`");
        }
        return;
    };
    match raw.get(server) {
        None => {
            let close = closest(server, raw.keys().map(String::as_str));
            let help =
                close.map_or_else(|| format!("add [mcp_servers.{server}]"), |close| format!("did you mean {close:?}?"));
            diagnostics.report(&at.key("server"), format!("there is no MCP server named `{server}`"), help);
        }
        Some(section) if !section.enabled => {
            let message = format!("the MCP server `{server}` is not enabled");
            diagnostics.report(
                &at.key("server"),
                message,
                format!("enable [mcp_servers.{server}], or disable the tool"),
            );
        }
        // A server with problems has no plan.
        Some(_) => drop(servers.get_mut(server).map(|server| server.add_tool(name, plan.clone()))),
    }
}

/// Reports a prefix that another server has too, or that a tool of the config has in its name.
fn check_prefix(name: &str, raw: &RawServers, tools: &Tools, diagnostics: &mut Diagnostics<'_>) {
    let prefix = raw[name].tool_prefix(name);
    let at = Path::of(["mcp_servers", name]);
    let is_same = |(other, server): &(&String, &McpServerConfig)| server.tool_prefix(other) == prefix;
    if let Some((first, _)) = raw.iter().take_while(|(other, _)| *other != name).find(is_same) {
        let message = match prefix {
            "" => format!("the tools of `{first}` and `{name}` both have no prefix"),
            prefix => format!("the tools of `{first}` and `{name}` have the same prefix, `{prefix}`"),
        };
        diagnostics.report(&at, message, "set another `prefix` for one of them");
    }
    if prefix.is_empty() {
        return;
    }
    let start = format!("{prefix}__");
    if let Some(tool) = tools.keys().find(|tool| tool.starts_with(&start)) {
        let message = format!("the tool `{tool}` has the prefix of the tools of the MCP server `{name}`");
        diagnostics.report(&at, message, "rename the tool, or set another `prefix` for the server");
    }
}

/// The server that may have a tool of this name: the one with the longest matching prefix.
pub(super) fn server_of<'a>(tool: &str, raw: &'a RawServers) -> Option<(&'a String, &'a McpServerConfig)> {
    let matching = raw.iter().filter(|(name, server)| server.may_have_tool(name, tool));
    matching.max_by_key(|(name, server)| server.tool_prefix(name).len())
}
