//! All policies of a hub: the default policy, policies by name pattern, and the rules.
//!
//! In: policies and rules in the order they were given. Out: the effective limits of one tool, and its gate. Precedence: the tool's own
//! policy, then policies by name (a later one overrides an earlier one), then the default.

use super::{Gate, Glob, Limits, Policy, Rule, RuleError, rules::Rules};
use crate::tool::Definition;

/// The policies and rules of a hub.
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
    /// A policy has invalid values.
    #[error("the policy for {what} is invalid: {reason}")]
    Policy {
        /// The tools it applies to.
        what: String,
        /// The reason.
        reason: String,
    },
    /// A rule is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl PolicySet {
    /// Validates and compiles the policies and rules.
    ///
    /// # Errors
    /// All problems, not only the first.
    pub fn new(
        default: Policy,
        policies_by_name: Vec<(String, Policy)>,
        rules: Vec<Rule>,
    ) -> Result<Self, Vec<PolicyError>> {
        let mut problems = Vec::new();
        let invalid = |what: &str, reason| PolicyError::Policy { what: what.into(), reason };
        problems.extend(default.check().err().map(|reason| invalid("all tools", reason)));
        let mut by_name = Vec::with_capacity(policies_by_name.len());
        for (name, policy) in policies_by_name {
            let what = format!("`{name}`");
            problems.extend(policy.check().err().map(|reason| invalid(&what, reason)));
            match Glob::new(&name) {
                Ok(glob) => by_name.push((glob, policy)),
                Err(reason) => problems.push(invalid(&what, reason)),
            }
        }
        let rules = Rules::new(rules).unwrap_or_else(|errors| {
            problems.extend(errors.into_iter().map(PolicyError::from));
            Rules::default()
        });
        if problems.is_empty() { Ok(Self { default, by_name, rules }) } else { Err(problems) }
    }

    /// The effective limits of a tool.
    pub fn limits(&self, definition: &Definition, own: &Policy) -> Limits {
        let named = self.by_name.iter().filter(|(glob, _)| glob.matches(&definition.name));
        let layered =
            named.fold(Limits::default().with_policy(&self.default), |limits, (_, policy)| limits.with_policy(policy));
        let mut limits = layered.with_policy(own);
        // A policy for many tools may set a cache although some of them have side effects; only read-only results are cached.
        limits.cache = limits.cache.filter(|_| definition.annotations.read_only);
        limits
    }

    /// The gate of a tool.
    pub fn gate(&self, definition: &Definition, limits: &Limits) -> Gate {
        Gate::new(&self.rules, definition, limits)
    }
}

impl Policy {
    /// Checks the values.
    ///
    /// # Errors
    /// All invalid values, joined into one text.
    pub fn check(&self) -> Result<(), String> {
        let rates = self.rate_limits.iter().flatten().filter_map(|limit| limit.check().err());
        let limits =
            [("max_concurrency", self.max_concurrency), ("max_concurrency_shared", self.max_concurrency_shared)];
        let concurrency = limits
            .into_iter()
            .filter(|(_, limit)| *limit == Some(0))
            .map(|(name, _)| format!("`{name}` is 0, so no call could ever run; use at least 1"));
        let attempts = self
            .retry
            .as_ref()
            .filter(|retry| retry.attempts == 0)
            .map(|_| "`attempts` is 0, so no call could ever run; 1 means no retries".to_owned());
        let problems: Vec<String> = rates.chain(concurrency).chain(attempts).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}
