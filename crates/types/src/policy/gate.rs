//! Whether calls of one tool are denied, asked about or allowed.
//!
//! In: the rules that may concern the tool, and what holds where none of them speaks. Out: a verdict on one call, with
//! the words a person or an operator reads. The rules themselves are in `confirm.rs`.

use std::time::Duration;

use serde_json::Value;

use super::{Decision, Limits, Rule, rules::Rules};
use crate::{ids::Caller, language::Language, tool::Definition};

/// The rules about one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    rules: Rules,
    /// Where no rule speaks.
    default_decision: Decision,
    /// How long a person has to answer, where the rule does not say.
    approval_timeout: Duration,
}

impl Default for Gate {
    /// That of a tool about which nothing was said yet. Until something is, nobody passes.
    fn default() -> Self {
        Self { rules: Rules::default(), default_decision: Decision::Deny, approval_timeout: Duration::ZERO }
    }
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It may run.
    Allow,
    /// It may not, because of this.
    Deny(String),
    /// A person is asked.
    Ask(ApprovalRequirement),
}

/// What a person is asked, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequirement {
    /// The rule that asks.
    pub rule: String,
    /// Why, in its owner's words.
    pub reason: Option<String>,
    /// How long there is to answer.
    pub timeout: Duration,
}

/// The name of the question that the tool's own settings ask.
const TOOL_CONFIRM_LABEL: &str = "the tool asks before every call";
/// The name of the question about a tool that came from elsewhere.
const IMPORTED_TOOL_LABEL: &str = "an imported tool asks unless it is read-only or trusted";

impl Gate {
    /// The rules that may concern this tool, and what holds where none of them matches.
    #[must_use]
    pub fn new(rules: &Rules, definition: &Definition, limits: &Limits) -> Self {
        // Tools that came from elsewhere are asked about; what the owner wrote is the owner's word.
        let imported = definition.origin.is_some() && !definition.annotations.read_only;
        let asks = limits.confirm.unwrap_or(imported);
        let otherwise = if asks { Decision::Ask } else { Decision::Allow };
        Self {
            rules: rules.for_tool(definition),
            default_decision: otherwise,
            approval_timeout: limits.approval_timeout,
        }
    }

    /// Whether a call of the tool may have to wait for a person.
    pub fn may_require_approval(&self) -> bool {
        self.default_decision == Decision::Ask || self.rules.iter().any(|rule| rule.decision == Decision::Ask)
    }

    /// What becomes of a call.
    pub fn decide(&self, definition: &Definition, arguments: &Value, caller: &Caller) -> Verdict {
        if self.rules.is_empty() && self.default_decision == Decision::Allow {
            return Verdict::Allow;
        }
        let Some(rule) = self.rules.decide(arguments, caller) else {
            return match self.default_decision {
                Decision::Allow => Verdict::Allow,
                Decision::Deny => Verdict::Deny(TOOL_CONFIRM_LABEL.into()),
                Decision::Ask => {
                    let imported = definition.origin.is_some();
                    let rule = if imported { IMPORTED_TOOL_LABEL } else { TOOL_CONFIRM_LABEL };
                    Verdict::Ask(ApprovalRequirement {
                        rule: rule.into(),
                        reason: None,
                        timeout: self.approval_timeout,
                    })
                }
            };
        };
        match rule.decision {
            Decision::Allow => Verdict::Allow,
            Decision::Deny => Verdict::Deny(rule.reason.clone().unwrap_or_else(|| rule.label())),
            Decision::Ask => Verdict::Ask(ApprovalRequirement {
                rule: rule.label(),
                reason: rule.reason.clone(),
                timeout: rule.approval_timeout.unwrap_or(self.approval_timeout),
            }),
        }
    }

    /// The rule that denies every call of the tool, whatever its arguments; such a tool is not offered.
    pub fn deny_all_rule(&self, definition: &Definition) -> Option<&Rule> {
        self.rules.deny_all_rule(definition, None)
    }

    /// The rules that may concern the tool, in words, and what holds where none of them speaks.
    pub fn describe(&self, language: Language) -> Vec<String> {
        let otherwise = match (self.default_decision, language) {
            (Decision::Allow, Language::English) => "otherwise allow",
            (Decision::Ask, Language::English) => "otherwise ask",
            (Decision::Deny, Language::English) => "otherwise deny",
            (Decision::Allow, Language::Chinese) => "其余情况允许",
            (Decision::Ask, Language::Chinese) => "其余情况需确认",
            (Decision::Deny, Language::Chinese) => "其余情况拒绝",
        };
        self.rules.iter().map(Rule::label).chain([otherwise.into()]).collect()
    }
}
