//! The reason of a tool's status, as data and as text.
//!
//! `evaluation.rs` finds the reason; this file only formats it, for operators, dashboards and models alike. The
//! message of an operator is passed on unchanged.

use crate::{language::Language, tool::ToolName};

/// Why a tool has its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Available: it never ran.
    NeverRun,
    /// Available: its status was reset, and it did not run since.
    Reset,
    /// Available: its dependencies are met.
    DependenciesMet,
    /// Available: its last call succeeded.
    Succeeded,
    /// Available: it failed recently, but not often enough to open the breaker.
    FailedRecently {
        /// The number of consecutive failures.
        times: u32,
    },
    /// Available: it failed, and a result, a health check or an operator closed the breaker.
    Recovered,
    /// Available again after failing; the next call decides.
    OnProbation,
    /// Failed: too many consecutive failures.
    FailedInARow {
        /// The number of consecutive failures.
        times: u32,
    },
    /// Failed: too many failures in the rolling window.
    FailedTooOften {
        /// The number of failures.
        failed: u64,
        /// The number of calls.
        total: u64,
    },
    /// Failed: set by an operator.
    SetFailed {
        /// The operator's message.
        message: Option<String>,
    },
    /// Maintenance: set by an operator.
    Maintenance {
        /// The operator's message.
        message: Option<String>,
    },
    /// Unavailable: set by an operator.
    SetUnavailable {
        /// The operator's message.
        message: Option<String>,
    },
    /// Unavailable: it was disabled.
    Disabled {
        /// The reason given.
        message: Option<String>,
    },
    /// Maintenance: its definition waits for the approval of a person.
    DefinitionPending {
        /// How to review it.
        message: String,
    },
    /// Unavailable: the service behind it is not connected.
    Disconnected {
        /// Why not.
        message: Option<String>,
    },
    /// Unavailable: it has no implementation.
    NoImplementation {
        /// The function of an older program that implemented it, if it is known.
        function: Option<String>,
    },
    /// Unavailable in this thread: other tools must succeed first.
    WaitingFor {
        /// The tools.
        tools: Vec<ToolName>,
    },
}

impl Reason {
    /// The reason as text.
    #[must_use]
    pub fn text(&self, language: Language) -> String {
        match language {
            Language::English => self.english(),
            Language::Chinese => self.chinese(),
        }
    }

    fn english(&self) -> String {
        match self {
            Self::NeverRun => "never run".into(),
            Self::Reset => "reset, not run since".into(),
            Self::DependenciesMet => "dependencies met".into(),
            Self::Succeeded => "executed successfully".into(),
            Self::FailedRecently { times: 1 } => "the last call failed".into(),
            Self::FailedRecently { times } => format!("the last {times} calls failed"),
            Self::Recovered => "available again".into(),
            Self::OnProbation => "on probation".into(),
            Self::FailedInARow { times: 1 } => "failed once".into(),
            Self::FailedInARow { times } => format!("failed {times} times in a row"),
            Self::FailedTooOften { failed, total } => format!("{failed} of the last {total} calls failed"),
            Self::SetFailed { message } => append_message("set to failed by an operator", ": ", message.as_deref()),
            Self::Maintenance { message } => append_message("in maintenance", ": ", message.as_deref()),
            Self::SetUnavailable { message } => {
                append_message("set to unavailable by an operator", ": ", message.as_deref())
            }
            Self::Disabled { message } => append_message("disabled", ": ", message.as_deref()),
            Self::DefinitionPending { message } => {
                append_message("in maintenance, its definition waits for approval", ": ", Some(message))
            }
            Self::Disconnected { message } => append_message("not connected", ": ", message.as_deref()),
            Self::NoImplementation { function: None } => "no implementation".into(),
            Self::NoImplementation { function: Some(function) } => {
                format!("no implementation registered for {function}")
            }
            Self::WaitingFor { tools } => format!("waiting for {}", join_names(tools, ", ")),
        }
    }

