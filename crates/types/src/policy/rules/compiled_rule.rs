//! A rule whose texts have been read.
//!
//! In: a rule as written. Out: everything that is wrong with it, or whether it matches a call.

use serde_json::Value;

use super::{Rule, RuleError, condition::Condition};
use crate::{ids::Caller, policy::glob::Glob, tool::Definition};

/// A rule ready to be asked.
#[derive(Debug, Clone)]
pub(super) struct CompiledRule {
    pub(super) rule: Rule,
    tool: Glob,
    conditions: Vec<Condition>,
    caller: Option<Glob>,
}

/// A rule is what was written; the rest is made of it.
impl PartialEq for CompiledRule {
    fn eq(&self, other: &Self) -> bool {
        self.rule == other.rule
    }
}

impl CompiledRule {
    pub(super) fn new(rule: Rule) -> Result<Self, RuleError> {
        let mut problems = Vec::new();
        let tool = Glob::new(rule.tool.as_str()).map_err(|flaw| problems.push(format!("tool: {flaw}"))).ok();
        let caller = rule.caller.as_deref().map(Glob::new).transpose();
        let caller = caller.map_err(|flaw| problems.push(format!("caller: {flaw}"))).ok();
        let mut conditions = Vec::with_capacity(rule.arguments.len());
        for raw in &rule.arguments {
            match Condition::new(raw) {
                Ok(condition) => conditions.push(condition),
                Err(flaws) => problems.extend(flaws),
            }
        }
        match (tool, caller) {
            (Some(tool), Some(caller)) if problems.is_empty() => Ok(Self { rule, tool, conditions, caller }),
            _ => Err(RuleError { rule: rule.label(), problems }),
        }
    }

    /// Whether it has something to say about this call of a tool it fits.
    pub(super) fn matches(&self, arguments: &Value, caller: &Caller) -> bool {
        self.caller.as_ref().is_none_or(|wanted| wanted.matches(caller.as_str()))
            && self.conditions.iter().all(|condition| condition.matches(arguments))
    }

    /// Whether it has something to say about every call of this tool, as far as the caller is known.
    pub(super) fn matches_every_call(&self, tool: &Definition, caller: Option<&Caller>) -> bool {
        self.conditions.is_empty()
            && self.matches_tool(tool)
            && self.caller.as_ref().is_none_or(|wanted| caller.is_some_and(|known| wanted.matches(known.as_str())))
    }

    /// Whether it speaks of tools like this one.
    pub(super) fn matches_tool(&self, tool: &Definition) -> bool {
        self.tool.matches(&tool.name) && self.rule.annotations.matches(&tool.annotations)
    }
}
