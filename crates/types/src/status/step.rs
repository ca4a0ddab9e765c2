//! Tells whether a tool still waits for others, and what to call next when it does.
//!
//! In: what is missing. Out: whether the tool is there, and one short text that a model can act on. What is missing is found by `evidence.rs`.

use super::{Language, Missing, Presence, reason::list};
use crate::tool::{DependsOn, ToolName};

/// What to do so that the waiting tool becomes available; empty where nothing is missing.
#[must_use]
pub fn next_step(missing: &[Missing], language: Language) -> String {
    let mut told: Vec<String> = Vec::new();
    for text in missing.iter().map(|one| sentence(one, language)) {
        // Two groups may name the same tool; saying it twice reads like two different steps.
        if !told.contains(&text) {
            told.push(text);
        }
    }
    told.join(match language {
        Language::English => " ",
        Language::Chinese => "",
    })
}

/// The tools that a call now would help with, each once, in the order of mention.
#[must_use]
pub fn helpful(missing: &[Missing]) -> Vec<ToolName> {
    let mut tools: Vec<ToolName> = Vec::new();
    for tool in missing.iter().flat_map(Missing::tools) {
        if !tools.contains(tool) {
            tools.push(tool.clone());
        }
    }
    tools
}

/// What a thread's evidence says about a tool with these dependencies.
#[must_use]
pub fn presence(depends_on: &DependsOn, missing: &[Missing]) -> Presence {
    if depends_on.is_empty() {
        Presence::Ready
    } else if missing.is_empty() {
        Presence::DependenciesMet
    } else {
        Presence::WaitingFor(helpful(missing))
    }
}

impl Missing {
    /// The tools that a call now would help with.
    #[must_use]
    pub fn tools(&self) -> &[ToolName] {
        match self {
            Self::Never { tool } | Self::Stale { tool, .. } => std::slice::from_ref(tool),
            Self::NoneOf { tools } => tools,
            Self::OutOfOrder { .. } => &[],
        }
    }
}

fn sentence(missing: &Missing, language: Language) -> String {
    match (missing, language) {
        (Missing::Never { tool }, Language::English) => format!("Call {tool} successfully first."),
        (Missing::Never { tool }, Language::Chinese) => format!("请先成功调用 {tool}。"),
        (Missing::Stale { tool, within }, Language::English) => {
            format!("Call {tool} again: its last success is more than {within:?} ago.")
        }
        (Missing::Stale { tool, within }, Language::Chinese) => {
            format!("请重新调用 {tool}：距其上次成功已超过 {within:?}。")
        }
        (Missing::NoneOf { tools }, Language::English) => match tools.as_slice() {
            [only] => format!("Call {only} successfully first."),
            tools => format!("Call one of {} successfully first.", list(tools, ", ")),
        },
        (Missing::NoneOf { tools }, Language::Chinese) => match tools.as_slice() {
            [only] => format!("请先成功调用 {only}。"),
            tools => format!("请先成功调用 {} 中的任意一个。", list(tools, "、")),
        },
        (Missing::OutOfOrder { earlier, later }, Language::English) => {
            format!("{earlier} had to succeed before {later}; in this conversation that can no longer be met.")
        }
        (Missing::OutOfOrder { earlier, later }, Language::Chinese) => {
            format!("{earlier} 必须先于 {later} 成功执行；在当前会话中已无法满足这一顺序。")
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
    fn check(missing: &[Missing], english: &str, chinese: &str) {
        assert_eq!(next_step(missing, Language::English), english);
        assert_eq!(next_step(missing, Language::Chinese), chinese);
    }

    #[test]
    fn the_text_names_what_to_call_next() {
        let never = Missing::Never { tool: name("cart") };
        check(&[], "", "");
        check(&[never.clone(), never.clone()], "Call cart successfully first.", "请先成功调用 cart。");
        check(
            &[Missing::NoneOf { tools: vec![name("show"), name("get")] }, never],
            "Call one of show, get successfully first. Call cart successfully first.",
            "请先成功调用 show、get 中的任意一个。请先成功调用 cart。",
        );
        check(
            &[Missing::Stale { tool: name("price"), within: Duration::from_secs(60) }],
            "Call price again: its last success is more than 60s ago.",
            "请重新调用 price：距其上次成功已超过 60s。",
        );
    }

    #[test]
    fn an_order_that_cannot_be_made_up_for_is_said_plainly() {
        check(
            &[Missing::OutOfOrder { earlier: name("a"), later: name("b") }],
            "a had to succeed before b; in this conversation that can no longer be met.",
            "a 必须先于 b 成功执行；在当前会话中已无法满足这一顺序。",
        );
    }
}
