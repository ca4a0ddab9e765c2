//! What may be said about the calls of many tools: `[[limits]]`, and the rules of `[[policy]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{Calls, Time};

/// What holds for the tools whose names fit a glob.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Limit {
    /// A glob over names of tools: `*` is any run of characters, `?` is one.
    #[schemars(length(min = 1))]
    pub(crate) tool: String,
    #[serde(flatten)]
    pub(crate) calls: Calls,
}

/// Denies, asks or allows the calls it matches. Everything it names must fit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rule {
    /// A glob over names of tools.
    #[serde(default = "every")]
    #[schemars(length(min = 1))]
    pub(crate) tool: String,
    /// What the tool must say about itself.
    #[serde(default, skip_serializing_if = "Matching::is_empty")]
    pub(crate) annotations: Matching,
    /// What the arguments must look like: a JSON pointer, and a regular expression that matches a part of the value there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) arguments: BTreeMap<String, String>,
    /// A glob over callers, such as names of keys; anybody where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) caller: Option<String>,
    /// What to do with the call.
    pub(crate) decision: Decided,
    /// Why, for the people and models who meet the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// How long a person has to answer, for `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval_timeout: Option<Time>,
}

fn every() -> String {
    "*".into()
}

/// What a tool must say about itself; what is not named may be either.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Matching {
    /// Only tools that do, or do not, change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// Only tools that may, or may not, destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive: Option<bool>,
    /// Only tools that may, or may not, be called twice without harm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent: Option<bool>,
    /// Only tools that do, or do not, reach things outside this system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open_world: Option<bool>,
}

impl Matching {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a rule says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decided {
    /// The call is refused.
    Deny,
    /// A person must say yes.
    Ask,
    /// The call goes on.
    Allow,
}