    fn chinese(&self) -> String {
        match self {
            Self::NeverRun => "尚未执行".into(),
            Self::Reset => "已重置，此后尚未执行".into(),
            Self::DependenciesMet => "依赖已满足".into(),
            Self::Succeeded => "执行成功".into(),
            Self::FailedRecently { times: 1 } => "最近一次调用失败".into(),
            Self::FailedRecently { times } => format!("最近 {times} 次调用均失败"),
            Self::Recovered => "已恢复可用".into(),
            Self::OnProbation => "试用恢复中".into(),
            Self::FailedInARow { times: 1 } => "失败 1 次".into(),
            Self::FailedInARow { times } => format!("连续失败 {times} 次"),
            Self::FailedTooOften { failed, total } => format!("最近 {total} 次调用中有 {failed} 次失败"),
            Self::SetFailed { message } => append_message("已被管理员标记为失败", "：", message.as_deref()),
            Self::Maintenance { message } => append_message("维护中", "：", message.as_deref()),
            Self::SetUnavailable { message } => append_message("已被管理员标记为不可用", "：", message.as_deref()),
            Self::Disabled { message } => append_message("已禁用", "：", message.as_deref()),
            Self::DefinitionPending { message } => append_message("维护中，其定义等待批准", "：", Some(message)),
            Self::Disconnected { message } => append_message("未连接", "：", message.as_deref()),
            Self::NoImplementation { function: None } => "没有可用的实现".into(),
            Self::NoImplementation { function: Some(function) } => format!("没有为 {function} 注册实现"),
            Self::WaitingFor { tools } => format!("等待 {} 执行成功", join_names(tools, "、")),
        }
    }
}

fn append_message(text: &str, colon: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{text}{colon}{message}"),
        None => text.into(),
    }
}

pub(super) fn join_names(tools: &[ToolName], separator: &str) -> String {
    tools.iter().map(ToolName::as_str).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reason: &Reason, english: &str, chinese: &str) {
        assert_eq!(reason.text(Language::English), english);
        assert_eq!(reason.text(Language::Chinese), chinese);
    }

    #[test]
    fn reasons_read_well_in_both_languages() {
        check(&Reason::Succeeded, "executed successfully", "执行成功");
        check(&Reason::FailedInARow { times: 3 }, "failed 3 times in a row", "连续失败 3 次");
        check(&Reason::FailedInARow { times: 1 }, "failed once", "失败 1 次");
        check(&Reason::FailedRecently { times: 1 }, "the last call failed", "最近一次调用失败");
        check(&Reason::DependenciesMet, "dependencies met", "依赖已满足");
        check(&Reason::NeverRun, "never run", "尚未执行");
        let gone = Reason::Disconnected { message: Some("exited with 1".into()) };
        check(&gone, "not connected: exited with 1", "未连接：exited with 1");
        let pending = Reason::DefinitionPending { message: "run x".into() };
        check(&pending, "in maintenance, its definition waits for approval: run x", "维护中，其定义等待批准：run x");
        check(&Reason::OnProbation, "on probation", "试用恢复中");
        let tools = ["a", "b"].map(|name| ToolName::new(name).unwrap()).to_vec();
        check(&Reason::WaitingFor { tools }, "waiting for a, b", "等待 a、b 执行成功");
        check(&Reason::Reset, "reset, not run since", "已重置，此后尚未执行");
        let too_often = Reason::FailedTooOften { failed: 6, total: 10 };
        check(&too_often, "6 of the last 10 calls failed", "最近 10 次调用中有 6 次失败");
    }

    #[test]
    fn an_operators_words_are_added_where_there_are_any() {
        let maintenance = |message: Option<&str>| Reason::Maintenance { message: message.map(Into::into) };
        check(&maintenance(Some("new disk")), "in maintenance: new disk", "维护中：new disk");
        check(&maintenance(Some("  ")), "in maintenance", "维护中");
        check(&maintenance(None), "in maintenance", "维护中");
    }
}
