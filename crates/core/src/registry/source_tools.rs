//! Replaces the tools of one source.
//!
//! In: the current tools and those that the source has now. Out: the next list, in which every tool that is unchanged stays as it is
//! and every tool that cannot be registered is left out, with its reason. Tools of others never change.

use std::{collections::HashSet, sync::Arc};

use smol_str::SmolStr;

use super::{RegistryError, RegistrySettings, Tools, built_tools::BuiltTools};
use crate::execution::Tool;
use toolhub_types::tool::ToolName;

/// The lists before and after a source replaced its tools, and why some could not be registered.
pub(crate) struct SourceReplacement {
    pub(crate) before: Arc<Tools>,
    pub(crate) after: Arc<Tools>,
    pub(crate) refused: Vec<RegistryError>,
}

pub(super) fn replace(
    before: &Arc<Tools>,
    source: &SmolStr,
    new: BuiltTools,
    settings: &RegistrySettings,
) -> SourceReplacement {
    let BuiltTools { tools, problems: mut refused, .. } = new;
    let (mut seen, mut changed) = (HashSet::new(), Vec::new());
    let mut obsolete: HashSet<ToolName> = before.names_of_source(source).into_iter().collect();
    for tool in tools {
        let name = &tool.definition.name;
        let conflict = if !settings.sources.allows(source, name) {
            Some(RegistryError::NotOfSource { tool: name.clone(), owner: source.to_string() })
        } else if let Some(owner) = settings.sources.other_owner(source, name) {
            Some(RegistryError::NameOfSource { tool: name.clone(), owner: owner.to_string() })
        } else if !seen.insert(name.clone()) {
            Some(RegistryError::Duplicate(name.clone()))
        } else {
            before.owner_conflict(name, Some(source))
        };
        match (conflict, before.get(name)) {
            (Some(conflict), _) => refused.push(conflict),
            (None, Some(old)) if old.is_same_registration(&tool) => drop(obsolete.remove(name)),
            (None, _) => changed.push(Tool { source: Some(source.clone()), ..tool }),
        }
    }
    let after = add_possible(before, &obsolete, changed, &mut refused, settings);
    SourceReplacement { before: before.clone(), after, refused }
}

/// The list without the obsolete tools, and with all new ones that can be registered together.
fn add_possible(
    before: &Arc<Tools>,
    obsolete: &HashSet<ToolName>,
    mut changed: Vec<Tool>,
    refused: &mut Vec<RegistryError>,
    settings: &RegistrySettings,
) -> Arc<Tools> {
    if changed.is_empty() && obsolete.is_empty() {
        return before.clone();
    }
    let remaining = before.retained(obsolete.iter(), &settings.policies);
    loop {
        let new = BuiltTools { tools: changed.clone(), ..BuiltTools::default() };
        let problems = match remaining.with_added(new, settings) {
            Ok(after) => return Arc::new(after),
            Err(error) => error.into_problems(),
        };
        let count = changed.len();
        changed.retain(|tool| !problems.iter().any(|problem| problem.tools().contains(&&tool.definition.name)));
        if changed.len() == count {
            // The problem is none of a new tool alone, so none of them can be added.
            changed.clear();
        }
        refused.extend(problems);
    }
}
