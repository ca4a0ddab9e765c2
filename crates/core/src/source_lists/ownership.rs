//! What a source may list besides tools.
//!
//! In: the lists of a source, and which names belong to which source. Out: the lists without prompts that have the name of another
//! source, by the same rule as for tools, and without URIs of the hub itself.

use smol_str::SmolStr;

use super::SourceLists;
use crate::registry::Registry;
use toolhub_types::tool::ToolName;

/// The URIs of the hub itself: artifacts, and resources of sources with the name of the source in front.
const HUB_SCHEME: &str = "toolhub://";

/// Whether a URI or a template is one of the hub.
pub(super) fn is_of_hub(uri: &str) -> bool {
    uri.get(..HUB_SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(HUB_SCHEME))
}

/// Removes what the source may not list. Returns what and why, for people.
pub(super) fn remove_foreign(source: &SmolStr, lists: &mut SourceLists, registry: &Registry) -> Vec<String> {
    let mut left_out = Vec::new();
    lists.prompts.retain(|name, _| {
        let owner = ToolName::new(name.as_str()).ok().and_then(|name| registry.other_owner(source, &name));
        if let Some(owner) = &owner {
            left_out.push(format!("the prompt `{name}` is left out: its name is reserved for `{owner}`"));
        }
        owner.is_none()
    });
    let mut is_own = |uri: &str| {
        if is_of_hub(uri) {
            left_out.push(format!("the resource `{uri}` is left out: `{HUB_SCHEME}` is reserved for the hub"));
        }
        !is_of_hub(uri)
    };
    lists.resources.retain(|resource| is_own(&resource.uri));
    lists.templates.retain(|template| is_own(&template.uri_template));
    left_out
}
