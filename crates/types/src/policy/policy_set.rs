//! Everything that was said about tools: by default, by name, and as rules.
//!
//! In: policies and rules in the order they were given. Out: what holds for one tool, and its gate. What is said about
//! the tool itself weighs most, then what is said by name, the later over the earlier, then the default.

use super::{Gate, Glob, Limits, Policy, Rule, RuleError, rules::Rules};
use crate::tool::Definition;

/// What a hub's owner said about its tools.
#[derive(Debug, Default)]
pub struct PolicySet {
    default: Policy,
    by_name: Vec<(Glob, Policy)>,
    rules: Rules,
}

/// Why a policy or rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A policy's own figures make no sense.
    #[error("the policy for {what} cannot be used: {reason}")]
    Policy {
        /// Which one.
        what: String,
        /// Why.
        reason: String,
    },
    /// A rule cannot be read.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl PolicySet {
    /// Reads what was said.
    ///
    /// # Errors
    /// Every problem, all at once.
    pub fn new(default: Policy, said: Vec<(String, Policy)>, rules: Vec<Rule>) -> Result<Self, Vec<PolicyError>> {
        let mut problems = Vec::new();
        let wrong = |what: &str, reason| PolicyError::Policy { what: what.into(), reason };
        problems.extend(default.check().err().map(|reason| wrong("all tools", reason)));
        let mut by_name = Vec::with_capacity(said.len());
        for (name, policy) in said {
            let what = format!("`{name}`");
            problems.extend(policy.check().err().map(|reason| wrong(&what, reason)));
            match Glob::new(&name) {
                Ok(glob) => by_name.push((glob, policy)),
                Err(flaw) => problems.push(wrong(&what, flaw)),
            }
        }
        let rules = Rules::new(rules).unwrap_or_else(|flaws| {
            problems.extend(flaws.into_iter().map(PolicyError::from));
            Rules::default()
        });
        if problems.is_empty() { Ok(Self { default, by_name, rules }) } else { Err(problems) }
    }

    /// What holds for a tool.
    pub fn limits(&self, definition: &Definition, own: &Policy) -> Limits {
        let named = self.by_name.iter().filter(|(glob, _)| glob.matches(&definition.name));
        let layered =
            named.fold(Limits::default().with_policy(&self.default), |limits, (_, said)| limits.with_policy(said));
        let mut limits = layered.with_policy(own);
        // Said about many tools at once, it is meant for those that can: an answer of a tool with effects is not kept.
        limits.cache = limits.cache.filter(|_| definition.annotations.read_only);
        limits
    }

    /// The rules about a tool.
    pub fn gate(&self, definition: &Definition, limits: &Limits) -> Gate {
        Gate::new(&self.rules, definition, limits)
    }
}

impl Policy {
    /// Whether the figures make sense; everything that does not is named.
    pub fn check(&self) -> Result<(), String> {
        let rates = self.rate_limits.iter().flatten().filter_map(|limit| limit.check().err());
        let slots = (self.max_concurrency == Some(0))
            .then(|| "`max_concurrency` is 0, so no call could ever run; use at least 1".to_owned());
        let attempts = self
            .retry
            .as_ref()
            .filter(|retry| retry.attempts == 0)
            .map(|_| "`attempts` is 0, so no call could ever run; 1 means that nothing is tried again".to_owned());
        let wrong: Vec<String> = rates.chain(slots).chain(attempts).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }
}
