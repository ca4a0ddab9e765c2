//! Tools registered over the API.
//!
//! In: a tool as JSON. Out: tool builders. `api_requests` checks it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolhub::{ToolBuilder, server::ToolChangeError};

use super::{
    api_definitions::{Definition, Definitions, Section},
    api_requests,
};
use crate::config::{self, Config};

/// Keys that are only allowed in a config file, and what to do instead.
const FILE_ONLY_KEYS: [(&str, &str); 8] = [
    ("command", PROGRAM_HELP),
    ("args", PROGRAM_HELP),
    ("env", PROGRAM_HELP),
    ("pass_env", PROGRAM_HELP),
    ("cwd", PROGRAM_HELP),
    ("allow_hosts", "set `tool_hosts` in [server] of the config; it applies to all tools registered over the API"),
    ("function_path", "a tool without an implementation can only be defined in the config file"),
    ("ca_file", "define the tool in the config file"),
];
const PROGRAM_HELP: &str = "commands cannot be registered over the API; define the tool in the config file";

/// Builds a tool from a request. It may depend on tools that `others` knows.
///
/// `hosts` may be reached although their addresses are private or local.
///
/// # Errors
/// What is wrong with the request, for the client.
pub(super) fn build(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<ToolBuilder, ToolChangeError> {
    parse(name, request, hosts, others).and_then(|tool| to_builder(name, &tool))
}

/// Builds a new tool from a request, like [`build`].
///
/// # Errors
/// What is wrong with the request, for the client.
pub(super) fn build_new(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<ToolBuilder, ToolChangeError> {
    let tool = parse(name, request, hosts, others)?;
    api_requests::check_obstacles(&tool.obstacles(name))?;
    to_builder(name, &tool)
}

fn to_builder(name: &str, tool: &config::Tool) -> Result<ToolBuilder, ToolChangeError> {
    tool.builder(name).ok_or_else(unknown_builtin)
}

fn unknown_builtin() -> ToolChangeError {
    ToolChangeError::Refused("there is no such builtin".into())
}

fn parse(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<config::Tool, ToolChangeError> {
    let load = |keys: &Map<String, Value>| config::load_tool(name, keys, others);
    let mut tool = api_requests::load((Section::Tools, name), request, &FILE_ONLY_KEYS, load)?;
    tool.allow_hosts(hosts);
    Ok(tool)
}

/// Builds all stored tools that can be built beside those of the config. A tool with a missing dependency is skipped, and so
/// are its dependents: a server that starts without a tool is better than one that does not start. If it is not connecting, tools of MCP
/// servers never appear.
pub(super) fn build_all(stored: &Definitions, config: &Config, is_connecting: bool) -> Vec<ToolBuilder> {
    let unconfigured = stored.iter().filter(|(name, _)| !config.tools.contains_key(*name));
    let mut remaining: BTreeMap<&String, &Definition> = unconfigured.collect();
    loop {
        let others = |base: &str| config.may_have_tool(base) || remaining.keys().any(|name| *name == base);
        let (mut built, mut skipped) = (Vec::new(), Vec::new());
        for (name, Definition { request, .. }) in &remaining {
            let tool = parse(name, request, &config.server.tool_hosts, others);
            let build = if is_connecting { config::Tool::builder } else { config::Tool::offline_builder };
            match tool.and_then(|tool| build(&tool, name).ok_or_else(unknown_builtin)) {
                Ok(tool) => built.push(tool),
                Err(error) => {
                    tracing::warn!(tool = name, %error, "skipped a tool registered over the API");
                    skipped.push(*name);
                }
            }
        }
        if skipped.is_empty() {
            return built;
        }
        remaining.retain(|name, _| !skipped.contains(name));
    }
}
