//! The config `toolhub.toml`: loading, validation, resolution, display and the starter files.
//!
//! In: files, variables and flags. Out: a `Config` of plain values, or all problems together, each with its location and a
//! fix. The stages, in order: `load` finds files and merges the layers (`tree`, `environment`, `variables`, `overlay`), `check`
//! validates them against the schema generated from the structs in `raw`, and `resolve` computes the effective values. `hub`
//! builds a hub from them, `change` compares two configs; `show`, `init` and `commands` serve the command line.

mod change;
mod check;
pub(crate) mod commands;
mod dry_run;
mod environment;
mod foreign_mcp;
mod hub;
mod init;
mod load;
mod mcp_json;
mod node;
mod old_registry;
mod overlay;
mod planned_keys;
mod problem;
mod raw;
mod renamed_keys;
mod resolve;
mod rule_arguments;
mod salvage;
mod schema;
mod secret_text;
mod shape;
mod show;
mod source_file;
mod suggest;
mod toml_text;
mod tree;
mod variable_names;
mod variables;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use toolhub::{server::McpSettings, status::StatusSettings};

pub(crate) use self::{
    dry_run::{dry_run, find_obstacles},
    environment::KEY_PREFIX,
    foreign_mcp::{
        ForeignConfig, LiteralSecrets, parse as parse_foreign_mcp, read as read_foreign_mcp, strip_json_comments,
    },
    hub::mcp_source,
    load::{FILE_NAME, FileRequirement, LoadOptions, LoadedConfig, load, load_partially, load_server, load_tool},
    node::{command_info, config_digest, node_info},
    old_registry::{Converted as ConvertedRegistry, convert as convert_registry},
    problem::{Problem, Problems, RenderStyle, render},
    raw::{AuthMode, DEMO_SCRIPT, LogFormat, LogLevel, OpenApi},
    show::{masked_values, values_with_origins},
    suggest::closest,
    toml_text::{toml_key, toml_string},
    variable_names::{ExistingVariables, referenced_variables},
};
pub(crate) use resolve::{
    Agent, Agents, Alert, ApiKey, Auth, Backend, Execution, Llm, McpServers, OpenStoreError, Policies, Provider,
    RedisServer, Scheduler, Server, State, Store, StoreHandle, Telemetry, Threads, Tool, Tools,
};

/// The effective config. Each section can be compared with that of another config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) auth: Auth,
    pub(crate) store: Store,
    pub(crate) state: State,
    pub(crate) status: StatusSettings,
    pub(crate) scheduler: Scheduler,
    pub(crate) threads: Threads,
    pub(crate) policies: Policies,
    pub(crate) tools: Tools,
    pub(crate) mcp_servers: McpServers,
    pub(crate) mcp_endpoint: McpSettings,
    pub(crate) agents: Agents,
    /// Warnings for the operator, such as operations of an import that became no tools.
    pub(crate) warnings: Vec<String>,
    pub(crate) telemetry: Telemetry,
    pub(crate) alerts: Vec<Alert>,
    /// Values of the keys that need a restart to change.
    restart_only: BTreeMap<String, serde_json::Value>,
}

/// Writes the demo's config into a folder and returns its path. `upstream` is the URL of the demo's HTTP service, `program`
/// this binary.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_demo_config(folder: &Path, upstream: &str, program: &Path) -> io::Result<PathBuf> {
    let file = folder.join(load::FILE_NAME);
    let more = include_str!("config/starter/demo_more.toml");
    let program = toml::Value::from(program.display().to_string()).to_string();
    let more = more.replace("UPSTREAM", upstream).replace("\"PROGRAM\"", &program);
    std::fs::write(&file, format!("{}{more}", init::Starter::Demo.text()))?;
    Ok(file)
}

#[cfg(test)]
mod tests;
