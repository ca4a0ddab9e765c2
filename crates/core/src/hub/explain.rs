//! Why a tool is, or is not, offered to a thread, and what would change that.
//!
//! In: the survey of a thread. Out: one answer, as data and in words; and one line about all tools.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::{StatusScope, ToolHub, availability::ToolSnapshot};
use crate::{
    execution::Tool,
    registry::{ToolFilter, Toolset},
    scheduler::{Quota, Subject},
};
use toolhub_types::{
    error::CallError,
    ids::{Caller, Tenant, ThreadId},
    language::Language,
    policy::{Gate, Limits, RateLimit, RateScope, Rule},
    status::{EffectiveStatus, Failure, MissingDependency, ToolStatus, next_step, tools_to_call},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Why a tool is, or is not, offered to a thread.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Explanation {
    /// The tool.
    pub tool_name: ToolName,
    /// Whether a model is offered it in this thread now.
    pub offered: bool,
    /// The tool's status as the thread sees it.
    pub status: ToolStatus,
    /// Why it has that status.
    pub reason: String,
    /// Whether its next call decides whether it stays.
    pub probation: bool,
    /// How long until the status changes by itself.
    #[serde(rename = "changesInMs", with = "toolhub_types::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub changes_in: Option<Duration>,
    /// How many failures in a row count against it.
    pub consecutive_failures: u32,
    /// How many it takes to be withheld.
    pub failure_threshold: u32,
    /// When it last succeeded: in this thread, or for everybody where a success ended a failure.
    /// Plain successes are looked up in the journal after a restart, as far back as is worth it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Timestamp>,
    /// The last failure that counted, as operators know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// The tools that must succeed in this thread first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<ToolName>,
    /// The rule that denies every call of it, so that it is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<String>,
    /// The rules that may concern its calls, in the order they are asked.
    pub rules: Vec<String>,
    /// What holds for its calls: times, rates, slots, retries.
    pub policy: Limits,
    /// What is left of the rates that all callers share, for all threads or in this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateLeft>,
    #[serde(skip)]
    gate: Gate,
    #[serde(skip)]
    reading: EffectiveStatus,
    #[serde(skip)]
    unmet_dependencies: Vec<MissingDependency>,
}

/// What is left of a rate.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RateLeft {
    /// The tool's name and, where not everybody shares the rate, who does: `weather`, `weather-thread`. The second of a sort has
    /// its number behind it.
    pub name: String,
    /// The rate.
    pub limit: RateLimit,
    /// How many calls would pass now.
    pub remaining: u32,
    /// How long until all of it is there again.
    #[serde(rename = "resetsInMs", with = "toolhub_types::millis")]
    #[schemars(with = "u64")]
    pub resets_in: Duration,
}

impl Explanation {
    /// The answer in words.
    #[must_use]
    pub fn text(&self, language: Language) -> String {
        let (name, why) = (&self.tool_name, self.reading.reason.text(language));
        let chinese = language == Language::Chinese;
        let why = match (&self.denied_by, chinese) {
            (None, _) => why,
            (Some(rule), false) => format!("a rule forbids it ({rule})"),
            (Some(rule), true) => format!("规则禁止使用（{rule}）"),
        };
        let mut lines = vec![match (self.offered, chinese) {
            (true, false) => format!("`{name}` is offered: {why}."),
            (true, true) => format!("`{name}` 可供使用：{why}。"),
            (false, false) => format!("`{name}` is not offered: {why}."),
            (false, true) => format!("`{name}` 暂不可用：{why}。"),
        }];
        if let Some(time) = self.changes_in {
            // Rounded up: at the end of the time told, the status has changed.
            let time = Duration::from_secs(time.as_millis().div_ceil(1000) as u64);
            lines.push(if chinese {
                format!("状态将在 {time:?} 后自动变化。")
            } else {
                format!("That changes by itself in {time:?}.")
            });
        }
        lines.extend(Some(next_step(&self.unmet_dependencies, language)).filter(|text| !text.is_empty()));
        if let Some(failure) = &self.last_failure {
            let Failure { at, kind, text } = failure;
            lines.push(if chinese {
                format!("最近一次失败：{at}，{kind}：{text}")
            } else {
                format!("Last failure: {at}, {kind}: {text}")
            });
        }
        let (rules, policy) = (self.gate.describe(language).join("; "), self.policy.describe(language));
        lines.push(if chinese { format!("规则：{rules}") } else { format!("Rules: {rules}.") });
        lines.push(if chinese { format!("限制：{policy}") } else { format!("Limits: {policy}.") });
        lines.join("\n")
    }
}

