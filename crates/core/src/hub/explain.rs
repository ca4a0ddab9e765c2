//! Explains why a tool is, or is not, offered to a thread, and what would change that.
//!
//! In: a thread's tool snapshots. Out: an `Explanation` as data and as text; rate quotas; the one-line status summary.

mod call_forecast;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

pub use call_forecast::{CallForecast, DecidingRule, ForecastError, ForecastResult};

use super::{SourceStatus, StatusScope, ToolHub, availability::ToolSnapshot, offer::OfferOptions};
use crate::{
    approvals::{Grant, GrantScope},
    execution::Tool,
    registry::ToolFilter,
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
    /// Whether it is offered to a model in this thread now.
    pub offered: bool,
    /// The tool's status as the thread sees it.
    pub status: ToolStatus,
    /// Why it has that status.
    pub reason: String,
    /// The server it comes from, such as an MCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceStatus>,
    /// Whether it is on probation: its next call is the probe that closes or reopens the breaker.
    pub probation: bool,
    /// Time until the status changes automatically.
    #[serde(rename = "changesInMs", with = "toolhub_types::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub changes_in: Option<Duration>,
    /// Consecutive failures that count against it.
    pub consecutive_failures: u32,
    /// Consecutive failures at which it is withheld.
    pub failure_threshold: u32,
    /// When it last succeeded: in this thread, or in any thread where a success ended a shared failure.
    /// After a restart, the most recent successes are read from the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Timestamp>,
    /// The last counted failure, with its operator text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// The tools that must succeed in this thread first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<ToolName>,
    /// The rule that denies all its calls, so that it is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<String>,
    /// The rules that may apply to its calls, in the order of evaluation.
    pub rules: Vec<String>,
    /// The grants that approve its calls in this thread, each for one of the rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Effective limits of its calls: timeouts, rate limits, concurrency, retries.
    pub policy: Limits,
    /// How many nodes share the store now; absent if it has one user. `maxConcurrency`, the queue and connections are those of each node;
    /// rate limits and `maxConcurrencyShared` hold for all nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Remaining quotas of the rate limits that all callers share, globally or in this thread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateQuota>,
    /// What would happen to the call that was asked about; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<CallForecast>>,
    #[serde(skip)]
    gate: Gate,
    #[serde(skip)]
    reading: EffectiveStatus,
    #[serde(skip)]
    unmet_dependencies: Vec<MissingDependency>,
}

/// Remaining quota of a rate limit.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RateQuota {
    /// The tool's name, and the scope if the limit is not per tool: `weather`, `weather-thread`. The second limit of one scope
    /// has its number appended.
    pub name: String,
    /// The rate limit.
    pub limit: RateLimit,
    /// Number of calls that would pass now.
    pub remaining: u32,
    /// Time until the full quota is available again.
    #[serde(rename = "resetsInMs", with = "toolhub_types::millis")]
    #[schemars(with = "u64")]
    pub resets_in: Duration,
}

impl Explanation {
    /// The same with the reason and the rules in a language.
    #[must_use]
    pub fn in_language(self, language: Language) -> Self {
        Self { reason: self.reading.reason.text(language), rules: self.gate.describe(language), ..self }
    }

