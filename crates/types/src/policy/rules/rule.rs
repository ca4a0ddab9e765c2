//! One approval rule as written in code or config.
//!
//! Holds uncompiled texts: building a rule checks nothing, so that building a hub can report the mistakes of all rules together.
//! `compiled_rule.rs` compiles the texts and matches calls.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compiled_rule::CompiledRule;
use crate::tool::Annotations;

/// The decision of a rule about a call. The variants are in evaluation order: deny rules come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call is refused.
    Deny,
    /// The call needs the approval of a person.
    Ask,
    /// The call may run.
    Allow,
}

/// Denies, asks about or allows the calls it matches. A call must meet all its conditions.
///
/// For example `Rule::ask("payments__*").when("/amount", r"^\d{4,}").reason("large sums need a second look")`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Rule {
    /// A glob over tool names.
    pub tool: String,
    /// The annotations that the tool must have.
    #[serde(skip_serializing_if = "AnnotationMatch::is_empty")]
    pub annotations: AnnotationMatch,
    /// Conditions on the arguments; all must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentMatch>,
    /// A glob over callers. Default: any caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The decision about a matching call.
    pub decision: Decision,
    /// The reason, shown to people, and to models unless the rule is private.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the reason is shown to people only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// How long a person has to decide. Default: the tool's approval timeout.
    #[serde(rename = "approvalTimeoutMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub approval_timeout: Option<Duration>,
}

/// The annotations that a tool must have; `None` matches both values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are documented in `Annotations`")]
pub struct AnnotationMatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

/// A condition on one argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArgumentMatch {
    /// A JSON pointer to the argument; empty for the arguments as a whole.
    pub pointer: String,
    /// A regular expression that must match a part of the value: of a string itself, of any other value as JSON.
    pub pattern: String,
}

/// Why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rule `{rule}` is invalid: {}", problems.join("; "))]
pub struct RuleError {
    /// The rule's label.
    pub rule: String,
    /// All its problems.
    pub problems: Vec<String>,
}

impl Rule {
    /// Denies the calls of these tools.
    #[must_use]
    pub fn deny(tools: impl Into<String>) -> Self {
        Self::new(Decision::Deny, tools.into())
    }

    /// Requires approval for the calls of these tools.
    #[must_use]
    pub fn ask(tools: impl Into<String>) -> Self {
        Self::new(Decision::Ask, tools.into())
    }

    /// Allows the calls of these tools.
    #[must_use]
    pub fn allow(tools: impl Into<String>) -> Self {
        Self::new(Decision::Allow, tools.into())
    }

    /// The reason for a model.
    #[must_use]
    pub fn model_reason(&self) -> Option<&str> {
        self.reason.as_deref().filter(|_| !self.private)
    }

    fn new(decision: Decision, tool: String) -> Self {
        let (annotations, arguments) = (AnnotationMatch::default(), Vec::new());
        Self {
            tool,
            annotations,
            arguments,
            caller: None,
            decision,
            reason: None,
            private: false,
            approval_timeout: None,
        }
    }

    /// Adds a condition: the argument at this JSON pointer must match this regular expression. All conditions must match.
    #[must_use]
    pub fn when(mut self, pointer: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.arguments.push(ArgumentMatch { pointer: pointer.into(), pattern: pattern.into() });
        self
    }

    /// Restricts the rule to callers that match this glob.
    #[must_use]
    pub fn caller(mut self, callers: impl Into<String>) -> Self {
        self.caller = Some(callers.into());
        self
    }

    /// Restricts the rule to tools that are, or are not, read-only.
    #[must_use]
    pub fn read_only(mut self, required: bool) -> Self {
        self.annotations.read_only = Some(required);
        self
    }

    /// Restricts the rule to tools that are, or are not, destructive.
    #[must_use]
    pub fn destructive(mut self, required: bool) -> Self {
        self.annotations.destructive = Some(required);
        self
    }

    /// Restricts the rule to tools that are, or are not, idempotent.
    #[must_use]
    pub fn idempotent(mut self, required: bool) -> Self {
        self.annotations.idempotent = Some(required);
        self
    }

    /// Restricts the rule to tools that interact, or do not interact, with external systems.
    #[must_use]
    pub fn open_world(mut self, required: bool) -> Self {
        self.annotations.open_world = Some(required);
        self
    }

    /// Sets the reason, shown to people, and to models unless the rule is [private](Self::private).
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Shows the reason to people only: a model learns that the call is refused or needs approval, not why.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.private = true;
        self
    }

    /// Sets how long a person has to decide.
    #[must_use]
    pub fn approval_timeout(mut self, timeout: Duration) -> Self {
        self.approval_timeout = Some(timeout);
        self
    }

    /// Checks all texts of the rule.
    ///
    /// # Errors
    /// When a glob, a pointer or a pattern is invalid.
    pub fn check(&self) -> Result<(), RuleError> {
        CompiledRule::new(self.clone()).map(drop)
    }

    /// The rule in one line: its decision and its conditions. Rules that match different calls or decide
    /// differently never share a label, so that a grant can be bound to it.
    #[must_use]
    pub fn label(&self) -> String {
        let mut label = format!("{} {}", self.decision, quote_if_needed(&self.tool));
        let annotations = self.annotations.describe();
        if !annotations.is_empty() {
            label += &format!(" if {}", annotations.join(" and "));
        }
        for (index, ArgumentMatch { pointer, pattern }) in self.arguments.iter().enumerate() {
            let keyword = if index == 0 { "when" } else { "and" };
            label += &format!(" {keyword} {} ~ {}", quote_if_needed(pointer), quote_if_needed(pattern));
        }
        if let Some(caller) = &self.caller {
            label += &format!(" by {}", quote_if_needed(caller));
        }
        label
    }
}

/// A text inside a label, quoted if it could be confused with the surrounding keywords or break the line.
fn quote_if_needed(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
    if plain { text.to_owned() } else { format!("{text:?}") }
}

impl AnnotationMatch {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a tool with these annotations matches.
    pub(super) fn matches(&self, annotations: &Annotations) -> bool {
        let matches = |required: Option<bool>, actual: bool| required.is_none_or(|required| required == actual);
        matches(self.read_only, annotations.read_only)
            && matches(self.destructive, annotations.destructive)
            && matches(self.idempotent, annotations.idempotent)
            && matches(self.open_world, annotations.open_world)
    }

    fn describe(&self) -> Vec<String> {
        let all = [
            ("read_only", self.read_only),
            ("destructive", self.destructive),
            ("idempotent", self.idempotent),
            ("open_world", self.open_world),
        ];
        let required = all.into_iter().filter_map(|(name, required)| Some((name, required?)));
        required.map(|(name, required)| if required { name.into() } else { format!("not {name}") }).collect()
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Allow => "allow",
        })
    }
}
