//! MCP servers added over the API.
//!
//! In: a server as JSON. Out: its plan. `api_requests` checks it.

use serde_json::{Map, Value};
use toolhub::{
    config::{KeyPath, McpServerPlan},
    server::ToolChangeError,
};

use super::{
    api_definitions::{Definition, Definitions, Section},
    api_requests,
};
use crate::config::{self, Config, McpServers};

/// Keys that are only allowed in a config file, and what to do instead.
const FILE_ONLY_KEYS: [(&str, &str); 7] = [
    ("command", PROGRAM_HELP),
    ("args", PROGRAM_HELP),
    ("env", PROGRAM_HELP),
    ("pass_env", PROGRAM_HELP),
    ("cwd", PROGRAM_HELP),
    ("roots", "folders of this machine are named in the config file; define the server there"),
    ("allow_hosts", "set `tool_hosts` in [server] of the config; it applies to all servers added over the API"),
];
const PROGRAM_HELP: &str = "programs cannot be added over the API; define the server in the config file";

/// The servers of the config, and the stored ones that can be built. The config takes precedence.
pub(super) fn merge(config: &Config, stored: &Definitions) -> McpServers {
    let mut servers = config.mcp_servers.clone();
    for (name, Definition { request, .. }) in stored.iter().filter(|(name, _)| !config.mcp_servers.contains_key(*name))
    {
        // Its tools may depend on others that are not known yet.
        match build(name, request, &config.server.tool_hosts, |_| true) {
            Ok(plan) => match servers.iter().find(|(other, theirs)| theirs.has_same_prefix(other, &plan, name)) {
                Some((other, _)) => tracing::warn!(
                    server = name,
                    other,
                    "skipped an MCP server added over the API: another one has the same prefix"
                ),
                None => drop(servers.insert(name.clone(), plan)),
            },
            Err(error) => tracing::warn!(server = name, %error, "skipped an MCP server added over the API"),
        }
    }
    servers
}

/// Builds the plan of a new server. Its tools may depend on tools that `others` knows. `hosts` may be reached although their
/// addresses are private or local.
///
/// # Errors
/// What is wrong with the request, for the client.
pub(super) fn build_new(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<McpServerPlan, ToolChangeError> {
    let plan = build(name, request, hosts, others)?;
    api_requests::check_obstacles(&plan.obstacles(&KeyPath::default()))?;
    Ok(plan)
}

fn build(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<McpServerPlan, ToolChangeError> {
    let load = |keys: &Map<String, Value>| config::load_server(name, keys, others);
    let mut plan = api_requests::load((Section::McpServers, name), request, &FILE_ONLY_KEYS, load)?;
    plan.allow_hosts(hosts);
    Ok(plan)
}
