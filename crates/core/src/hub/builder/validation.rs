//! Validates the settings of a `HubBuilder`.
//!
//! In: a builder. Out: policies, hooks and the redactor, ready to use, or all problems together. Opens and starts nothing.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{BuildError, HubBuilder};
use crate::hooks::Hook;
use toolhub_storage::backend::Memory;
use toolhub_types::redact::Redactor;
use toolhub_types::{
    policy::{Glob, PolicyError, PolicySet},
    state_config::ManagerType,
};

/// Policies of tools, hooks by glob, and the redactor of secrets.
pub(super) type ValidatedParts = (PolicySet, Vec<(Glob, Arc<dyn Hook>)>, Arc<Redactor>);

impl HubBuilder {
    /// Validates all settings, and takes policies, hooks and secret names out of the builder.
    #[allow(clippy::result_large_err, reason = "called once per hub")]
    pub(super) fn validate(&mut self) -> Result<ValidatedParts, BuildError> {
        let duplicate = self.duplicate_executor.take().map(BuildError::DuplicateExecutor);
        let (defaults, policies) = (std::mem::take(&mut self.default_policy), std::mem::take(&mut self.policies));
        let policies = PolicySet::new(defaults, policies, std::mem::take(&mut self.rules));
        let mut problems = Vec::new();
        let policies = policies.unwrap_or_else(|found| {
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
        let invalid = (!problems.is_empty()).then_some(BuildError::Policy(problems));
        match (duplicate, invalid) {
            (None, None) => Ok((policies, hooks, Arc::new(Redactor(secrets)))),
            (Some(error), more) => Err(BuildError::combine(error, more)),
            (None, Some(error)) => Err(error),
        }
    }

    /// The problems of the tools alone, found with a hub in memory that is discarded.
    pub(super) async fn check_tools(self, runtime: Handle) -> Option<BuildError> {
        let mut trial = Self {
            tools: self.tools,
            executors: self.executors,
            state_store_factory: Some(Arc::new(|_, _| Ok(Arc::new(Memory::new())))),
            ..Self::new()
        };
        match trial.validate() {
            Ok(parts) => trial.assemble(parts, runtime).await.err(),
            Err(error) => Some(error),
        }
    }

    fn check_state_config(&self) -> Vec<PolicyError> {
        let invalid = self.state_manager.invalid_settings().into_iter().chain(self.business_state.invalid_settings());
        let invalid =
            invalid.map(|(field, reason)| policy_error(format!("the state setting `{field}`"), reason.into()));
        let mut problems: Vec<PolicyError> = invalid.collect();
        let business = self.business_state.disk_only_settings();
        let disk_only = business.into_iter().chain(self.state_manager.disk_only_settings()).collect();
        let redis_only = self.state_manager.redis_only_settings();
        // Ignoring settings silently would promise something that does not happen.
        let managers =
            [(ManagerType::Persistent, "persistent", disk_only), (ManagerType::Distributed, "distributed", redis_only)];
        for (manager, name, settings) in managers {
            let manager = Some(manager);
            if self.state_manager.manager_type != manager && self.tools.iter().all(|tool| tool.manager() != manager) {
                let reason =
                    format!("only the {name} manager uses it; set `manager_type = {name}` for the hub or a tool");
                problems.extend(settings.into_iter().map(|field| policy_error(format!("`{field}`"), reason.clone())));
            }
        }
        problems
    }
}

fn policy_error(what: String, reason: String) -> PolicyError {
    PolicyError::Policy { what, reason }
}
