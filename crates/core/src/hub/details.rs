//! Detailed summary of a thread's tools: status, reason, counters, times and dependencies of each.
//!
//! In: a thread's tool snapshots and evidence. Out: data, and a text in English or Chinese. `explain.rs` has the one-line summary.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    StatusScope, ToolHub, ToolStatusInfo, availability::ToolSnapshot, explain::summary_line, offer::OfferOptions,
};
use toolhub_types::{
    error::CallError,
    ids::{Tenant, ThreadId},
    language::Language,
    status::{Evidence, ToolStatus, tools_to_call},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The statuses of a thread's tools, with what they depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StatusDetails {
    /// The line of [`status_summary`](ToolHub::status_summary).
    pub summary: String,
    /// The tools, sorted by name.
    pub tools: Vec<ToolStatusDetails>,
    #[serde(skip)]
    language: Language,
}

/// The status of a tool in a thread, with what it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStatusDetails {
    /// The status.
    #[serde(flatten)]
    pub info: ToolStatusInfo,
    /// The tools it depends on, in declaration order.
    pub dependencies: Vec<DependencyStatus>,
}

/// A tool on which another depends, in a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DependencyStatus {
    /// The tool.
    pub tool_name: ToolName,
    /// Whether its success is not missing: it is there, or another tool's is enough.
    pub met: bool,
    /// Its last success that is recorded as evidence.
    pub last_success_time: Option<Timestamp>,
}

impl ToolHub {
    /// The statuses of a thread's tools with their dependencies: the long form of [`status_summary`](Self::status_summary).
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn status_details(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        OfferOptions { toolset, language }: &OfferOptions,
    ) -> Result<StatusDetails, CallError> {
        let scope = StatusScope::Thread(tenant, thread);
        let evidence = self.load_evidence(scope, true).await?;
        let since = self.scope_start(scope).await?;
        let snapshots = self.snapshot_tools_with(self.list_toolset(toolset), scope, &evidence, since);
        let tools = snapshots.iter().map(|snapshot| ToolStatusDetails {
            info: snapshot.info(*language),
            dependencies: dependencies(snapshot, &evidence),
        });
        Ok(StatusDetails { summary: summary_line(&snapshots, *language), tools: tools.collect(), language: *language })
    }
}

fn dependencies(snapshot: &ToolSnapshot, evidence: &Evidence) -> Vec<DependencyStatus> {
    let missing = tools_to_call(&snapshot.unmet_dependencies);
    let mut dependencies: Vec<DependencyStatus> = Vec::new();
    for tool in snapshot.tool.definition.depends_on.names() {
        // Two groups may name the same tool.
        if !dependencies.iter().any(|known| known.tool_name == *tool) {
            let last_success_time = evidence.get(tool).map(|success| success.last);
            let met = !missing.contains(tool);
            dependencies.push(DependencyStatus { tool_name: tool.clone(), met, last_success_time });
        }
    }
    dependencies
}

impl StatusDetails {
    /// The details as text: the summary, then one line per tool.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.tools.iter().map(|tool| match self.language {
            Language::English => tool.english(),
            Language::Chinese => tool.chinese(),
        });
        [self.summary.clone()].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}

impl ToolStatusDetails {
    fn english(&self) -> String {
        let ToolStatusInfo { tool_name, reason, last_updated, consecutive_failures, .. } = &self.info;
        let status = match self.info.status {
            ToolStatus::Available => "available",
            ToolStatus::Unavailable => "unavailable",
            ToolStatus::Failed => "failed",
            ToolStatus::Maintenance => "in maintenance",
        };
        let time = |at: Option<Timestamp>| at.map_or_else(|| "none".to_owned(), |at| at.to_string());
        let (success, failure) = (time(self.info.last_success_time), time(self.info.last_failure_time));
        let mut line = format!(
            "{tool_name}: {status} since {last_updated} ({reason}); consecutive failures {consecutive_failures}, \
             last success {success}, last failure {failure}"
        );
        let dependencies = self.dependencies.iter().map(|DependencyStatus { tool_name, met, .. }| {
            format!("{tool_name} ({})", if *met { "met" } else { "missing" })
        });
        if !self.dependencies.is_empty() {
            line.push_str("; depends on ");
            line.push_str(&dependencies.collect::<Vec<_>>().join(", "));
        }
        line
    }

    fn chinese(&self) -> String {
        let ToolStatusInfo { tool_name, reason, last_updated, consecutive_failures, .. } = &self.info;
        let status = match self.info.status {
            ToolStatus::Available => "可用",
            ToolStatus::Unavailable => "不可用",
            ToolStatus::Failed => "失败",
            ToolStatus::Maintenance => "维护中",
        };
        let time = |at: Option<Timestamp>| at.map_or_else(|| "无".to_owned(), |at| at.to_string());
        let (success, failure) = (time(self.info.last_success_time), time(self.info.last_failure_time));
        let mut line = format!(
            "{tool_name}：{status}，自 {last_updated} 起（{reason}）；连续失败 {consecutive_failures} 次，\
             上次成功 {success}，上次失败 {failure}"
        );
        let dependencies = self.dependencies.iter().map(|DependencyStatus { tool_name, met, .. }| {
            format!("{tool_name}（{}）", if *met { "已满足" } else { "未满足" })
        });
        if !self.dependencies.is_empty() {
            line.push_str("；依赖 ");
            line.push_str(&dependencies.collect::<Vec<_>>().join("、"));
        }
        line
    }
}
