//! The registry of tools: definitions, dependencies and executors. It cannot execute.
//!
//! In: tools, validated as a whole. Out: immutable snapshots (copy on write). A change swaps in a new snapshot; holders of the old
//! one keep the tools they were offered.

mod builder;
mod built_tools;
mod dependencies;
mod error;
mod reserved_names;
mod source_names;
mod source_tools;
mod tools;
mod toolset;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use smol_str::SmolStr;
use tokio_util::sync::CancellationToken;

pub(crate) use builder::BuildContext;
pub use builder::ToolBuilder;
pub(crate) use built_tools::BuiltTools;
pub use error::RegistryError;
pub(crate) use error::join_lines;
pub use source_names::DuplicateSource;
use source_names::SourceNames;
pub(crate) use source_tools::SourceReplacement;
pub use tools::{ToolFilter, Tools};
pub use toolset::Toolset;

use crate::execution::{EvidenceDemand, Tool};
use toolhub_state::StateManager;
use toolhub_types::{
    policy::{Glob, PolicySet},
    tool::ToolName,
};

/// Every tool the hub knows.
#[derive(Default)]
pub struct Registry {
    current: ArcSwap<Tools>,
    /// The lock is held from reading the snapshot to swapping it, so that no change is lost and all tools of a snapshot have the
    /// same policies.
    settings: Mutex<RegistrySettings>,
}

/// What applies to all tools.
#[derive(Default)]
struct RegistrySettings {
    policies: Arc<PolicySet>,
    sources: SourceNames,
}

impl RegistrySettings {
    /// Declares the sources that have the names of their tools.
    fn declare_sourced(&mut self, new: &mut BuiltTools) {
        for name in &new.sourced {
            let names = Glob::new(name.as_str()).into_iter().collect();
            if self.sources.add(&SmolStr::new(name.as_str()), names).is_err() {
                let reason = format!("there is a source of tools named `{name}`; choose another name");
                new.problems.push(RegistryError::Refused { tool: name.clone(), reason });
            }
        }
    }
}

