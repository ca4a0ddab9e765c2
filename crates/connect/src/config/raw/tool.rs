//! Config keys of all tools.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};
use serde_json::Value;
use toolhub_core::ConflictResolution;

use super::{CallSettings, Command, Rest};
use crate::config::{KeyPath, PositiveDuration, Size};

/// The config of one tool, from a file, an API request, or code.
///
/// Its keys determine what executes it: `url` or `base_url` make it an HTTP request, `command` a program, `server` or `server_url` a
/// tool of an MCP server, and `builtin` one of the functions of the application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolConfig {
    /// The name. In a file, the key of the table is the name instead.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(skip)]
    pub name: String,
    /// The kind of tool. Default: determined by the other keys; a `command` is stateless unless this is "stateful".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The name of a built-in tool. A tool has this, or `url`, or `command`, or `server`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builtin: Option<String>,
    /// The function of an older program that implemented the tool: "app.tools.slug:make". Without a `command` or another source, the
    /// function of the application with the name of the tool executes it; if there is none, the tool is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub function_path: Option<String>,
    /// What the tool does, for the model. A builtin and a tool of an MCP server have their own descriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments. For a builtin it is merged with its own schema, which it may extend but not contradict.
    /// For a tool of an MCP server it replaces the server's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, Value>>,
    /// The MCP server whose tool it is: the name of a section `[mcp_servers.NAME]`. It is unavailable while the server is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The address of an MCP server that offers only this tool, instead of `server`. `headers`, `auth`, `allow_hosts`, `connection`
    /// and `ca_file` apply to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_url: Option<String>,
    /// The name of the tool at its MCP server. Default: the name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub tool: Option<String>,
    /// Tools that must have succeeded in a thread before this one may be called there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
    /// Effects of a call. Default: those of the builtin, or of the HTTP method. An MCP server may deny `read_only` and `idempotent`.
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
    /// The category it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Tags to filter by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The tool's own version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Arbitrary metadata.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// Settings of its state; only for stateful tools.
    #[serde(skip_serializing_if = "ToolState::is_empty")]
    pub state: ToolState,
    /// Settings of its calls.
    #[serde(flatten)]
    pub calls: CallSettings,
    /// The HTTP request, if it is a REST tool.
    #[serde(flatten)]
    pub rest: Rest,
    /// The program, if it is a command tool.
    #[serde(flatten)]
    pub command: Command,
    /// Unknown keys. A config with unknown keys is refused.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownKeys,
}

/// Unknown keys. Their values are dropped: one may be a secret under a misspelled key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownKeys(pub BTreeSet<String>);

impl<'de> Deserialize<'de> for UnknownKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        BTreeMap::<String, IgnoredAny>::deserialize(from).map(|keys| Self(keys.into_keys().collect()))
    }
}

impl Serialize for UnknownKeys {
    /// Writes the keys with masked values, so that the config is still refused when it is read again.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|key| (key, "••••")))
    }
}

/// The kind of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A function or program without state.
    Stateless,
    /// A function with state, or a long-running program per thread.
    Stateful,
    /// An HTTP request.
    Rest,
    /// A tool of an MCP server.
    Mcp,
}

/// Names of tools that must all have succeeded, or groups of tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DependsOn {
    /// All of these tools.
    Names(#[schemars(length(min = 1))] Vec<String>),
    /// Groups of tools.
    Groups(DependencyGroups),
}

/// Groups of tools; all groups must be satisfied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DependencyGroups {
    /// All of these tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub all: Option<Vec<String>>,
    /// At least one of these tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub any: Option<Vec<String>>,
    /// All of these tools, one after the other: successes in this order must exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub sequence: Option<Vec<String>>,
    /// Maximum age of a success. Default: any age.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<PositiveDuration>,
}

impl DependsOn {
    /// Every name, with its path below `depends_on`.
    pub fn names(&self) -> impl Iterator<Item = (KeyPath, &str)> {
        let root = KeyPath::default();
        let lists = match self {
            Self::Names(names) => vec![(root, names)],
            Self::Groups(DependencyGroups { all, any, sequence, .. }) => {
                let lists = [("all", all), ("any", any), ("sequence", sequence)];
                lists.into_iter().filter_map(|(key, names)| Some((root.key(key), names.as_ref()?))).collect()
            }
        };
        lists
            .into_iter()
            .flat_map(|(at, names)| names.iter().enumerate().map(move |(index, name)| (at.index(index), name.as_str())))
    }
}

/// Effects of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Annotations {
    /// A human-readable title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether it changes nothing outside itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Whether it may destroy or overwrite something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Whether a repeated call with the same arguments has no further effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Whether it interacts with systems outside this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl Annotations {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings of the state of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolState {
    /// Where the state is stored. Default: in the hub's state manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager_type: Option<ManagerType>,
    /// When the state is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// How concurrent writes are resolved. Default: as in `[state]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<Conflict>,
    /// Whether the tool may be rerun with the current state, for `conflict_resolution = "retry"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerunnable: Option<bool>,
    /// How long the state lives after each write. Default: as in `[state]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<PositiveDuration>,
    /// Maximum size of the state as JSON; a larger one is refused. Default: as in `[state]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_state_size: Option<Size>,
    /// Maximum number of earlier versions that are kept, including the current one. Default: as in `[state]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_versions: Option<u32>,
    /// Maximum number of history entries; 0 for none. Default: as in `[state]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_history_size: Option<u32>,
    /// Whether changes are committed without an explicit save; only for Rust functions. Default: as in `[state]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_save: Option<bool>,
    /// Whether requests to the program carry the state; only for a `command`. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<bool>,
    /// Name of the state in requests and responses. Default: "state".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub parameter_name: Option<String>,
}

impl ToolState {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where the state of a tool is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ManagerType {
    /// In memory; lost when the process ends.
    Memory,
    /// On disk, separate from the hub's own store.
    Persistent,
    /// On the Redis server of `state.redis_url`.
    Distributed,
}

impl From<ManagerType> for toolhub_core::ManagerType {
    fn from(manager: ManagerType) -> Self {
        match manager {
            ManagerType::Memory => Self::Memory,
            ManagerType::Persistent => Self::Persistent,
            ManagerType::Distributed => Self::Distributed,
        }
    }
}

/// When the state of a tool is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    /// Never, not even with its thread.
    Never,
    /// When the call that created it has ended.
    AfterCall,
    /// With its thread.
    ThreadEnd,
}

/// How concurrent writes of a state are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The later write overwrites the earlier one.
    LastWriteWins,
    /// The later write fails with a conflict.
    Reject,
    /// The later change is applied again to the current state, if possible.
    Retry,
    /// Both changes are merged, if they are compatible.
    Merge,
}

impl From<Conflict> for ConflictResolution {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::LastWriteWins => Self::LastWriteWins,
            Conflict::Reject => Self::Reject,
            Conflict::Retry => Self::Retry,
            Conflict::Merge => Self::Merge,
        }
    }
}
