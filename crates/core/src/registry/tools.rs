//! An immutable list of tools. Changes produce a new list.

use std::{collections::HashMap, sync::Arc};

use super::{RegistryError, RegistrySettings, Toolset, built_tools::BuiltTools, dependencies};
use crate::execution::{EvidenceDemand, Tool};
use toolhub_schema::suggest;
use toolhub_state::SharedStateSettings;
use toolhub_types::{
    ids::StateName,
    policy::PolicySet,
    status::ToolStatus,
    tool::{Definition, Kind, ToolName},
};

/// An immutable list of tools.
#[derive(Default)]
pub struct Tools {
    by_name: HashMap<ToolName, Arc<Tool>>,
    /// The tools that others depend on.
    evidence_demands: HashMap<ToolName, EvidenceDemand>,
    /// The sequences that others depend on, by the tools in them.
    sequences: HashMap<ToolName, Vec<Arc<[ToolName]>>>,
    revision: u64,
}

/// Which tools to list.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only tools with this tag.
    pub tag: Option<String>,
    /// Only tools with this status in the shared scope. Only a hub knows statuses: [`ToolHub::list`](crate::ToolHub::list).
    pub status: Option<ToolStatus>,
}

impl Tools {
    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// What its dependents in this list need to know of its successes.
    pub(crate) fn evidence_demand(&self, name: &str) -> EvidenceDemand {
        // Fast path: every call comes here, and most hubs have no dependencies.
        if self.evidence_demands.is_empty() {
            EvidenceDemand::None
        } else {
            self.evidence_demands.get(name).copied().unwrap_or(EvidenceDemand::None)
        }
    }

