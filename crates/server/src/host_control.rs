//! What only the host program around the server can do: read and reload its config, make backups, change tools.

use std::{
    error::Error,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_core::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinError;
use toolhub_core::StoreRole;

/// The host program around the server, as far as the server needs it.
pub trait HostControl: Send + Sync + 'static {
    /// The effective config; secrets are masked.
    fn config(&self) -> Value;

    /// Every value of the effective config, by key, with where it comes from; secrets are masked. `None` if the program does not know.
    fn config_values(&self) -> Option<Vec<ConfigValue>> {
        None
    }

    /// The config file, if there is one. Commands on the same machine find the server of their config by it.
    fn config_file(&self) -> Option<&Path> {
        None
    }

    /// Reloads the config and applies what changed; an invalid one changes nothing.
    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>>;

    /// Settings that have changed since the start and take effect only after a restart.
    fn restart_pending(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes a backup of the hub's store, or of the state manager's if that is another one.
    fn backup(&self, store: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>>;

    /// The toolsets of the config, by name.
    fn toolsets(&self) -> Vec<NamedToolset> {
        Vec::new()
    }

    /// Waits until the [toolsets](Self::toolsets) change after this method was called. By default they never do.
    fn toolsets_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Creates and registers a tool from a definition received through the API: an object with its `name` and the
    /// fields of its kind. Commands are never accepted this way.
    fn create_tool(&self, tool: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        drop(tool);
        Box::pin(async { Err(ToolChangeError::Refused("this program accepts no tools through the API".into())) })
    }

    /// Replaces a tool that was created through the API.
    fn replace_tool<'a>(&'a self, name: &'a str, tool: Value) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        let _ = (name, tool);
        Box::pin(async { Err(ToolChangeError::Configured) })
    }

    /// Removes a tool that was created through the API.
    fn remove_tool<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        let _ = name;
        Box::pin(async { Err(ToolChangeError::Configured) })
    }

    /// Adds an MCP server from a definition received through the API: an object with its `name`, `url` and other settings. Programs are
    /// never accepted this way.
    fn add_mcp_server(&self, server: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        drop(server);
        Box::pin(async { Err(ToolChangeError::Refused("this program accepts no MCP servers through the API".into())) })
    }

    /// Removes an MCP server that was added through the API.
    fn remove_mcp_server<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        let _ = name;
        Box::pin(async { Err(ToolChangeError::Configured) })
    }
}

/// A value of the config, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigValue {
    /// The full path of the key, such as `server.port`.
    pub key: String,
    /// The value; a secret is masked.
    pub value: Value,
    /// What kind of source sets it.
    pub source: ConfigSource,
    /// The source in words: `toolhub.toml:12`, `env TOOLHUB__SERVER__PORT`, `flag --set server.port` or `default`.
    pub origin: String,
}

/// What sets a value of the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfigSource {
    /// Nothing: it is the default.
    Default,
    /// A config file.
    File,
    /// An environment variable, or an env file.
    Environment,
    /// A flag of the command.
    Flag,
}

/// A toolset of the config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedToolset {
    /// The name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Names of tools, and globs over them.
    pub tools: Vec<String>,
    /// The agents that are offered them.
    pub agents: Vec<String>,
}

/// Why a tool or an MCP server could not be created, replaced or removed through the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolChangeError {
    /// A tool of this name exists.
    #[error("a tool of this name exists already")]
    NameTaken,
    /// The tool is defined in the config or in code, which take precedence.
    #[error("the tool is defined in the config, which takes precedence")]
    Configured,
    /// Another node changed the tool at the same time.
    #[error("the tool was changed at the same time on another node")]
    Conflict,
    /// The definition is not valid; the text is for the client.
    #[error("{0}")]
    Refused(String),
    /// The store refused the change; the text is for operators. Nothing was changed.
    #[error("the store is unavailable: {0}")]
    Store(String),
}

/// Why the host program failed, in words for the client. They contain no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostControlError {
    /// The config is not valid. These are all of its problems; nothing was changed.
    #[error("the config has {}", count_problems(.0))]
    Config(Vec<ConfigProblem>),
    /// The operation is not supported, such as a backup of a store in memory.
    #[error("{0}")]
    Unsupported(String),
    /// The operation failed.
    #[error("{0}")]
    Failed(#[from] Box<dyn Error + Send + Sync>),
}

/// One problem of a config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where, for people: `toolhub.toml:12:3`, or the name of a variable.
    pub location: String,
    /// The full path of the key, such as `server.port`; empty if no key is to blame.
    pub key: String,
    /// What is wrong.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Makes a change through the host program. It is made to its end, also if the request that asked for it is dropped.
pub(crate) async fn run_to_end<T: Send + 'static>(
    host: &Arc<dyn HostControl>,
    change: impl for<'a> FnOnce(&'a dyn HostControl) -> BoxFuture<'a, T> + Send + 'static,
) -> T {
    let host = host.clone();
    let changing = tokio::spawn(async move { change(&*host).await });
    match changing.await.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime ends.
        Err(Err(_)) => std::future::pending().await,
    }
}

fn count_problems(problems: &[ConfigProblem]) -> String {
    match problems.len() {
        1 => "a problem".into(),
        count => format!("{count} problems"),
    }
}

/// What a reload changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReloadReport {
    /// Tools that were added.
    pub added: Vec<String>,
    /// Tools whose definition changed.
    pub replaced: Vec<String>,
    /// Tools that were removed.
    pub removed: Vec<String>,
    /// Other sections of the config that changed and are in force, such as `policy`.
    pub sections: Vec<String>,
    /// Settings that changed and take effect only after a restart.
    pub needs_restart: Vec<String>,
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// The path of the file, or of the folder for states in JSON files.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// What it is a backup of.
    pub store: StoreRole,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 digest of its content.
    pub sha256: String,
}