impl Registry {
    /// An empty registry that applies these policies to its tools.
    pub(crate) fn with_policies(policies: PolicySet) -> Self {
        let settings = RegistrySettings { policies: Arc::new(policies), ..RegistrySettings::default() };
        Self { current: ArcSwap::default(), settings: Mutex::new(settings) }
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
    pub(crate) fn add(&self, mut new: BuiltTools, states: &StateManager) -> Result<(), RegistryError> {
        let mut settings = self.lock_settings();
        let sources = settings.sources.clone();
        settings.declare_sourced(&mut new);
        let added = self.current.load().with_added(new, &settings).and_then(|tools| with_state_settings(tools, states));
        match added {
            Ok(tools) => self.current.store(Arc::new(tools)),
            Err(error) => {
                settings.sources = sources;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes tools, and sources with their tools, adds or replaces others, and applies new policies, if given. `on_apply` runs
    /// under the same lock, so that no other change comes in between. Returns the snapshots before and after.
    pub(crate) fn apply(
        &self,
        (removed, mut new): (&[ToolName], BuiltTools),
        removed_sources: &[SmolStr],
        policies: Option<PolicySet>,
        states: &StateManager,
        on_apply: impl FnOnce(),
    ) -> Result<(Arc<Tools>, Arc<Tools>), RegistryError> {
        let mut settings = self.lock_settings();
        let (current, sources) = (settings.policies.clone(), settings.sources.clone());
        settings.policies = policies.map_or_else(|| current.clone(), Arc::new);
        removed_sources.iter().for_each(|source| settings.sources.remove(source));
        settings.declare_sourced(&mut new);
        let before = self.snapshot();
        let of_sources: Vec<ToolName> =
            removed_sources.iter().flat_map(|source| before.names_of_source(source)).collect();
        let others = before.without_all(&of_sources);
        let replaced = new.tools.iter().map(|tool| &tool.definition.name).chain(&new.sourced);
        let replaced: Vec<ToolName> = replaced.cloned().collect();
        new.problems.extend(replaced.iter().filter_map(|name| others.owner_conflict(name, None)));
        let retained = others.retained(removed.iter().chain(&replaced), &settings.policies);
        let applied = retained.with_added(new, &settings).and_then(|tools| with_state_settings(tools, states));
        let after = match applied {
            Ok(after) => Arc::new(after),
            Err(error) => {
                (settings.policies, settings.sources) = (current, sources);
                return Err(error);
            }
        };
        self.current.store(after.clone());
        on_apply();
        Ok((before, after))
    }

    /// Removes all tools; returns them.
    pub(crate) fn clear(&self) -> Arc<Tools> {
        let _lock = self.lock_settings();
        let before = self.snapshot();
        self.current.store(Arc::new(before.cleared()));
        before
    }

    /// Removes a tool. Tools that depend on it stay registered, and wait for it.
    pub(crate) fn remove(&self, name: &ToolName) -> Option<Arc<Tool>> {
        let _lock = self.lock_settings();
        let (remaining, removed) = self.current.load().without(name);
        self.current.store(Arc::new(remaining));
        removed
    }

    /// Removes sources with their tools and declares others with the names they may add, so that no name is free in between: other
    /// tools may depend on these before they exist. Removes tools of other sources that have such a name. `on_apply` runs under the
    /// same lock. Returns the snapshots before and after.
    pub(crate) fn replace_sources(
        &self,
        removed: &[SmolStr],
        added: impl IntoIterator<Item = (SmolStr, Vec<Glob>)>,
        on_apply: impl FnOnce(),
    ) -> Result<(Arc<Tools>, Arc<Tools>), DuplicateSource> {
        let mut settings = self.lock_settings();
        let mut sources = settings.sources.clone();
        removed.iter().for_each(|source| sources.remove(source));
        for (source, names) in added {
            sources.add(&source, names)?;
        }
        settings.sources = sources;
        on_apply();
        let before = self.snapshot();
        let of_removed = removed.iter().flat_map(|source| before.names_of_source(source)).collect();
        Ok(self.remove_obsolete(before, of_removed, &settings))
    }

    /// Replaces the names that a source may add; its tools stay. Removes tools of other sources that have such a name.
    pub(crate) fn rename_source_tools(&self, source: &SmolStr, names: Vec<Glob>) -> (Arc<Tools>, Arc<Tools>) {
        let mut settings = self.lock_settings();
        settings.sources.replace(source, names);
        self.remove_obsolete(self.snapshot(), Vec::new(), &settings)
    }

    /// Removes tools, and those of sources whose names belong to another source by now. Returns the snapshots before and after.
    fn remove_obsolete(
        &self,
        before: Arc<Tools>,
        mut obsolete: Vec<ToolName>,
        settings: &RegistrySettings,
    ) -> (Arc<Tools>, Arc<Tools>) {
        obsolete.extend(settings.sources.misplaced(&before));
        if obsolete.is_empty() {
            return (before.clone(), before);
        }
        let after = Arc::new(before.without_all(&obsolete));
        self.current.store(after.clone());
        (before, after)
    }

    /// The source that a name belongs to, also if it has not added it.
    pub(crate) fn owner(&self, name: &ToolName) -> Option<SmolStr> {
        self.lock_settings().sources.owner(name).cloned()
    }

    /// The source that a name belongs to, if it has not added any tool yet.
    pub(crate) fn absent_owner(&self, name: &ToolName) -> Option<SmolStr> {
        let owner = self.owner(name)?;
        let tools = self.snapshot();
        let has_tools = tools.names().filter_map(|name| tools.get(name)?.source()).any(|source| source == owner);
        (!has_tools).then_some(owner)
    }

    /// The other source that a name belongs to.
    pub(crate) fn other_owner(&self, source: &SmolStr, name: &ToolName) -> Option<SmolStr> {
        self.lock_settings().sources.other_owner(source, name).cloned()
    }

    /// Replaces the tools of a source. Tools that cannot be registered are left out, and named in the result. `None` if the source is
    /// to stop: another one may have its name by now.
    pub(crate) fn replace_source_tools(
        &self,
        source: &SmolStr,
        new: BuiltTools,
        states: &StateManager,
        stop: &CancellationToken,
    ) -> Option<SourceReplacement> {
        let settings = self.lock_settings();
        if stop.is_cancelled() {
            return None;
        }
        let replacement = source_tools::replace(&self.snapshot(), source, new, &settings);
        let (before, after) = (replacement.before.clone(), &replacement.after);
        match after.state_settings() {
            Ok(state_settings) => {
                states.apply_settings(&state_settings);
                self.current.store(after.clone());
                Some(replacement)
            }
            // Checked before, so that this does not happen; nothing changes then.
            Err(_) => Some(SourceReplacement { after: before, ..replacement }),
        }
    }

    fn lock_settings(&self) -> MutexGuard<'_, RegistrySettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with_state_settings(tools: Tools, states: &StateManager) -> Result<Tools, RegistryError> {
    states.apply_settings(&tools.state_settings()?);
    Ok(tools)
}
