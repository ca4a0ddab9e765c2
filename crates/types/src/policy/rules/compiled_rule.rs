//! A rule with its globs and regular expressions compiled.
//!
//! In: a rule. Out: all problems of its texts, or a matcher for tools and calls.

use serde_json::Value;

use super::{Rule, RuleError, condition::Condition};
use crate::{ids::Caller, policy::glob::Glob, tool::Definition};

/// A rule ready for matching.
#[derive(Debug, Clone)]
pub(super) struct CompiledRule {
    pub(super) rule: Rule,
    tool: Glob,
    conditions: Vec<Condition>,
    caller: Option<Glob>,
}

/// Compares the source rule only; the other fields are derived from it.
impl PartialEq for CompiledRule {
    fn eq(&self, other: &Self) -> bool {
        self.rule == other.rule
    }
}

impl CompiledRule {
    pub(super) fn new(rule: Rule) -> Result<Self, RuleError> {
        let mut problems = Vec::new();
        let tool = Glob::new(rule.tool.as_str()).map_err(|error| problems.push(format!("tool: {error}"))).ok();
        let caller = rule.caller.as_deref().map(Glob::new).transpose();
        let caller = caller.map_err(|error| problems.push(format!("caller: {error}"))).ok();
        let mut conditions = Vec::with_capacity(rule.arguments.len());
        for raw in &rule.arguments {
            match Condition::new(raw) {
                Ok(condition) => conditions.push(condition),
                Err(errors) => problems.extend(errors),
            }
        }
        match (tool, caller) {
            (Some(tool), Some(caller)) if problems.is_empty() => Ok(Self { rule, tool, conditions, caller }),
            _ => Err(RuleError { rule: rule.label(), problems }),
        }
    }

    /// Whether it matches this call, given that it matches the tool.
    pub(super) fn matches(&self, arguments: &Value, caller: &Caller) -> bool {
        self.caller.as_ref().is_none_or(|glob| glob.matches(caller.as_str()))
            && self.conditions.iter().all(|condition| condition.matches(arguments))
    }

    /// Whether it matches every call of this tool. A rule with a caller pattern does so only if the given caller matches.
    pub(super) fn matches_every_call(&self, tool: &Definition, caller: Option<&Caller>) -> bool {
        self.conditions.is_empty()
            && self.matches_tool(tool)
            && self.caller.as_ref().is_none_or(|glob| caller.is_some_and(|caller| glob.matches(caller.as_str())))
    }

    /// Whether its name pattern and annotations match this tool.
    pub(super) fn matches_tool(&self, tool: &Definition) -> bool {
        self.tool.matches(&tool.name) && self.rule.annotations.matches(&tool.annotations)
    }
}
