//! MCP servers added over the API.
//!
//! In: a server as JSON. Out: its plan, checked by the rules of the config and by stricter ones: what concerns this machine (programs,
//! files, variables, private or local hosts) may only be set in its config file.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolhub::{
    config::{KeyPath, McpServerPlan},
    server::ToolChangeError,
};

use super::api_definitions::{self as definitions, Section};
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
pub(super) fn merge(config: &Config, stored: &BTreeMap<String, Value>) -> McpServers {
    let mut servers = config.mcp_servers.clone();
    for (name, request) in stored.iter().filter(|(name, _)| !config.mcp_servers.contains_key(*name)) {
        // Its tools may depend on others that are not known yet.
        match build(name, request, &config.server.tool_hosts, |_| true) {
            Ok(plan) => drop(servers.insert(name.clone(), plan)),
            Err(error) => tracing::warn!(server = name, %error, "skipped an MCP server added over the API"),
        }
    }
    servers
}

/// Builds the plan of a new server, and refuses one whose requests the address guard would refuse. A server that is stored already
/// may have such an address: the operator may have changed the config since.
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
    let obstacles: Vec<_> = plan.obstacles(&KeyPath::default()).into_iter().map(|problem| problem.message).collect();
    if !obstacles.is_empty() {
        let why = format!("{}; to allow it, add the host to `server.tool_hosts` of the config", obstacles.join("; "));
        return Err(ToolChangeError::Refused(why));
    }
    Ok(plan)
}

/// Builds the plan of a server. Its tools may depend on tools that `others` knows. `hosts` may be reached although their addresses
/// are private or local.
fn build(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<McpServerPlan, ToolChangeError> {
    let refused = |messages: Vec<String>| Err(ToolChangeError::Refused(messages.join("; ")));
    let mut server = definitions::to_config_keys(request.as_object().unwrap_or(&Map::new()));
    server.remove("name");
    let keys = FILE_ONLY_KEYS.iter().filter(|(key, _)| server.contains_key(*key));
    let mut messages: Vec<String> =
        keys.map(|(key, help)| format!("`{key}` is not accepted over the API: {help}")).collect();
    FILE_ONLY_KEYS.iter().for_each(|(key, _)| drop(server.remove(*key)));
    messages.extend(definitions::secret_references(&server).into_iter().map(|key| {
        server.remove(key);
        format!("`{key}`: {}", definitions::SECRET_REFERENCE)
    }));
    if let Some(at) = definitions::find_null(&Value::Object(server.clone())) {
        messages.push(format!("`{at}` is null, which a config cannot express; omit it, or write a value"));
        return refused(messages);
    }
    match config::load_server(name, &server, others) {
        Ok(mut plan) if messages.is_empty() => {
            plan.allow_hosts(hosts);
            Ok(plan)
        }
        Ok(_) => refused(messages),
        Err(problems) => {
            let problems = problems.iter();
            messages.extend(problems.map(|problem| definitions::format_problem(Section::McpServers, name, problem)));
            refused(messages)
        }
    }
}
