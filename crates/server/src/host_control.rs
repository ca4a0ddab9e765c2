//! What only the program around the server can do: its config, its backups.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use futures_core::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The program around the server, as far as the server asks it for something.
pub trait HostControl: Send + Sync + 'static {
    /// The config as it holds now; secrets are masked.
    fn config(&self) -> Value;

    /// The config file, by which commands on the same machine know the server of their config; none where there is none.
    fn config_file(&self) -> Option<&Path> {
        None
    }

    /// Reads the config again and applies what changed; a bad one changes nothing.
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, HostControlError>>;

    /// Makes a backup of the store.
    fn backup(&self) -> BoxFuture<'_, Result<Backup, HostControlError>>;

    /// The toolsets of the config, by name.
    fn toolsets(&self) -> Vec<NamedToolset> {
        Vec::new()
    }

    /// Makes a tool of what came over the API: an object with its `name`, and what its kind needs. A command never comes this
    /// way. The tool is registered when this answers.
    fn create_tool(&self, tool: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        drop(tool);
        Box::pin(async { Err(ToolChangeError::Refused("this program takes no tools over the API".into())) })
    }

    /// Puts a tool in the place of one that came over the API.
    fn replace_tool<'a>(&'a self, name: &'a str, tool: Value) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        let _ = (name, tool);
        Box::pin(async { Err(ToolChangeError::Configured) })
    }

    /// Takes a tool away that came over the API.
    fn remove_tool<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        let _ = name;
        Box::pin(async { Err(ToolChangeError::Configured) })
    }
}

/// Tools that the config puts together under a name.
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

/// Why a tool was not made, changed or taken away over the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolChangeError {
    /// There is a tool of this name.
    #[error("there is a tool of this name")]
    NameTaken,
    /// The tool stands in the config or was made in code, and that wins.
    #[error("the tool stands in the config, which wins")]
    Configured,
    /// What was sent makes no tool, in words for whoever sent it.
    #[error("{0}")]
    Refused(String),
    /// It could not be kept, for a reason that is told to operators. Everything is as it was.
    #[error("the store does not answer: {0}")]
    Store(String),
}

/// Why a steward could not do it, in words for whoever asked. No secret is in them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostControlError {
    /// The config cannot be used. These are all of its problems; nothing was changed.
    #[error("the config has {}", many(.0))]
    Config(Vec<ConfigProblem>),
    /// There is nothing here that could be done, such as a backup of a store in memory.
    #[error("{0}")]
    Unsupported(String),
    /// It was tried and failed.
    #[error("{0}")]
    Failed(#[from] Box<dyn Error + Send + Sync>),
}

/// One thing that is wrong with a config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where, for people: `toolhub.toml:12:3`, or the name of a variable.
    pub location: String,
    /// The key, with the way to it: `server.port`; empty where no key is to blame.
    pub key: String,
    /// What is wrong.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
}

fn many(problems: &[ConfigProblem]) -> String {
    match problems.len() {
        1 => "a problem".into(),
        many => format!("{many} problems"),
    }
}

/// What a reload did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Tools that are new.
    pub added: Vec<String>,
    /// Tools that are others now.
    pub replaced: Vec<String>,
    /// Tools that are gone.
    pub removed: Vec<String>,
    /// Settings that changed and hold only after a restart.
    pub needs_restart: Vec<String>,
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// Where it is.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// Of its content.
    pub sha256: String,
}
