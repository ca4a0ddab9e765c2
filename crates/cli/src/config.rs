//! The config `toolhub.toml`: read, checked, resolved, shown, and written for the first time.
//!
//! In: files, variables and flags. Out: a `Config` of plain values, or all problems at once, each with its place and what to
//! do. One way through: `load` finds files and lays layers over each other (`tree`, `environment`, `variables`, `overlay`),
//! `check` holds them to the schema, which is made of the structs in `raw`, and `resolve` works out what holds. `hub` makes
//! a hub of that, `change` compares two; `show`, `init` and `commands` are for people.

mod change;
mod check;
mod closest;
pub(crate) mod commands;
mod dry_run;
mod environment;
mod hub;
mod init;
mod load;
mod overlay;
mod planned_keys;
mod problem;
mod raw;
mod resolve;
mod salvage;
mod schema;
mod shape;
mod show;
mod tree;
mod variables;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use toolhub::status::StatusSettings;

pub(crate) use self::{
    closest::closest,
    dry_run::dry_run,
    load::{FILE_NAME, FileRequirement, LoadOptions, LoadedConfig, load, load_tool},
    problem::{Problem, Problems, RenderStyle, render},
    raw::{Level, LogFormat, Mode},
    show::masked_values,
};
pub(crate) use resolve::{
    Agent, Agents, ApiKey, Auth, Backend, Execution, Llm, OpenStoreError, Policies, Provider, Scheduler, Server, State,
    Store, StoreHandle, Telemetry, Threads, Tools,
};

/// What holds. Each section can be compared with that of another config.
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
    pub(crate) agents: Agents,
    /// What whoever runs it should know although nothing is wrong, such as operations that became no tools.
    pub(crate) warnings: Vec<String>,
    pub(crate) telemetry: Telemetry,
    /// The keys that hold until a restart, as they are written.
    restart_only: BTreeMap<String, serde_json::Value>,
}

/// Writes the config of the demo into a folder; answers which file that is. `upstream` is the address of its service, `program` this
/// binary.
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
