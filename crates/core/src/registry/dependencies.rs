//! Checks that what tools wait for can come: every name is known, and nothing waits for itself.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{RegistryError, Tools};
use crate::execution::{EvidenceDemand, Tool};
use toolhub_types::tool::ToolName;

/// Checks the dependencies that start at `new` tools. Those of older tools were checked when they came.
pub(super) fn check(tools: &Tools, new: &[ToolName]) -> Result<(), RegistryError> {
    for name in new {
        let Some(tool) = tools.get(name) else { continue };
        if let Some(missing) = tool.definition.depends_on.names().find(|base| tools.get(base).is_none()) {
            let close = tools.suggest(missing);
            return Err(RegistryError::UnknownDependency { tool: name.clone(), missing: missing.clone(), close });
        }
    }
    let mut harmless = HashSet::new();
    for name in new {
        if let Some(circle) = find_cycle(tools, name, &mut harmless) {
            return Err(RegistryError::DependencyCycle(circle));
        }
    }
    Ok(())
}

/// Every tool that others wait for.
pub(super) fn evidence_demands(tools: &HashMap<ToolName, Arc<Tool>>) -> HashMap<ToolName, EvidenceDemand> {
    let mut bases = HashMap::new();
    for group in tools.values().flat_map(|tool| &tool.definition.depends_on.0) {
        let wanted = if group.within().is_some() { EvidenceDemand::Latest } else { EvidenceDemand::Once };
        for tool in group.tools() {
            let known = bases.entry(tool.clone()).or_insert(wanted);
            *known = wanted.max(*known);
        }
    }
    bases
}

/// Walks from a tool to what it waits for, without recursion: a long chain must not exhaust the stack.
fn find_cycle<'a>(
    tools: &'a Tools,
    start: &'a ToolName,
    harmless: &mut HashSet<&'a ToolName>,
) -> Option<Vec<ToolName>> {
    let mut path: Vec<(&ToolName, Vec<&ToolName>)> = vec![(start, dependencies_of(tools, start))];
    while let Some((name, ahead)) = path.last_mut() {
        let Some(next) = ahead.pop() else {
            harmless.insert(name);
            path.pop();
            continue;
        };
        if let Some(at) = path.iter().position(|(seen, _)| *seen == next) {
            return Some(path[at..].iter().map(|(seen, _)| (*seen).clone()).chain([next.clone()]).collect());
        }
        if !harmless.contains(next) {
            path.push((next, dependencies_of(tools, next)));
        }
    }
    None
}

fn dependencies_of<'a>(tools: &'a Tools, name: &str) -> Vec<&'a ToolName> {
    tools.get(name).map(|tool| tool.definition.depends_on.names().collect()).unwrap_or_default()
}
