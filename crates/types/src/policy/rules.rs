//! Rules that deny, ask or allow.
//!
//! In: the owner's rules, then a tool, the arguments of a call and who calls. Out: the first rule that matches, all
//! deny rules before all ask rules before all allow rules; `None` where no rule has anything to say.
//! What happens then, and what holds where no rule matches, is the door's business; so is whether the annotations of
//! a tool can be believed.

mod compiled_rule;
mod condition;
mod rule;

use serde_json::Value;

use crate::{ids::Caller, tool::Definition};
use compiled_rule::CompiledRule;
pub use rule::{AnnotationMatch, ArgumentMatch, Decision, Rule, RuleError};

/// Rules in the order they are asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules(Vec<CompiledRule>);

impl Rules {
    /// Makes rules ready to be asked.
    ///
    /// # Errors
    /// When a glob, a pointer or a pattern cannot be read; every such rule is named.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Vec<RuleError>> {
        let (mut ready, mut errors) = (Vec::with_capacity(rules.len()), Vec::new());
        for rule in rules {
            match CompiledRule::new(rule) {
                Ok(rule) => ready.push(rule),
                Err(error) => errors.push(error),
            }
        }
        // A stable sort keeps the owner's order among equal decisions.
        ready.sort_by_key(|ready: &CompiledRule| ready.rule.decision);
        if errors.is_empty() { Ok(Self(ready)) } else { Err(errors) }
    }

    /// Whether there is nothing to ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules that may have something to say about calls of this tool, in the same order.
    pub fn for_tool(&self, tool: &Definition) -> Self {
        Self(self.0.iter().filter(|ready| ready.matches_tool(tool)).cloned().collect())
    }

    /// The rules, in the order they are asked.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter().map(|ready| &ready.rule)
    }

    /// The rule that decides about a call, among those that concern its tool.
    pub fn decide(&self, arguments: &Value, caller: &Caller) -> Option<&Rule> {
        self.0.iter().find(|ready| ready.matches(arguments, caller)).map(|ready| &ready.rule)
    }

    /// The rule that denies every call of this tool, whatever its arguments; such a tool is not offered. A rule about
    /// callers counts only where the caller is known.
    pub fn deny_all_rule(&self, tool: &Definition, caller: Option<&Caller>) -> Option<&Rule> {
        let denying = self.0.iter().take_while(|ready| ready.rule.decision == Decision::Deny);
        denying.filter(|ready| ready.matches_every_call(tool, caller)).map(|ready| &ready.rule).next()
    }
}

#[cfg(test)]
mod tests;
