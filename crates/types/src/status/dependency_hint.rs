//! Turns missing dependencies into a readiness and a hint which tools to call next.
//!
//! In: the missing dependencies, found by `evidence.rs`. Out: the readiness of the tool, and a short text that a model can act on.

use super::{Language, MissingDependency, Readiness, reason::join_names};
use crate::tool::{DependsOn, ToolName};

/// What to do so that the waiting tool becomes available; empty if nothing is missing.
#[must_use]
pub fn next_step(missing: &[MissingDependency], language: Language) -> String {
    let mut hints: Vec<String> = Vec::new();
    for hint in missing.iter().map(|dependency| describe(dependency, language)) {
        // Two groups may name the same tool; a repeated hint would read like two different steps.
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints.join(match language {
        Language::English => " ",
        Language::Chinese => "",
    })
}

/// The tools whose success would meet a dependency, without duplicates, in declaration order.
#[must_use]
pub fn tools_to_call(missing: &[MissingDependency]) -> Vec<ToolName> {
    let mut tools: Vec<ToolName> = Vec::new();
    for tool in missing.iter().flat_map(MissingDependency::tools) {
        if !tools.contains(tool) {
            tools.push(tool.clone());
        }
    }
    tools
}

/// The readiness of a tool with these dependencies.
#[must_use]
pub fn dependency_readiness(depends_on: &DependsOn, missing: &[MissingDependency]) -> Readiness {
    if depends_on.is_empty() {
        Readiness::Ready
    } else if missing.is_empty() {
        Readiness::DependenciesMet
    } else {
        Readiness::WaitingFor(tools_to_call(missing))
    }
}

impl MissingDependency {
    /// The tools whose success would meet the dependency.
    #[must_use]
    pub fn tools(&self) -> &[ToolName] {
        match self {
            Self::NeverSucceeded { tool } | Self::Stale { tool, .. } | Self::OutOfOrder { tool, .. } => {
                std::slice::from_ref(tool)
            }
            Self::NoneOf { tools } => tools,
        }
    }
}

fn describe(missing: &MissingDependency, language: Language) -> String {
    match (missing, language) {
        (MissingDependency::NeverSucceeded { tool }, Language::English) => format!("Call {tool} successfully first."),
        (MissingDependency::NeverSucceeded { tool }, Language::Chinese) => format!("请先成功调用 {tool}。"),
        (MissingDependency::Stale { tool, within }, Language::English) => {
            format!("Call {tool} again: its last success is more than {within:?} ago.")
        }
        (MissingDependency::Stale { tool, within }, Language::Chinese) => {
            format!("请重新调用 {tool}：距其上次成功已超过 {within:?}。")
        }
        (MissingDependency::NoneOf { tools }, Language::English) => match tools.as_slice() {
            [only] => format!("Call {only} successfully first."),
            tools => format!("Call one of {} successfully first.", join_names(tools, ", ")),
        },
        (MissingDependency::NoneOf { tools }, Language::Chinese) => match tools.as_slice() {
            [only] => format!("请先成功调用 {only}。"),
            tools => format!("请先成功调用 {} 中的任意一个。", join_names(tools, "、")),
        },
        (MissingDependency::OutOfOrder { tool, after }, Language::English) => {
            format!("Call {tool} again: it must succeed after {after}.")
        }
        (MissingDependency::OutOfOrder { tool, after }, Language::Chinese) => {
            format!("请重新调用 {tool}：它必须在 {after} 之后成功。")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(text: &str) -> ToolName {
        ToolName::new(text).unwrap()
    }

    #[track_caller]
    fn check(missing: &[MissingDependency], english: &str, chinese: &str) {
        assert_eq!(next_step(missing, Language::English), english);
        assert_eq!(next_step(missing, Language::Chinese), chinese);
    }

    #[test]
    fn the_text_names_what_to_call_next() {
        let never = MissingDependency::NeverSucceeded { tool: name("cart") };
        check(&[], "", "");
        check(&[never.clone(), never.clone()], "Call cart successfully first.", "请先成功调用 cart。");
        check(
            &[MissingDependency::NoneOf { tools: vec![name("show"), name("get")] }, never],
            "Call one of show, get successfully first. Call cart successfully first.",
            "请先成功调用 show、get 中的任意一个。请先成功调用 cart。",
        );
        check(
            &[MissingDependency::Stale { tool: name("price"), within: Duration::from_secs(60) }],
            "Call price again: its last success is more than 60s ago.",
            "请重新调用 price：距其上次成功已超过 60s。",
        );
    }

    #[test]
    fn a_wrong_order_is_mended_by_calling_again() {
        check(
            &[MissingDependency::OutOfOrder { tool: name("b"), after: name("a") }],
            "Call b again: it must succeed after a.",
            "请重新调用 b：它必须在 a 之后成功。",
        );
    }
}
