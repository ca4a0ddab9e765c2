//! Ordered approval rules: deny, ask, allow.
//!
//! In: the owner's rules, then a tool, the arguments of a call and its caller. Out: the first rule that matches, all
//! deny rules before all ask rules before all allow rules; `None` if no rule matches.
//! `gate.rs` applies the decision and the default. Whether a tool's annotations can be trusted is decided by the caller.

mod compiled_rule;
mod condition;
mod rule;

use serde_json::Value;

use crate::{ids::Caller, tool::Definition};
use compiled_rule::CompiledRule;
pub use rule::{AnnotationMatch, ArgumentMatch, Decision, Rule, RuleError};

/// Compiled rules in evaluation order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules(Vec<CompiledRule>);

impl Rules {
    /// Compiles and sorts the rules.
    ///
    /// # Errors
    /// When a glob, a pointer or a pattern is invalid; one error for each such rule.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Vec<RuleError>> {
        let (mut compiled, mut errors) = (Vec::with_capacity(rules.len()), Vec::new());
        for rule in rules {
            match CompiledRule::new(rule) {
                Ok(rule) => compiled.push(rule),
                Err(error) => errors.push(error),
            }
        }
        // A stable sort keeps the owner's order among equal decisions.
        compiled.sort_by_key(|compiled: &CompiledRule| compiled.rule.decision);
        if errors.is_empty() { Ok(Self(compiled)) } else { Err(errors) }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules that can match calls of this tool, in the same order.
    pub fn for_tool(&self, tool: &Definition) -> Self {
        Self(self.0.iter().filter(|compiled| compiled.matches_tool(tool)).cloned().collect())
    }

    /// The rules in evaluation order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter().map(|compiled| &compiled.rule)
    }

    /// The first rule that matches a call. Call this on the result of [`Rules::for_tool`]: the tool itself is not checked again.
    pub fn decide(&self, arguments: &Value, caller: &Caller) -> Option<&Rule> {
        self.0.iter().find(|compiled| compiled.matches(arguments, caller)).map(|compiled| &compiled.rule)
    }

    /// The rule that denies every call of this tool, whatever its arguments; such a tool is not offered. A rule with a caller
    /// pattern is considered only if the caller is given.
    pub fn deny_all_rule(&self, tool: &Definition, caller: Option<&Caller>) -> Option<&Rule> {
        let mut deny_rules = self.0.iter().take_while(|compiled| compiled.rule.decision == Decision::Deny);
        deny_rules.find(|compiled| compiled.matches_every_call(tool, caller)).map(|compiled| &compiled.rule)
    }
}

#[cfg(test)]
mod tests;
