//! Policies for the calls of several tools: `[[limits]]`, and the rules of `[[policy]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{CallSettings, PositiveDuration};

/// Policy for the tools whose names match a glob.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Limit {
    /// Glob over tool names: `*` matches any sequence of characters, `?` one character.
    #[schemars(length(min = 1))]
    pub(crate) tool: String,
    #[serde(flatten)]
    pub(crate) calls: CallSettings,
}

/// A rule that denies matching calls, requires approval, or allows them. All conditions must match.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rule {
    /// Glob over tool names.
    #[serde(default = "any_tool")]
    #[schemars(length(min = 1))]
    pub(crate) tool: String,
    /// Annotations the tool must have.
    #[serde(default, skip_serializing_if = "AnnotationFilter::is_empty")]
    pub(crate) annotations: AnnotationFilter,
    /// Conditions on the arguments: a JSON pointer, and a regular expression that matches part of the value there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) arguments: BTreeMap<String, String>,
    /// Glob over callers, such as names of keys. Default: any caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) caller: Option<String>,
    /// What to do with a matching call.
    pub(crate) decision: RuleDecision,
    /// Reason, shown to people, and to models unless `private`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Whether the reason is shown to people only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) private: bool,
    /// How long an approval may take, for `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval_timeout: Option<PositiveDuration>,
}

fn any_tool() -> String {
    "*".into()
}

/// Annotations a tool must have; those that are not named do not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct AnnotationFilter {
    /// Whether the tool must, or must not, be read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// Whether the tool must, or must not, be destructive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive: Option<bool>,
    /// Whether the tool must, or must not, be idempotent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent: Option<bool>,
    /// Whether the tool must, or must not, interact with systems outside this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open_world: Option<bool>,
}

impl AnnotationFilter {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The decision of a rule about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleDecision {
    /// Refuse the call.
    Deny,
    /// Require an approval.
    Ask,
    /// Allow the call.
    Allow,
}