    /// The explanation as text.
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
            // Rounded up, so that the status has changed when the reported time is over.
            let time = Duration::from_secs(time.as_millis().div_ceil(1000) as u64);
            lines.push(match (self.status == ToolStatus::Available, chinese) {
                (true, false) => format!("The status changes automatically in {time:?}."),
                (true, true) => format!("状态将在 {time:?} 后自动变化。"),
                (false, false) => format!("It can be called again in {time:?}."),
                (false, true) => format!("{time:?} 后可再次调用。"),
            });
        }
        if let Some(source) = &self.source {
            let (name, status) = (&source.name, source.text(language));
            lines.push(if chinese {
                format!("服务器 `{name}`：{status}。")
            } else {
                format!("Server `{name}`: {status}.")
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
        lines.extend(self.grants.iter().map(|grant| grant_text(grant, language)));
        lines.push(if chinese { format!("限制：{policy}") } else { format!("Limits: {policy}.") });
        lines.extend(self.nodes.map(|nodes| nodes_text(nodes, &self.policy, language)));
        lines.extend(self.call.as_ref().map(|call| call.text(language)));
        lines.join("\n")
    }
}

impl ToolHub {
    /// The tools that may be used now, sorted by name. In a thread: not withheld, and with their dependencies met. In the shared
    /// scope: not withheld from all threads.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn available_tools(&self, scope: StatusScope<'_>) -> Result<Vec<ToolName>, CallError> {
        let snapshots = self.snapshot_tools(self.list(&ToolFilter::default()), scope).await?;
        let offered = snapshots.iter().filter(|snapshot| snapshot.is_offered());
        Ok(offered.map(|snapshot| snapshot.tool.definition.name.clone()).collect())
    }

    /// Explains why a tool is, or is not, offered to a thread, and what would change that. `None` is a new thread: the reason
    /// is then that of the shared status, unless a new thread is not offered the tool.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn explain(
        &self,
        tool: &str,
        tenant: &Tenant,
        thread: impl Into<Option<&ThreadId>>,
    ) -> Result<Explanation, CallError> {
        let (tool, thread) = (self.require_tool(tool)?, thread.into());
        let not_found = || self.tool_not_found(&tool.definition.name);
        // Asking about a thread does not create it.
        let unused = ThreadId::mint();
        let scope = StatusScope::Thread(tenant, thread.unwrap_or(&unused));
        let mut snapshot = self.snapshot_tools(vec![tool.clone()], scope).await?.pop().ok_or_else(not_found)?;
        if thread.is_none() && snapshot.reading.status == ToolStatus::Available {
            let shared = self.snapshot_tools(vec![tool.clone()], StatusScope::Shared).await?;
            snapshot = shared.into_iter().next().ok_or_else(not_found)?;
        }
        let info = snapshot.info(Language::English);
        let missing = tools_to_call(&snapshot.unmet_dependencies);
        let gate = &snapshot.tool.gate;
        let ask_labels = gate.ask_labels(&snapshot.tool.definition);
        let ask_labels: Vec<&str> = ask_labels.iter().map(String::as_str).collect();
        let grants = self.engine.approvals.grants_for(snapshot.tool.version(), tenant, thread, &ask_labels).await?;
        Ok(Explanation {
            tool_name: info.tool_name,
            offered: snapshot.is_offered(),
            status: info.status,
            reason: info.reason,
            source: tool.source().and_then(|name| self.source(name)).map(|source| source.info().status),
            probation: snapshot.reading.probation,
            changes_in: snapshot.reading.next_change.map(|at| at.since(self.now())),
            consecutive_failures: info.consecutive_failures,
            failure_threshold: self.engine.statuses.settings().failure_threshold,
            last_success_time: info.last_success_time,
            last_failure: snapshot.last_failure(),
            missing,
            denied_by: gate.deny_all_rule(&snapshot.tool.definition, None).map(Rule::label),
            rules: gate.describe(Language::English),
            grants,
            gate: gate.clone(),
            policy: snapshot.tool.limits.clone(),
            nodes: (!self.has_exclusive_store()).then(|| self.engine.nodes.alive()),
            rates: self.shared_rate_quotas(&snapshot.tool, tenant, thread.unwrap_or(&unused)),
            call: None,
            reading: snapshot.reading,
            unmet_dependencies: snapshot.unmet_dependencies,
        })
    }

    /// Remaining quota of each of a tool's rate limits for this caller, and in this thread if one is given. Empty for a tool
    /// that is not limited or not registered. Asking consumes no quota.
    #[must_use]
    pub fn rate_quotas(
        &self,
        tool: &str,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        caller: &Caller,
    ) -> Vec<RateQuota> {
        self.get(tool).map(|tool| self.quotas(&tool, Subject { tenant, thread, caller })).unwrap_or_default()
    }

    fn shared_rate_quotas(&self, tool: &Tool, tenant: &Tenant, thread: &ThreadId) -> Vec<RateQuota> {
        let mut quotas = self.quotas(tool, Subject { tenant, thread: Some(thread), caller: &Caller::default() });
        quotas.retain(|quota| quota.limit.scope != RateScope::Caller);
        quotas
    }

    fn quotas(&self, tool: &Tool, subject: Subject<'_>) -> Vec<RateQuota> {
        let limits = &tool.limits.rate_limits;
        if limits.is_empty() {
            return Vec::new();
        }
        let services = &self.engine.services;
        let quotas = match &services.shared_rates {
            Some(rates) => rates.quotas(&tool.definition.name, limits, subject),
            None => tool.runtime.limiter.quotas(limits, subject, services.clock.instant()),
        };
        let with_name = |Quota { limit_index, remaining, resets_in }| {
            let name = rate_name(&tool.definition.name, limits, limit_index);
            RateQuota { name, limit: limits[limit_index].clone(), remaining, resets_in }
        };
        quotas.into_iter().map(with_name).collect()
    }

    /// One-line summary of a thread's tools, for a log.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn status_summary(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        options: &OfferOptions,
    ) -> Result<String, CallError> {
        let tools = self.list_toolset(&options.toolset);
        let snapshots = self.snapshot_tools(tools, StatusScope::Thread(tenant, thread)).await?;
        Ok(summary_line(&snapshots, options.language))
    }
}

