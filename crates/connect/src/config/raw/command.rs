//! Config keys of command tools.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{DurationOrZero, SecretSource, Size, secret};

/// The keys of a command tool: one process per call, or with `kind = "stateful"` one long-running process per thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Command {
    /// The program to run: a name to look up in PATH, or a path. No shell is involved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the program, passed verbatim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables of the program. It gets these, those of `pass_env`, and the few that programs need to start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "secret::deserialize_table")]
    pub env: BTreeMap<String, SecretSource>,
    /// Variables of toolhub's own environment to pass on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// Working directory. Default: the directory of the config file, or of the process if there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Maximum size of stdout during one call. Default: "8MiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<Size>,
    /// Maximum length of one response line of a stateful program. Default: "4MiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_line: Option<Size>,
    /// Grace period between SIGTERM and SIGKILL. Default: "2s".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<DurationOrZero>,
}