    /// The names of all tools, also unlisted ones, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ToolName> {
        self.by_name.keys()
    }

    /// All tools, also unlisted ones, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.by_name.values()
    }

    /// The tools that others depend on, and what these need to know of their successes.
    pub(crate) fn evidence_demands(&self) -> impl Iterator<Item = (&ToolName, EvidenceDemand)> {
        self.evidence_demands.iter().map(|(tool, demand)| (tool, *demand))
    }

    /// The sequences that contain a tool and that others depend on.
    pub(crate) fn sequences_of(&self, tool: &ToolName) -> impl Iterator<Item = &[ToolName]> {
        self.sequences.get(tool).into_iter().flatten().map(AsRef::as_ref)
    }

    /// The tools that pass the filter except for its status, sorted by name.
    #[must_use]
    pub fn list(&self, filter: &ToolFilter) -> Vec<Arc<Tool>> {
        let mut tools: Vec<_> = self.listed().filter(|tool| filter.matches(&tool.definition)).cloned().collect();
        tools.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tools
    }

    /// The tools of a toolset, sorted by name.
    #[must_use]
    pub fn list_toolset(&self, toolset: &Toolset) -> Vec<Arc<Tool>> {
        let mut tools: Vec<_> = self.of_toolset(toolset).cloned().collect();
        tools.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tools
    }

    /// The tools of a toolset, in no order.
    pub(crate) fn of_toolset(&self, toolset: &Toolset) -> impl Iterator<Item = &Arc<Tool>> {
        self.listed().filter(|tool| toolset.contains(&tool.definition.name))
    }

    /// Names of tools similar to an unknown one, the closest first.
    #[must_use]
    pub fn suggest(&self, name: &str) -> Vec<String> {
        let names = self.listed().map(|tool| tool.definition.name.as_str());
        suggest::closest(name, names, 3).into_iter().map(String::from).collect()
    }

    /// The tools of this list that depend on another: on this one, if it is given. Sorted by name.
    pub(crate) fn dependents(&self, base: Option<&ToolName>) -> Vec<Arc<Tool>> {
        let is_dependent = |tool: &&Arc<Tool>| match base {
            Some(base) => tool.definition.depends_on.names().any(|name| name == base),
            None => !tool.definition.depends_on.is_empty(),
        };
        let mut tools: Vec<_> = self.by_name.values().filter(is_dependent).cloned().collect();
        tools.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tools
    }

    /// Only the tools of a toolset. Evidence demands of the whole list are kept.
    #[must_use]
    pub fn in_toolset(&self, toolset: &Toolset) -> Self {
        let names = self.listed().map(|tool| &tool.definition.name).filter(|name| toolset.contains(name));
        self.subset(&names.cloned().collect::<Vec<_>>())
    }

    /// Only the named tools. Evidence demands of the whole list are kept.
    pub(crate) fn subset(&self, names: &[ToolName]) -> Self {
        let selected = names.iter().filter_map(|name| self.by_name.get_key_value(name));
        let by_name = selected.map(|(name, tool)| (name.clone(), tool.clone())).collect();
        let (evidence_demands, sequences) = (self.evidence_demands.clone(), self.sequences.clone());
        Self { by_name, evidence_demands, sequences, revision: self.revision }
    }

    /// Whether both lists hold the same tools, with the same limits and evidence demands, so that calls behave alike.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let same = |(name, tool): (&ToolName, &Arc<Tool>)| {
            other.by_name.get(name).is_some_and(|theirs| Arc::ptr_eq(tool, theirs))
        };
        self.by_name.len() == other.by_name.len()
            && self.by_name.iter().all(same)
            && self.evidence_demands == other.evidence_demands
    }

    fn listed(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.by_name.values().filter(|tool| !tool.unlisted)
    }

    /// Number of tools that are not unlisted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.listed().count()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listed().next().is_none()
    }

    /// Grows with every change of the registry.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The empty list with the next revision.
    pub(super) fn cleared(&self) -> Self {
        Self { revision: self.revision + 1, ..Self::default() }
    }

    /// This list and the new tools, with the policies applied to them. No name may be taken already.
    /// All problems are reported together, also those of tools that could not be built.
    pub(super) fn with_added(&self, new: BuiltTools, settings: &RegistrySettings) -> Result<Self, RegistryError> {
        let BuiltTools { tools, failed, mut problems, sourced } = new;
        let mut by_name = self.by_name.clone();
        problems.extend(sourced.into_iter().filter(|name| by_name.contains_key(name)).map(RegistryError::Duplicate));
        let mut names = Vec::with_capacity(tools.len());
        for mut tool in tools {
            tool.apply_policies(&settings.policies);
            let name = tool.definition.name.clone();
            if by_name.insert(name.clone(), Arc::new(tool)).is_some() {
                problems.push(RegistryError::Duplicate(name));
            } else {
                names.push(name);
            }
        }
        let next = Self::with_demands(by_name, self.revision + 1);
        problems.extend(dependencies::check(&next, (&names, &failed), settings));
        problems.extend(next.state_settings().err());
        RegistryError::combine(problems)?;
        Ok(next)
    }

    /// The settings of each state, from all tools that use it.
    pub(super) fn state_settings(&self) -> Result<HashMap<StateName, SharedStateSettings>, RegistryError> {
        let mut all: HashMap<StateName, SharedStateSettings> = HashMap::new();
        for tool in self.by_name.values() {
            for state in &tool.state.names {
                all.entry(state.clone()).or_default().add(&tool.state).map_err(|setting| {
                    let reason = format!("another tool with the state `{state}` has a different `{setting}`");
                    RegistryError::Refused { tool: tool.definition.name.clone(), reason }
                })?;
            }
        }
        Ok(all)
    }

    pub(super) fn without(&self, name: &ToolName) -> (Self, Option<Arc<Tool>>) {
        let mut by_name = self.by_name.clone();
        let removed = by_name.remove(name);
        let revision = self.revision + u64::from(removed.is_some());
        (Self::with_demands(by_name, revision), removed)
    }

    /// The names of the tools that a source has added.
    pub(super) fn names_of_source(&self, source: &str) -> Vec<ToolName> {
        let of_source = self.by_name.iter().filter(|(_, tool)| tool.source() == Some(source));
        of_source.map(|(name, _)| name.clone()).collect()
    }

    /// Why a source, or `None` for the owner of the hub, cannot replace the tool of this name.
    pub(super) fn owner_conflict(&self, name: &ToolName, source: Option<&str>) -> Option<RegistryError> {
        let owner = self.by_name.get(name)?.source();
        (owner != source).then(|| match owner {
            Some(owner) => RegistryError::OwnedBySource { tool: name.clone(), owner: owner.into() },
            None => RegistryError::Duplicate(name.clone()),
        })
    }

    /// This list without the named tools.
    pub(super) fn without_all(&self, names: &[ToolName]) -> Self {
        let mut by_name = self.by_name.clone();
        names.iter().for_each(|name| drop(by_name.remove(name)));
        Self::with_demands(by_name, self.revision + 1)
    }

    /// This list without the named tools, with the policies applied to the rest. A tool for which nothing changes keeps its
    /// `Arc`.
    pub(super) fn retained<'a>(&self, removed: impl Iterator<Item = &'a ToolName>, policies: &PolicySet) -> Self {
        let mut by_name = self.by_name.clone();
        for name in removed {
            by_name.remove(name);
        }
        for tool in by_name.values_mut() {
            let mut updated: Tool = (**tool).clone();
            if updated.apply_policies(policies) {
                *tool = Arc::new(updated);
            }
        }
        Self { by_name, revision: self.revision, ..Self::default() }
    }

    fn with_demands(by_name: HashMap<ToolName, Arc<Tool>>, revision: u64) -> Self {
        let (evidence_demands, sequences) =
            (dependencies::evidence_demands(&by_name), dependencies::sequences(&by_name));
        Self { by_name, evidence_demands, sequences, revision }
    }
}

impl ToolFilter {
    fn matches(&self, definition: &Definition) -> bool {
        self.kind.as_ref().is_none_or(|kind| definition.kind == *kind)
            && self.tag.as_ref().is_none_or(|tag| definition.metadata.tags.contains(tag))
    }
}
