//! Merges the lists of all sources. The result depends on the lists only, not on the order in which the sources came.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;

use super::{HubLists, ListRevisions, SourceLists};
use toolhub_types::resource::{Prompt, Resource, ResourceTemplate};

/// What is in front of a URI that another source has already.
const SOURCE_PREFIX: &str = "toolhub://sources/";

/// The URI of an entry at its source.
pub(super) fn original_uri<'a>(source: &str, uri: &'a str) -> &'a str {
    let rest = uri.strip_prefix(SOURCE_PREFIX).and_then(|rest| rest.strip_prefix(source));
    rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or(uri)
}

/// The merged lists. A list that has not changed keeps the revision that it had before.
pub(super) fn merge(sources: &BTreeMap<SmolStr, Arc<SourceLists>>, before: &HubLists) -> HubLists {
    let mut merged = HubLists { sources: sources.clone(), ..HubLists::default() };
    for (source, lists) in sources {
        if lists.readers.prompt.is_some() {
            for (name, prompt) in &lists.prompts {
                if !merged.prompt_sources.contains_key(name) {
                    merged.prompt_sources.insert(name.clone(), source.clone());
                    merged.prompts.push(Prompt { name: name.clone(), ..prompt.clone() });
                }
            }
        }
        if lists.readers.resource.is_none() {
            continue;
        }
        for resource in &lists.resources {
            if let Some(uri) = claim(&mut merged.uri_sources, source, &resource.uri) {
                merged.resources.push(Resource { uri, ..resource.clone() });
            }
        }
        for template in &lists.templates {
            if let Some(uri_template) = claim(&mut merged.template_sources, source, &template.uri_template) {
                merged.templates.push(ResourceTemplate { uri_template, ..template.clone() });
            }
        }
    }
    merged.prompts.sort_by(|a, b| a.name.cmp(&b.name));
    merged.resources.sort_by(|a, b| a.uri.cmp(&b.uri));
    merged.templates.sort_by(|a, b| a.uri_template.cmp(&b.uri_template));
    let next = |revision: u64, is_same: bool| revision + u64::from(!is_same);
    merged.revisions = ListRevisions {
        prompts: next(before.revisions.prompts, merged.prompts == before.prompts),
        resources: next(before.revisions.resources, merged.resources == before.resources),
        templates: next(before.revisions.templates, merged.templates == before.templates),
    };
    merged
}

/// The URI of a source's entry in the hub; `None` if the source itself has it twice.
fn claim(owners: &mut BTreeMap<String, SmolStr>, source: &SmolStr, uri: &str) -> Option<String> {
    let uri = match owners.get(uri) {
        None => uri.to_owned(),
        Some(owner) if owner == source => return None,
        Some(_) => format!("{SOURCE_PREFIX}{source}/{uri}"),
    };
    if owners.contains_key(&uri) {
        return None;
    }
    owners.insert(uri.clone(), source.clone());
    Some(uri)
}
