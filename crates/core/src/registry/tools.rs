//! One list of tools. It never changes; changes make another list.

use std::{collections::HashMap, sync::Arc};

use super::{RegistryError, Toolset, dependencies};
use crate::execution::{EvidenceDemand, Tool};
use toolhub_schema::suggest;
use toolhub_types::{
    ids::StateName,
    policy::PolicySet,
    state_config::ManagerType,
    tool::{Definition, Kind, ToolName},
};

/// A list of tools that never changes.
#[derive(Default)]
pub struct Tools {
    by_name: HashMap<ToolName, Arc<Tool>>,
    /// The tools others wait for.
    evidence_demands: HashMap<ToolName, EvidenceDemand>,
    revision: u64,
}

/// Which tools to list.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only tools with this tag.
    pub tag: Option<String>,
}

impl Tools {
    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// Whether other tools of this list wait for it.
    pub(crate) fn evidence_demand(&self, name: &str) -> EvidenceDemand {
        // Most hubs have no dependencies at all, and every call asks.
        if self.evidence_demands.is_empty() {
            EvidenceDemand::None
        } else {
            self.evidence_demands.get(name).copied().unwrap_or(EvidenceDemand::None)
        }
    }

    /// The tools that pass the filter, by name.
    #[must_use]
    pub fn list(&self, filter: &ToolFilter) -> Vec<Arc<Tool>> {
        let mut tools: Vec<_> =
            self.by_name.values().filter(|tool| filter.matches(&tool.definition)).cloned().collect();
        tools.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tools
    }

    /// Known names close to one that is not known, the closest first.
    #[must_use]
    pub fn suggest(&self, name: &str) -> Vec<String> {
        suggest::closest(name, self.by_name.keys().map(ToolName::as_str), 3).into_iter().map(String::from).collect()
    }

    /// The tools of this list that wait for this one, by name.
    pub(crate) fn dependents_of(&self, base: &ToolName) -> Vec<Arc<Tool>> {
        let waits = |tool: &&Arc<Tool>| tool.definition.depends_on.names().any(|name| name == base);
        let mut tools: Vec<_> = self.by_name.values().filter(waits).cloned().collect();
        tools.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tools
    }

    /// Only those of a toolset. What others wait for is still known.
    #[must_use]
    pub fn in_toolset(&self, toolset: &Toolset) -> Self {
        let names: Vec<ToolName> = self.by_name.keys().filter(|name| toolset.contains(name)).cloned().collect();
        self.subset(&names)
    }

    /// Only these of the list. What others wait for is still known.
    pub(crate) fn subset(&self, names: &[ToolName]) -> Self {
        let chosen = names.iter().filter_map(|name| self.by_name.get_key_value(name));
        let by_name = chosen.map(|(name, tool)| (name.clone(), tool.clone())).collect();
        Self { by_name, evidence_demands: self.evidence_demands.clone(), revision: self.revision }
    }

    /// Whether a call among these would meet the same tools as one among the others, down to their limits and to what others
    /// wait for.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let same = |(name, tool): (&ToolName, &Arc<Tool>)| {
            other.by_name.get(name).is_some_and(|theirs| Arc::ptr_eq(tool, theirs))
        };
        self.by_name.len() == other.by_name.len()
            && self.by_name.iter().all(same)
            && self.evidence_demands == other.evidence_demands
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Grows with every change of the registry.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The list that follows when all tools are gone.
    pub(super) fn cleared(&self) -> Self {
        Self { revision: self.revision + 1, ..Self::default() }
    }

    /// These tools and the new ones, which are held to the book. No name may be there already.
    pub(super) fn with_added(&self, new: Vec<Tool>, book: &PolicySet) -> Result<Self, RegistryError> {
        let mut by_name = self.by_name.clone();
        let mut names = Vec::with_capacity(new.len());
        for mut tool in new {
            tool.apply_policies(book);
            let name = tool.definition.name.clone();
            if by_name.insert(name.clone(), Arc::new(tool)).is_some() {
                return Err(RegistryError::Duplicate(name));
            }
            names.push(name);
        }
        let next =
            Self { evidence_demands: dependencies::evidence_demands(&by_name), by_name, revision: self.revision + 1 };
        dependencies::check(&next, &names)?;
        next.manager_types()?;
        Ok(next)
    }

    /// Who keeps each state of these tools, as far as one of them says so.
    pub(super) fn manager_types(&self) -> Result<HashMap<StateName, Option<ManagerType>>, RegistryError> {
        let mut all: HashMap<StateName, Option<ManagerType>> = HashMap::new();
        for tool in self.by_name.values() {
            for state in &tool.state.names {
                let said = all.entry(state.clone()).or_default();
                if said.is_some() && tool.state.manager.is_some() && *said != tool.state.manager {
                    let reason = format!("another tool keeps the state `{state}` with another `manager_type`");
                    return Err(RegistryError::Refused { tool: tool.definition.name.clone(), reason });
                }
                *said = said.or(tool.state.manager);
            }
        }
        Ok(all)
    }

    pub(super) fn without(&self, name: &ToolName) -> (Self, Option<Arc<Tool>>) {
        let mut by_name = self.by_name.clone();
        let gone = by_name.remove(name);
        let revision = self.revision + u64::from(gone.is_some());
        (Self { evidence_demands: dependencies::evidence_demands(&by_name), by_name, revision }, gone)
    }

    /// These tools without the named ones, and all that stay held to the book. A tool for which nothing changes is the very
    /// same as before.
    pub(super) fn retained<'a>(&self, without: impl Iterator<Item = &'a ToolName>, book: &PolicySet) -> Self {
        let mut by_name = self.by_name.clone();
        for name in without {
            by_name.remove(name);
        }
        for tool in by_name.values_mut() {
            let mut held: Tool = (**tool).clone();
            if held.apply_policies(book) {
                *tool = Arc::new(held);
            }
        }
        Self { by_name, evidence_demands: HashMap::new(), revision: self.revision }
    }
}

impl ToolFilter {
    fn matches(&self, definition: &Definition) -> bool {
        self.kind.as_ref().is_none_or(|kind| definition.kind == *kind)
            && self.tag.as_ref().is_none_or(|tag| definition.metadata.tags.contains(tag))
    }
}