/// One-line summary of tool snapshots.
pub(super) fn summary_line(snapshots: &[ToolSnapshot], language: Language) -> String {
    let names = |matches: &dyn Fn(&ToolSnapshot) -> bool| -> Vec<String> {
        let matching = snapshots.iter().filter(|snapshot| matches(snapshot));
        matching.map(|snapshot| snapshot.tool.definition.name.to_string()).collect()
    };
    let available = names(&ToolSnapshot::is_offered);
    let failed = names(&|snapshot| snapshot.reading.status == ToolStatus::Failed);
    let roots = snapshots.iter().filter(|snapshot| snapshot.tool.definition.depends_on.is_empty()).count();
    let unmet = snapshots.iter().filter(|snapshot| !snapshot.unmet_dependencies.is_empty());
    let waiting: Vec<String> = unmet.map(waiting_text).collect();
    let (total, usable, failures, list) = (snapshots.len(), available.len(), failed.len(), available.join(", "));
    let (mut line, failed_label, waiting_label) = match language {
        Language::English => {
            let line = format!("tools {total} (available {usable}, failed {failures}, roots {roots}): [{list}]");
            (line, "failed", "waiting")
        }
        Language::Chinese => {
            let line = format!("🔧 可用工具 ({total}个) (可用: {usable}, 失败: {failures}, 根节点: {roots}): [{list}]");
            (line, "失败工具", "等待依赖")
        }
    };
    for (label, names) in [(failed_label, failed), (waiting_label, waiting)] {
        if !names.is_empty() {
            line.push_str(&format!(" [{label}: {}]", names.join(", ")));
        }
    }
    line
}

/// What a grant changes: which calls need no approval, by whom, and how to end it.
fn grant_text(grant: &Grant, language: Language) -> String {
    let Grant { id, rule, granted_by, granted_at, .. } = grant;
    match (&grant.covers, language) {
        (GrantScope::Thread { .. }, Language::English) => format!(
            "Granted in this thread by {granted_by} at {granted_at}, so no approval is needed for: {rule}. Grant {id}."
        ),
        (GrantScope::Tool { .. }, Language::English) => format!(
            "Granted in every thread by {granted_by} at {granted_at}, so no approval is needed for: {rule}. Grant {id}."
        ),
        (GrantScope::Server { server }, Language::English) => format!(
            "Granted for all tools of {server} by {granted_by} at {granted_at}, so no approval is needed for: {rule}. \
             Grant {id}."
        ),
        (_, Language::Chinese) => {
            format!("{granted_by} 已于 {granted_at} 授权（{id}），以下规则无需再确认：{rule}")
        }
    }
}

/// Which limits are those of each node.
fn nodes_text(nodes: usize, limits: &Limits, language: Language) -> String {
    let shared = limits.max_concurrency_shared.is_some();
    match (language, shared) {
        (Language::English, false) => {
            format!("Nodes: {nodes}. Concurrency, queue and connections are per node; rate limits are shared.")
        }
        (Language::English, true) => {
            format!(
                "Nodes: {nodes}. Queue and connections are per node; shared concurrency and rate limits hold for all together."
            )
        }
        (Language::Chinese, false) => {
            format!("节点：{nodes} 个。并发数、队列和连接按节点计算；速率限制由所有节点共享。")
        }
        (Language::Chinese, true) => {
            format!("节点：{nodes} 个。队列和连接按节点计算；共享并发数和速率限制对所有节点合计。")
        }
    }
}

fn rate_name(tool: &ToolName, limits: &[RateLimit], index: usize) -> String {
    let scope = limits[index].scope;
    let suffix = match scope {
        RateScope::Tool => "",
        RateScope::Thread => "-thread",
        RateScope::Caller => "-caller",
    };
    match limits[..index].iter().filter(|limit| limit.scope == scope).count() {
        0 => format!("{tool}{suffix}"),
        earlier => format!("{tool}{suffix}-{}", earlier + 1),
    }
}

fn waiting_text(snapshot: &ToolSnapshot) -> String {
    let name = &snapshot.tool.definition.name;
    let bases: Vec<String> = tools_to_call(&snapshot.unmet_dependencies).iter().map(ToString::to_string).collect();
    format!("{name} ← {}", bases.join(" + "))
}
