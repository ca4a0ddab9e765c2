//! Whether calls of one tool are denied, asked about or allowed.
//!
//! In: the rules that may concern the tool, and what holds where none of them speaks. Out: a verdict on one call, with
//! the words a person or an operator reads. The rules themselves are in `confirm.rs`.

use std::time::Duration;

use serde_json::Value;

use super::{Decision, Limits, Rule, confirm::Rules};
use crate::{ids::Caller, language::Language, tool::Definition};

/// The rules about one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    rules: Rules,
    /// Where no rule speaks.
    otherwise: Decision,
    /// How long a person has to answer, where the rule does not say.
    patience: Duration,
}

impl Default for Gate {
    /// That of a tool about which nothing was said yet. Until something is, nobody passes.
    fn default() -> Self {
        Self { rules: Rules::default(), otherwise: Decision::Deny, patience: Duration::ZERO }
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
    Ask(Asks),
}

/// What a person is asked, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Asks {
    /// The rule that asks.
    pub rule: String,
    /// Why, in its owner's words.
    pub reason: Option<String>,
    /// How long there is to answer.
    pub within: Duration,
}

/// The name of the question that the tool's own settings ask.
const OWN_RULE: &str = "the tool asks before every call";
/// The name of the question about a tool that came from elsewhere.
const IMPORTED_RULE: &str = "an imported tool asks unless it is read-only or trusted";

impl Gate {
    /// The rules that may concern this tool, and what holds where none of them matches.
    #[must_use]
    pub fn new(rules: &Rules, definition: &Definition, limits: &Limits) -> Self {
        // Tools that came from elsewhere are asked about; what the owner wrote is the owner's word.
        let imported = definition.origin.is_some() && !definition.annotations.read_only;
        let asks = limits.confirm.unwrap_or(imported);
        let otherwise = if asks { Decision::Ask } else { Decision::Allow };
        Self { rules: rules.concerning(definition), otherwise, patience: limits.approval_timeout }
    }

    /// Whether a call of the tool may have to wait for a person.
    pub fn may_ask(&self) -> bool {
        self.otherwise == Decision::Ask || self.rules.iter().any(|rule| rule.decision == Decision::Ask)
    }

    /// What becomes of a call.
    pub fn decide(&self, definition: &Definition, arguments: &Value, caller: &Caller) -> Verdict {
        if self.rules.is_empty() && self.otherwise == Decision::Allow {
            return Verdict::Allow;
        }
        let Some(rule) = self.rules.decide(arguments, caller) else {
            return match self.otherwise {
                Decision::Allow => Verdict::Allow,
                Decision::Deny => Verdict::Deny(OWN_RULE.into()),
                Decision::Ask => {
                    let imported = definition.origin.is_some();
                    let rule = if imported { IMPORTED_RULE } else { OWN_RULE };
                    Verdict::Ask(Asks { rule: rule.into(), reason: None, within: self.patience })
                }
            };
        };
        match rule.decision {
            Decision::Allow => Verdict::Allow,
            Decision::Deny => Verdict::Deny(rule.reason.clone().unwrap_or_else(|| rule.label())),
            Decision::Ask => Verdict::Ask(Asks {
                rule: rule.label(),
                reason: rule.reason.clone(),
                within: rule.approval_timeout.unwrap_or(self.patience),
            }),
        }
    }

    /// The rule that denies every call of the tool, whatever its arguments; such a tool is not offered.
    pub fn denies_all(&self, definition: &Definition) -> Option<&Rule> {
        self.rules.denied_outright(definition, None)
    }

    /// The rules that may concern the tool, in words, and what holds where none of them speaks.
    pub fn in_words(&self, language: Language) -> Vec<String> {
        let otherwise = match (self.otherwise, language) {
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
