//! The sections `[tools.NAME]`.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{super::unit::Time, Calls, Command, Conflict, Rest};
use crate::builtin;

/// One tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Tool {
    /// What sort of tool it is; told by its other keys where nothing is said. A `command` is stateless unless this says
    /// "stateful".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<Kind>,
    /// Which of the tools that the binary carries it is. A tool has this, or `url`, or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) builtin: Option<Builtin>,
    /// Whether there is such a tool. One that is not enabled is as if it were not written here.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// What the tool does, for the model; a builtin says it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// A JSON Schema of the arguments. That of a builtin is laid over its own: it may say more, but nothing that contradicts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parameters: Option<BTreeMap<String, Value>>,
    /// Which tools must have succeeded in a thread before this one may be used there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) depends_on: Option<DependsOn>,
    /// What a call does to the world; as the builtin, or the method of the request, says where nothing is said.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub(crate) annotations: Annotations,
    /// One word for the group of tools it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) category: Option<String>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    /// The tool's own version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Anything else to keep with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, Value>,
    /// What holds for what it remembers; only for stateful tools.
    #[serde(default, skip_serializing_if = "ToolState::is_empty")]
    pub(crate) state: ToolState,
    #[serde(flatten)]
    pub(crate) calls: Calls,
    #[serde(flatten)]
    pub(crate) rest: Rest,
    #[serde(flatten)]
    pub(crate) command: Command,
}

fn yes() -> bool {
    true
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A function that remembers nothing.
    Stateless,
    /// A function with state kept for it, or a program that lives in its thread.
    Stateful,
    /// An HTTP request.
    Rest,
}

/// The name of a tool that the binary carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Builtin(pub(crate) String);

impl JsonSchema for Builtin {
    fn schema_name() -> Cow<'static, str> {
        "Builtin".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": builtin::ALL.map(|builtin| builtin.name) })
    }
}

/// Names of tools of which each must have succeeded; or groups of them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum DependsOn {
    /// Each of these.
    Names(#[schemars(length(min = 1))] Vec<String>),
    /// Groups.
    Groups(Groups),
}

/// Groups of tools; what is named must all hold.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Groups {
    /// Each of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) all: Option<Vec<String>>,
    /// At least one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) any: Option<Vec<String>>,
    /// Each of these, their first successes in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) sequence: Option<Vec<String>>,
    /// How old a success may be; any age where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<Time>,
}

/// What a call does to the world.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Annotations {
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// Whether it changes nothing outside itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// Whether a change it makes may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive: Option<bool>,
    /// Whether calling it twice with the same arguments does no more than calling it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent: Option<bool>,
    /// Whether it reaches things outside this system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open_world: Option<bool>,
}

impl Annotations {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds for what a tool remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ToolState {
    /// Who keeps it; whoever keeps the hub's states where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) manager_type: Option<Keeper>,
    /// When it is thrown away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cleanup: Option<Cleanup>,
    /// What happens when two write at once; as [state] says where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conflict_resolution: Option<Conflict>,
    /// Whether the tool may be run once more with the state as it is then, for `conflict_resolution = "retry"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rerunnable: Option<bool>,
    /// Whether a program is handed the state with each request; only for a `command`. Yes where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inject: Option<bool>,
    /// What the state is called in a request; "state" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) parameter_name: Option<String>,
}

impl ToolState {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Who keeps what one tool remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Keeper {
    /// Gone with the process.
    Memory,
    /// On disk, apart from the hub's own store.
    Persistent,
}

/// When what a tool remembers is thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cleanup {
    /// Not even with its thread.
    Never,
    /// As soon as the call that made it has ended.
    AfterCall,
    /// With its thread.
    ThreadEnd,
}
