//! One rule as its owner writes it.
//!
//! Plain texts; nothing is checked while a rule is built, so that building a hub can name every mistake at once.
//! `ready.rs` reads the texts and matches.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compiled_rule::CompiledRule;
use crate::tool::Annotations;

/// What a rule says about a call. In the order of asking: a deny outweighs everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call is refused.
    Deny,
    /// A person must say yes.
    Ask,
    /// The call goes on.
    Allow,
}

/// Denies, asks or allows the calls it matches. Everything it names must fit.
///
/// Such as `Rule::ask("payments__*").when("/amount", r"^\d{4,}").because("large sums need a second look")`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Rule {
    /// A glob over names of tools.
    pub tool: String,
    /// What the tool must say about itself.
    #[serde(skip_serializing_if = "AnnotationMatch::is_empty")]
    pub annotations: AnnotationMatch,
    /// What the arguments must look like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentMatch>,
    /// A glob over callers; anybody where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// What to do with the call.
    pub decision: Decision,
    /// Why, for the people and models who meet the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long a person has to answer; the hub's own time where absent.
    #[serde(rename = "approvalTimeoutMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub approval_timeout: Option<Duration>,
}

/// What a tool must say about itself; what is `None` may be either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the same words as in `Annotations`")]
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

/// What one argument must look like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArgumentMatch {
    /// Where it stands, as a JSON pointer; empty for the arguments as a whole.
    pub pointer: String,
    /// A regular expression that must match a part of it: of a string itself, of anything else as JSON.
    pub pattern: String,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rule `{rule}` cannot be used: {}", problems.join("; "))]
pub struct RuleError {
    /// The rule's label.
    pub rule: String,
    /// Everything that is wrong.
    pub problems: Vec<String>,
}

impl Rule {
    /// Refuses the calls of these tools.
    #[must_use]
    pub fn deny(tools: impl Into<String>) -> Self {
        Self::new(Decision::Deny, tools.into())
    }

    /// Asks a person about the calls of these tools.
    #[must_use]
    pub fn ask(tools: impl Into<String>) -> Self {
        Self::new(Decision::Ask, tools.into())
    }

    /// Lets the calls of these tools go on.
    #[must_use]
    pub fn allow(tools: impl Into<String>) -> Self {
        Self::new(Decision::Allow, tools.into())
    }

    fn new(decision: Decision, tool: String) -> Self {
        let (annotations, arguments) = (AnnotationMatch::default(), Vec::new());
        Self { tool, annotations, arguments, caller: None, decision, reason: None, approval_timeout: None }
    }

    /// Only where the argument at this JSON pointer matches this regular expression. Said twice, both must match.
    #[must_use]
    pub fn when(mut self, pointer: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.arguments.push(ArgumentMatch { pointer: pointer.into(), pattern: pattern.into() });
        self
    }

    /// Only for the callers that fit this glob.
    #[must_use]
    pub fn caller(mut self, callers: impl Into<String>) -> Self {
        self.caller = Some(callers.into());
        self
    }

    /// Only tools that are, or are not, read-only.
    #[must_use]
    pub fn read_only(mut self, wanted: bool) -> Self {
        self.annotations.read_only = Some(wanted);
        self
    }

    /// Only tools that are, or are not, destructive.
    #[must_use]
    pub fn destructive(mut self, wanted: bool) -> Self {
        self.annotations.destructive = Some(wanted);
        self
    }

    /// Only tools that are, or are not, idempotent.
    #[must_use]
    pub fn idempotent(mut self, wanted: bool) -> Self {
        self.annotations.idempotent = Some(wanted);
        self
    }

    /// Only tools that reach, or do not reach, things outside this system.
    #[must_use]
    pub fn open_world(mut self, wanted: bool) -> Self {
        self.annotations.open_world = Some(wanted);
        self
    }

    /// Why there is such a rule.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// How long a person has to answer.
    #[must_use]
    pub fn approval_timeout(mut self, time: Duration) -> Self {
        self.approval_timeout = Some(time);
        self
    }

    /// Whether every text of the rule can be read.
    ///
    /// # Errors
    /// When a glob, a pointer or a pattern cannot.
    pub fn check(&self) -> Result<(), RuleError> {
        CompiledRule::new(self.clone()).map(drop)
    }

    /// The rule in one line: what it decides and about which calls. Two rules that match other calls or decide
    /// otherwise never share a label, so that a grant can be bound to it.
    #[must_use]
    pub fn label(&self) -> String {
        let mut label = format!("{} {}", self.decision, quote_if_needed(&self.tool));
        let annotations = self.annotations.describe();
        if !annotations.is_empty() {
            label += &format!(" if {}", annotations.join(" and "));
        }
        for (at, ArgumentMatch { pointer, pattern }) in self.arguments.iter().enumerate() {
            let word = if at == 0 { "when" } else { "and" };
            label += &format!(" {word} {} ~ {}", quote_if_needed(pointer), quote_if_needed(pattern));
        }
        if let Some(caller) = &self.caller {
            label += &format!(" by {}", quote_if_needed(caller));
        }
        label
    }
}

/// A text inside a label. Quoted where it could be taken for the words around it, or break the line.
fn quote_if_needed(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
    if plain { text.to_owned() } else { format!("{text:?}") }
}

impl AnnotationMatch {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a tool says all of this about itself.
    pub(super) fn matches(&self, said: &Annotations) -> bool {
        let fits = |wanted: Option<bool>, said: bool| wanted.is_none_or(|wanted| wanted == said);
        fits(self.read_only, said.read_only)
            && fits(self.destructive, said.destructive)
            && fits(self.idempotent, said.idempotent)
            && fits(self.open_world, said.open_world)
    }

    fn describe(&self) -> Vec<String> {
        let all = [
            ("read_only", self.read_only),
            ("destructive", self.destructive),
            ("idempotent", self.idempotent),
            ("open_world", self.open_world),
        ];
        let said = all.into_iter().filter_map(|(word, wanted)| Some((word, wanted?)));
        said.map(|(word, wanted)| if wanted { word.into() } else { format!("not {word}") }).collect()
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