impl ToolHub {
    /// The tools a thread may use now: not withheld, and what they wait for has succeeded.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn available_tools(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Vec<ToolName>, CallError> {
        let seen = self.snapshot_tools(self.list(&ToolFilter::default()), StatusScope::Thread(tenant, thread)).await?;
        Ok(seen.iter().filter(|seen| seen.is_offered()).map(|seen| seen.tool.definition.name.clone()).collect())
    }

    /// Why a tool is, or is not, offered to a thread, and what would change that.
    ///
    /// # Errors
    /// When nobody knows the tool, or the store does not answer.
    pub async fn explain(&self, tool: &str, tenant: &Tenant, thread: &ThreadId) -> Result<Explanation, CallError> {
        let (tool, view) = (self.require_tool(tool)?, StatusScope::Thread(tenant, thread));
        self.load_past_successes(view).await;
        let seen = self.snapshot_tool(tool, view).await?;
        let info = seen.info();
        let missing = tools_to_call(&seen.unmet_dependencies);
        let gate = &seen.tool.gate;
        Ok(Explanation {
            tool_name: info.tool_name,
            offered: seen.is_offered(),
            status: info.status,
            reason: info.reason,
            probation: seen.reading.probation,
            changes_in: seen.reading.next_change.map(|at| at.since(self.now())),
            consecutive_failures: info.consecutive_failures,
            failure_threshold: self.engine.statuses.settings().failure_threshold,
            last_success_time: info.last_success_time,
            last_failure: seen.last_failure(),
            missing,
            denied_by: gate.deny_all_rule(&seen.tool.definition).map(Rule::label),
            rules: gate.describe(Language::English),
            gate: gate.clone(),
            policy: seen.tool.limits.clone(),
            rates: self.shared_rate_quotas(&seen.tool, tenant, thread),
            reading: seen.reading,
            unmet_dependencies: seen.unmet_dependencies,
        })
    }

    /// What is left of each of a tool's rates for this caller, in this thread if one is named; nothing for a tool that is not
    /// limited, or not there. Costs nothing of it.
    #[must_use]
    pub fn rate_quotas(
        &self,
        tool: &str,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        caller: &Caller,
    ) -> Vec<RateLeft> {
        self.get(tool).map(|tool| self.quotas(&tool, Subject { tenant, thread, caller })).unwrap_or_default()
    }

    fn shared_rate_quotas(&self, tool: &Tool, tenant: &Tenant, thread: &ThreadId) -> Vec<RateLeft> {
        let mut left = self.quotas(tool, Subject { tenant, thread: Some(thread), caller: &Caller::default() });
        left.retain(|left| left.limit.scope != RateScope::Caller);
        left
    }

    fn quotas(&self, tool: &Tool, asker: Subject<'_>) -> Vec<RateLeft> {
        let limits = &tool.limits.rate_limits;
        if limits.is_empty() {
            return Vec::new();
        }
        let left = tool.runtime.limiter.quotas(limits, asker, self.engine.services.clock.instant());
        let told = |Quota { limit_index: limit, remaining, resets_in }| {
            let name = rate_name(&tool.definition.name, limits, limit);
            RateLeft { name, limit: limits[limit].clone(), remaining, resets_in }
        };
        left.into_iter().map(told).collect()
    }

    /// One line about all tools of a thread, for a log.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn status_summary(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        language: Language,
    ) -> Result<String, CallError> {
        self.summary_of(tenant, thread, &Toolset::all(), language).await
    }

    /// The same about the tools of a toolset.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn summary_of(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        toolset: &Toolset,
        language: Language,
    ) -> Result<String, CallError> {
        let seen = self.snapshot_tools(self.list_toolset(toolset), StatusScope::Thread(tenant, thread)).await?;
        Ok(summary_line(&seen, language))
    }
}

/// One line about tools as a thread sees them.
pub(super) fn summary_line(seen: &[ToolSnapshot], language: Language) -> String {
    let names = |which: &dyn Fn(&ToolSnapshot) -> bool| -> Vec<String> {
        seen.iter().filter(|seen| which(seen)).map(|seen| seen.tool.definition.name.to_string()).collect()
    };
    let available = names(&ToolSnapshot::is_offered);
    let failed = names(&|seen| seen.reading.status == ToolStatus::Failed);
    let roots = seen.iter().filter(|seen| seen.tool.definition.depends_on.is_empty()).count();
    let waits = seen.iter().filter(|seen| !seen.unmet_dependencies.is_empty());
    let waiting: Vec<String> = waits.map(|seen| waiting_text(seen, language)).collect();
    let (all, many, failures, list) = (seen.len(), available.len(), failed.len(), available.join(", "));
    let (mut line, failed_word, waiting_word) = match language {
        Language::English => {
            (format!("tools {all} (available {many}, failed {failures}, roots {roots}): [{list}]"), "failed", "waiting")
        }
        Language::Chinese => {
            let line = format!("🔧 可用工具 ({all}个) (可用: {many}, 失败: {failures}, 根节点: {roots}): [{list}]");
            (line, "失败工具", "等待依赖")
        }
    };
    for (word, names) in [(failed_word, failed), (waiting_word, waiting)] {
        if !names.is_empty() {
            line.push_str(&format!(" [{word}: {}]", names.join(", ")));
        }
    }
    line
}

fn rate_name(tool: &ToolName, limits: &[RateLimit], at: usize) -> String {
    let scope = limits[at].scope;
    let word = match scope {
        RateScope::Tool => "",
        RateScope::Thread => "-thread",
        RateScope::Caller => "-caller",
    };
    match limits[..at].iter().filter(|limit| limit.scope == scope).count() {
        0 => format!("{tool}{word}"),
        before => format!("{tool}{word}-{}", before + 1),
    }
}

fn waiting_text(seen: &ToolSnapshot, language: Language) -> String {
    let name = &seen.tool.definition.name;
    let bases: Vec<String> = tools_to_call(&seen.unmet_dependencies).iter().map(ToString::to_string).collect();
    match (bases.is_empty(), language) {
        (false, _) => format!("{name} ← {}", bases.join(" + ")),
        // What it waits for has come in the wrong order, and no call helps.
        (true, Language::English) => format!("{name} (wrong order)"),
        (true, Language::Chinese) => format!("{name} (顺序有误)"),
    }
}
