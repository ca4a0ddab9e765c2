//! What is said about a tool, whatever it does.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};
use serde_json::Value;
use toolhub_core::ConflictResolution;

use super::{Calls, Command, Rest};
use crate::config::{KeyPath, Time};

/// One tool, as it is written: in a file, in a request, or in a program.
///
/// What does its work is told by its keys: `url` or `base_url` make it an HTTP request, `command` a program, and `builtin` one of the
/// functions that a program brings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolConfig {
    /// What it is called. Where tools stand under their names, as in a file, that is their name.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(skip)]
    pub name: String,
    /// What sort of tool it is; told by its other keys where nothing is said. A `command` is stateless unless this says
    /// "stateful".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Which of the tools that the program carries it is. A tool has this, or `url`, or `command`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builtin: Option<String>,
    /// What the tool does, for the model; a builtin says it itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON Schema of the arguments. That of a builtin is laid over its own: it may say more, but nothing that contradicts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, Value>>,
    /// Which tools must have succeeded in a thread before this one may be used there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
    /// What a call does to the world; as the builtin, or the method of the request, says where nothing is said.
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
    /// One word for the group of tools it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Words to find it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The tool's own version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Anything else to keep with it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// What holds for what it remembers; only for stateful tools.
    #[serde(skip_serializing_if = "ToolState::is_empty")]
    pub state: ToolState,
    /// What holds for its calls.
    #[serde(flatten)]
    pub calls: Calls,
    /// What it asks, where it is a request.
    #[serde(flatten)]
    pub rest: Rest,
    /// What it runs, where it is a program.
    #[serde(flatten)]
    pub command: Command,
    /// Keys that mean nothing. No tool is made of a config that has some.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownKeys,
}

/// Keys that nobody knows. What stood there is not kept: it may be a secret that somebody put in the wrong place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownKeys(pub BTreeSet<String>);

impl<'de> Deserialize<'de> for UnknownKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        BTreeMap::<String, IgnoredAny>::deserialize(from).map(|keys| Self(keys.into_keys().collect()))
    }
}

impl Serialize for UnknownKeys {
    /// The keys stay, so that what is read again is refused again.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|key| (key, "••••")))
    }
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A function that remembers nothing.
    Stateless,
    /// A function with state kept for it, or a program that lives in its thread.
    Stateful,
    /// An HTTP request.
    Rest,
}

/// Names of tools of which each must have succeeded; or groups of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DependsOn {
    /// Each of these.
    Names(#[schemars(length(min = 1))] Vec<String>),
    /// Groups.
    Groups(Groups),
}

/// Groups of tools; what is named must all hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Groups {
    /// Each of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub all: Option<Vec<String>>,
    /// At least one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub any: Option<Vec<String>>,
    /// Each of these, their first successes in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub sequence: Option<Vec<String>>,
    /// How old a success may be; any age where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<Time>,
}

impl DependsOn {
    /// Every name, with the way to it below `depends_on`.
    pub fn names(&self) -> impl Iterator<Item = (KeyPath, &str)> {
        let here = KeyPath::default();
        let lists = match self {
            Self::Names(names) => vec![(here, names)],
            Self::Groups(Groups { all, any, sequence, .. }) => {
                let all = [("all", all), ("any", any), ("sequence", sequence)];
                all.into_iter().filter_map(|(key, names)| Some((here.key(key), names.as_ref()?))).collect()
            }
        };
        lists
            .into_iter()
            .flat_map(|(at, names)| names.iter().enumerate().map(move |(index, name)| (at.index(index), name.as_str())))
    }
}

/// What a call does to the world.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Annotations {
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether it changes nothing outside itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Whether a change it makes may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Whether calling it twice with the same arguments does no more than calling it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Whether it reaches things outside this system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl Annotations {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds for what a tool remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolState {
    /// Who keeps it; whoever keeps the hub's states where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager_type: Option<Keeper>,
    /// When it is thrown away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// What happens when two write at once; as `[state]` says where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<Conflict>,
    /// Whether the tool may be run once more with the state as it is then, for `conflict_resolution = "retry"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerunnable: Option<bool>,
    /// Whether a program is handed the state with each request; only for a `command`. Yes where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<bool>,
    /// What the state is called in a request; "state" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub parameter_name: Option<String>,
}

impl ToolState {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Who keeps what one tool remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keeper {
    /// Gone with the process.
    Memory,
    /// On disk, apart from the hub's own store.
    Persistent,
}

/// When what a tool remembers is thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    /// Not even with its thread.
    Never,
    /// As soon as the call that made it has ended.
    AfterCall,
    /// With its thread.
    ThreadEnd,
}

/// What happens when two write a state at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The later one writes over the earlier one.
    LastWriteWins,
    /// The later one writes nothing, and is told.
    Reject,
    /// What the later one did is done again with what is there now, where that is possible.
    Retry,
    /// Both changes are put together, where they go together.
    Merge,
}

impl From<Conflict> for ConflictResolution {
    fn from(said: Conflict) -> Self {
        match said {
            Conflict::LastWriteWins => Self::LastWriteWins,
            Conflict::Reject => Self::Reject,
            Conflict::Retry => Self::Retry,
            Conflict::Merge => Self::Merge,
        }
    }
}
