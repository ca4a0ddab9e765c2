//! Checks the dependency graph: every name is registered or may be added by a source, and there is no cycle.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{RegistryError, RegistrySettings, Tools};
use crate::execution::{EvidenceDemand, Tool};
use toolhub_types::tool::{DependencyGroup, ToolName};

/// All problems with the dependencies of the `new` tools. Those of the others were checked when they were added. The `failed`
/// tools could not be built, which is reported already.
pub(super) fn check(
    tools: &Tools,
    (new, failed): (&[ToolName], &[ToolName]),
    settings: &RegistrySettings,
) -> Vec<RegistryError> {
    let mut problems = Vec::new();
    for name in new {
        let Some(tool) = tools.get(name) else { continue };
        let mut reported = HashSet::new();
        let is_missing = |base: &&ToolName| {
            tools.get(base).is_none() && !failed.contains(base) && !settings.sources.may_be_added(base)
        };
        for missing in tool.definition.depends_on.names().filter(is_missing).filter(|base| reported.insert(*base)) {
            let (tool, missing, suggestions) = (name.clone(), missing.clone(), tools.suggest(missing));
            problems.push(RegistryError::UnknownDependency { tool, missing, suggestions });
        }
    }
    let mut explored = HashSet::new();
    for name in new.iter().filter_map(|name| tools.get(name)) {
        if let Some(cycle) = find_cycle(tools, &name.definition.name, &mut explored) {
            problems.push(RegistryError::DependencyCycle(cycle));
        }
    }
    problems
}

/// Every tool that others depend on, and what they need to know of its successes.
pub(super) fn evidence_demands(tools: &HashMap<ToolName, Arc<Tool>>) -> HashMap<ToolName, EvidenceDemand> {
    let mut bases = HashMap::new();
    for group in tools.values().flat_map(|tool| &tool.definition.depends_on.0) {
        let demand = if group.within().is_some() { EvidenceDemand::Latest } else { EvidenceDemand::Once };
        for tool in group.tools() {
            let strictest = bases.entry(tool.clone()).or_insert(demand);
            *strictest = demand.max(*strictest);
        }
    }
    bases
}

/// For every tool, the sequences that contain it and that others depend on.
pub(super) fn sequences(tools: &HashMap<ToolName, Arc<Tool>>) -> HashMap<ToolName, Vec<Arc<[ToolName]>>> {
    let mut by_tool: HashMap<ToolName, Vec<Arc<[ToolName]>>> = HashMap::new();
    for group in tools.values().flat_map(|tool| &tool.definition.depends_on.0) {
        let DependencyGroup::Sequence { tools, .. } = group else { continue };
        let sequence: Arc<[ToolName]> = tools.as_slice().into();
        for tool in tools {
            let known = by_tool.entry(tool.clone()).or_default();
            if !known.contains(&sequence) {
                known.push(sequence.clone());
            }
        }
    }
    by_tool
}

/// Depth-first search for a cycle, without recursion: a long chain must not overflow the stack. `explored` holds the tools whose
/// cycles, if any, were found already.
fn find_cycle<'a>(
    tools: &'a Tools,
    start: &'a ToolName,
    explored: &mut HashSet<&'a ToolName>,
) -> Option<Vec<ToolName>> {
    if explored.contains(start) {
        return None;
    }
    let mut path: Vec<(&ToolName, Vec<&ToolName>)> = vec![(start, dependencies_of(tools, start))];
    while let Some((name, unvisited)) = path.last_mut() {
        let Some(next) = unvisited.pop() else {
            explored.insert(name);
            path.pop();
            continue;
        };
        if let Some(start) = path.iter().position(|(visited, _)| *visited == next) {
            explored.extend(path.iter().map(|(name, _)| *name));
            return Some(path[start..].iter().map(|(name, _)| (*name).clone()).chain([next.clone()]).collect());
        }
        if !explored.contains(next) {
            path.push((next, dependencies_of(tools, next)));
        }
    }
    None
}

fn dependencies_of<'a>(tools: &'a Tools, name: &str) -> Vec<&'a ToolName> {
    tools.get(name).map(|tool| tool.definition.depends_on.names().collect()).unwrap_or_default()
}
