//! The registry of tools: definitions, dependencies and executors. It cannot execute.
//!
//! In: tools, validated as a whole. Out: immutable snapshots (copy on write). A change swaps in a new snapshot; holders of the old
//! one keep the tools they were offered.

mod builder;
mod built_tools;
mod dependencies;
mod error;
mod reserved_names;
mod tools;
mod toolset;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

pub(crate) use builder::BuildContext;
pub use builder::ToolBuilder;
pub(crate) use built_tools::BuiltTools;
pub use error::RegistryError;
pub(crate) use error::join_lines;
pub use tools::{ToolFilter, Tools};
pub use toolset::Toolset;

use crate::execution::{EvidenceDemand, Tool};
use toolhub_state::StateManager;
use toolhub_types::{policy::PolicySet, tool::ToolName};

/// Every tool the hub knows.
#[derive(Default)]
pub struct Registry {
    current: ArcSwap<Tools>,
    /// The current policies. The lock is held from reading the snapshot to swapping it, so that no change is lost and all
    /// tools of a snapshot have the same policies.
    policies: Mutex<Arc<PolicySet>>,
}

impl Registry {
    /// An empty registry that applies these policies to its tools.
    pub(crate) fn with_policies(policies: PolicySet) -> Self {
        Self { current: ArcSwap::default(), policies: Mutex::new(Arc::new(policies)) }
    }

    /// An immutable snapshot of the current tools.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Tools> {
        self.current.load_full()
    }

    /// The tool of this name, and what its dependents need to know of its successes.
    pub(crate) fn find(&self, name: &str) -> Option<(Arc<Tool>, EvidenceDemand)> {
        let tools = self.current.load();
        tools.get(name).map(|tool| (tool.clone(), tools.evidence_demand(name)))
    }

    /// Adds tools, all or none. The settings of their states are applied in `states` before the tools can be called.
    pub(crate) fn add(&self, new: BuiltTools, states: &StateManager) -> Result<(), RegistryError> {
        let policies = self.lock_policies();
        self.current.store(Arc::new(with_state_settings(self.current.load().with_added(new, &policies)?, states)?));
        Ok(())
    }

    /// Removes tools, adds or replaces others, and applies new policies, if given. `on_apply` runs under the same lock, so that
    /// no other change comes in between. Returns the snapshots before and after.
    pub(crate) fn apply(
        &self,
        (removed, new): (&[ToolName], BuiltTools),
        policies: Option<PolicySet>,
        states: &StateManager,
        on_apply: impl FnOnce(),
    ) -> Result<(Arc<Tools>, Arc<Tools>), RegistryError> {
        let mut current_policies = self.lock_policies();
        let policies = policies.map_or_else(|| current_policies.clone(), Arc::new);
        let before = self.snapshot();
        let replaced: Vec<ToolName> = new.tools.iter().map(|tool| tool.definition.name.clone()).collect();
        let retained = before.retained(removed.iter().chain(&replaced), &policies);
        let after = Arc::new(with_state_settings(retained.with_added(new, &policies)?, states)?);
        self.current.store(after.clone());
        *current_policies = policies;
        on_apply();
        Ok((before, after))
    }

    /// Removes all tools; returns them.
    pub(crate) fn clear(&self) -> Arc<Tools> {
        let _lock = self.lock_policies();
        let before = self.snapshot();
        self.current.store(Arc::new(before.cleared()));
        before
    }

    /// Removes a tool. Tools that depend on it stay registered, and wait for it.
    pub(crate) fn remove(&self, name: &ToolName) -> Option<Arc<Tool>> {
        let _lock = self.lock_policies();
        let (remaining, removed) = self.current.load().without(name);
        self.current.store(Arc::new(remaining));
        removed
    }

    fn lock_policies(&self) -> MutexGuard<'_, Arc<PolicySet>> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with_state_settings(tools: Tools, states: &StateManager) -> Result<Tools, RegistryError> {
    states.apply_settings(&tools.state_settings()?);
    Ok(tools)
}
