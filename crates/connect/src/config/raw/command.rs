//! What is said about a tool that is a program.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Delay, SecretSource, Size, secret};

/// The keys of a tool that is a program: one process for each call, or with `kind = "stateful"` one that lives in its thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Command {
    /// The program, where the tool is one: a name that is looked for in PATH, or a path. No shell reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments. They reach the program as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables of its environment. It sees these, those of `pass_env`, and the few that programs need to start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "secret::table")]
    pub env: BTreeMap<String, SecretSource>,
    /// Variables of toolhub's own environment that it may see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// The folder it runs in; where nothing is said that of the config file, or of the program where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How many bytes it may write to its output during one call; "8MiB" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<Size>,
    /// How long one line of a stateful program may be; "4MiB" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_line: Option<Size>,
    /// How long it may take to end after it was asked to, before it is killed; "2s" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Delay>,
}
