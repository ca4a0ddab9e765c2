//! Whether what was said about a hub can hold.
//!
//! In: a hub in the making. Out: what was said about tools, ready to be used, or every problem at once. Nothing is opened or
//! begun here.

use std::sync::Arc;

use super::{BuildError, HubBuilder};
use crate::{hooks::Hook, redact::Redactor};
use toolhub_types::{
    policy::{Glob, PolicyError, PolicySet},
    state_config::ManagerType,
};

/// What was said about tools, the code around their calls, and what is not told.
pub(super) type ValidatedParts = (PolicySet, Vec<(Glob, Arc<dyn Hook>)>, Arc<Redactor>);

impl HubBuilder {
    /// What was said about tools, and the code around their calls.
    #[allow(clippy::result_large_err, reason = "asked once in the life of a hub")]
    pub(super) fn validate(&mut self) -> Result<ValidatedParts, BuildError> {
        if let Some(kind) = self.duplicate_executor.take() {
            return Err(BuildError::DuplicateExecutor(kind));
        }
        let (defaults, policies) = (std::mem::take(&mut self.default_policy), std::mem::take(&mut self.policies));
        let book = PolicySet::new(defaults, policies, std::mem::take(&mut self.rules));
        let mut problems = Vec::new();
        let book = book.unwrap_or_else(|found| {
            problems.extend(found);
            PolicySet::default()
        });
        let mut hooks = Vec::with_capacity(self.hooks.len());
        for (tools, hook) in std::mem::take(&mut self.hooks) {
            match Glob::new(&tools) {
                Ok(glob) => hooks.push((glob, hook)),
                Err(reason) => problems.push(policy_error(format!("the hook on `{tools}`"), reason)),
            }
        }
        if self.max_concurrency == Some(0) {
            let reason = "no call could ever run; use at least 1".into();
            problems.push(policy_error("`max_concurrency`".into(), reason));
        }
        problems.extend(self.check_state_config());
        let mut secrets = Vec::with_capacity(self.secret_names.len());
        for name in std::mem::take(&mut self.secret_names) {
            match Glob::new(name.to_lowercase()) {
                Ok(glob) => secrets.push(glob),
                Err(reason) => problems.push(policy_error("the names of secrets".into(), reason)),
            }
        }
        if problems.is_empty() {
            Ok((book, hooks, Arc::new(Redactor(secrets))))
        } else {
            Err(BuildError::Policy(problems))
        }
    }

    fn check_state_config(&self) -> Vec<PolicyError> {
        let nonsense = self.state_manager.invalid_settings().into_iter().chain(self.business_state.invalid_settings());
        let nonsense = nonsense.map(|(field, reason)| policy_error(format!("the `{field}` of states"), reason.into()));
        let unheeded = self.state_manager.unsupported_settings().into_iter();
        let unheeded = unheeded
            .map(|field| policy_error(format!("`{field}`"), "nothing here can do that yet; leave it out".into()));
        let mut problems: Vec<PolicyError> = nonsense.chain(unheeded).collect();
        let disk = Some(ManagerType::Persistent);
        if self.state_manager.manager_type != disk && self.tools.iter().all(|tool| tool.manager() != disk) {
            // Taken silently, they would promise what does not happen.
            let idle =
                self.business_state.disk_only_settings().into_iter().chain(self.state_manager.disk_only_settings());
            let reason = "only the persistent manager heeds it; say `manager_type = persistent` for the hub or a tool";
            problems.extend(idle.map(|field| policy_error(format!("`{field}`"), reason.into())));
        }
        problems
    }
}

fn policy_error(what: String, reason: String) -> PolicyError {
    PolicyError::Policy { what, reason }
}
