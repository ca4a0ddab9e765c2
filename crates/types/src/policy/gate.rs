//! Decides whether a call of one tool is allowed, denied, or needs approval.
//!
//! In: the rules that may match the tool, and a default decision. Out: a verdict on one call, with the text for the approver or the
//! operator. The rules themselves are in `rules.rs`.

use std::time::Duration;

use serde_json::Value;

use super::{Decision, Limits, Rule, rules::Rules};
use crate::{ids::Caller, language::Language, tool::Definition};

/// The rules and the default decision of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    rules: Rules,
    /// Applies if no rule matches.
    default_decision: Decision,
    /// How long a person has to decide, unless the matching rule sets its own timeout.
    approval_timeout: Duration,
}

impl Default for Gate {
    /// The gate of a tool whose rules are not known yet. It fails closed: every call is denied.
    fn default() -> Self {
        Self { rules: Rules::default(), default_decision: Decision::Deny, approval_timeout: Duration::ZERO }
    }
}

/// The decision about a call.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyDecision {
    /// The call may run.
    Allow,
    /// The call is denied.
    Deny(Denial),
    /// The call needs the approval of a person.
    Ask(ApprovalRequirement),
}

/// Why a call is denied.
#[derive(Debug, Clone, PartialEq)]
pub struct Denial {
    /// The reason given in the rule, or the rule itself.
    pub reason: String,
    /// The reason for a model, unless there is none or the rule is private.
    pub model_reason: Option<String>,
}

/// Why a call needs approval, and how long a person has to decide.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequirement {
    /// The rule that requires approval.
    pub rule: String,
    /// The reason given in the rule.
    pub reason: Option<String>,
    /// The reason for a model, unless there is none or the rule is private.
    pub model_reason: Option<String>,
    /// How long a person has to decide.
    pub timeout: Duration,
}

/// Shown as the rule if the tool's own `confirm` setting requires approval.
const TOOL_CONFIRM_LABEL: &str = "the tool requires approval for every call";
/// Shown as the rule if the default for imported tools requires approval.
const IMPORTED_TOOL_LABEL: &str = "an imported tool requires approval unless it is read-only or trusted";

impl Gate {
    /// Selects the rules that may match this tool, and its default decision.
    #[must_use]
    pub fn new(rules: &Rules, definition: &Definition, limits: &Limits) -> Self {
        // Imported tools need approval by default unless they are read-only; tools that the owner wrote are trusted.
        let needs_approval_by_default = definition.origin.is_some() && !definition.annotations.read_only;
        let needs_approval = limits.confirm.unwrap_or(needs_approval_by_default);
        Self {
            rules: rules.for_tool(definition),
            default_decision: if needs_approval { Decision::Ask } else { Decision::Allow },
            approval_timeout: limits.approval_timeout,
        }
    }

    /// Whether a call of the tool may need approval.
    pub fn may_require_approval(&self) -> bool {
        self.default_decision == Decision::Ask || self.rules.iter().any(|rule| rule.decision == Decision::Ask)
    }

    /// Decides about a call.
    pub fn decide(&self, definition: &Definition, arguments: &Value, caller: &Caller) -> PolicyDecision {
        if self.rules.is_empty() && self.default_decision == Decision::Allow {
            return PolicyDecision::Allow;
        }
        let Some(rule) = self.rules.decide(arguments, caller) else {
            return match self.default_decision {
                Decision::Allow => PolicyDecision::Allow,
                Decision::Deny => {
                    PolicyDecision::Deny(Denial { reason: TOOL_CONFIRM_LABEL.into(), model_reason: None })
                }
                Decision::Ask => PolicyDecision::Ask(ApprovalRequirement {
                    rule: default_label(definition).into(),
                    reason: None,
                    model_reason: None,
                    timeout: self.approval_timeout,
                }),
            };
        };
        let model_reason = rule.model_reason().map(str::to_owned);
        match rule.decision {
            Decision::Allow => PolicyDecision::Allow,
            Decision::Deny => PolicyDecision::Deny(Denial {
                reason: rule.reason.clone().unwrap_or_else(|| rule.label()),
                model_reason,
            }),
            Decision::Ask => PolicyDecision::Ask(ApprovalRequirement {
                rule: rule.label(),
                reason: rule.reason.clone(),
                model_reason,
                timeout: rule.approval_timeout.unwrap_or(self.approval_timeout),
            }),
        }
    }

    /// The decision about a call, with the label of the rule that makes it, or of the default, and the reason given in the rule.
    pub fn deciding_rule(
        &self,
        definition: &Definition,
        arguments: &Value,
        caller: &Caller,
    ) -> (Decision, String, Option<String>) {
        match self.rules.decide(arguments, caller) {
            Some(rule) => (rule.decision, rule.label(), rule.reason.clone()),
            None if self.default_decision == Decision::Ask => (Decision::Ask, default_label(definition).into(), None),
            None => (self.default_decision, self.default_text(Language::English).into(), None),
        }
    }

    /// The rule that denies every call of the tool, whatever its arguments; such a tool is not offered. A rule with a caller
    /// pattern is considered only if the caller is given.
    pub fn deny_all_rule(&self, definition: &Definition, caller: Option<&Caller>) -> Option<&Rule> {
        self.rules.deny_all_rule(definition, caller)
    }

    /// The labels of what may require approval for a call of the tool. Grants are bound to them.
    pub fn ask_labels(&self, definition: &Definition) -> Vec<String> {
        let ask_rules = self.rules.iter().filter(|rule| rule.decision == Decision::Ask).map(Rule::label);
        let default = (self.default_decision == Decision::Ask).then(|| default_label(definition).to_owned());
        ask_rules.chain(default).collect()
    }

    /// The labels of the rules that may match the tool, then the default decision.
    pub fn describe(&self, language: Language) -> Vec<String> {
        self.rules.iter().map(Rule::label).chain([self.default_text(language).into()]).collect()
    }

    fn default_text(&self, language: Language) -> &'static str {
        match (self.default_decision, language) {
            (Decision::Allow, Language::English) => "allow by default",
            (Decision::Ask, Language::English) => "ask by default",
            (Decision::Deny, Language::English) => "deny by default",
            (Decision::Allow, Language::Chinese) => "其余情况允许",
            (Decision::Ask, Language::Chinese) => "其余情况需确认",
            (Decision::Deny, Language::Chinese) => "其余情况拒绝",
        }
    }
}

/// Shown as the rule if no rule matches and the tool asks by default.
fn default_label(definition: &Definition) -> &'static str {
    if definition.origin.is_some() { IMPORTED_TOOL_LABEL } else { TOOL_CONFIRM_LABEL }
}
