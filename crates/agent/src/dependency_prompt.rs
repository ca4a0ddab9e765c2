//! Renders tool dependencies as a part of the system prompt.
//!
//! In: the tools an agent may use. Out: a short text, possibly empty. It states the rules and no current status, so it
//! is the same in every step and the provider's prompt cache stays valid.

use std::sync::Arc;

use toolhub_core::{DependencyGroup, Tool};

/// The text; empty if no tool depends on another.
pub(crate) fn render<'a>(tools: impl IntoIterator<Item = &'a Arc<Tool>>) -> String {
    let dependent_tools = tools.into_iter().filter(|tool| !tool.definition.depends_on.is_empty()).map(|tool| {
        let groups: Vec<String> = tool.definition.depends_on.0.iter().map(render_group).collect();
        format!("- `{}`: after {}", tool.definition.name, groups.join(", and "))
    });
    let lines: Vec<String> = dependent_tools.collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "Some tools can be used only after others have succeeded in this conversation, and are offered from then on:\n{}",
        lines.join("\n")
    )
}

fn render_group(group: &DependencyGroup) -> String {
    let names: Vec<String> = group.tools().iter().map(|name| format!("`{name}`")).collect();
    let list = match group {
        DependencyGroup::Any { .. } => names.join(" or "),
        DependencyGroup::Sequence { .. } => names.join(", then "),
        DependencyGroup::All { .. } => names.join(" and "),
    };
    match group.within() {
        Some(within) => format!("{list} (within the last {} s)", within.as_secs().max(1)),
        None => list,
    }
}
