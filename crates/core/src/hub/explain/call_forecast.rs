//! What would happen to a call if it was made now.
//!
//! In: a call that is not made. Out: a `CallForecast`, as a part of the explanation of its tool. `pipeline/forecast.rs` asks the stages.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Explanation, RateQuota, ToolHub};
use crate::{
    approvals::Grant,
    pipeline::{self, CacheForecast, Forecast, Submission},
    scheduler::{RateExceeded, Subject},
};
use toolhub_types::{
    error::{CallError, Detail, ErrorKind},
    language::Language,
    policy::Decision,
    problem::Problem,
};

/// What would happen to a call if it was made now. Hooks and the free slots of the tool are not part of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallForecast {
    /// What would happen.
    pub result: ForecastResult,
    /// Why it would be refused: the first refusal, in the order of the pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ForecastError>,
    /// What is wrong with its arguments, also if it would be refused for another reason before.
    pub problems: Vec<Problem>,
    /// The rule that decides about it.
    pub rule: DecidingRule,
    /// The grant because of which no approval is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// What is left of each rate limit of the tool for this caller, and in this thread.
    pub rates: Vec<RateQuota>,
    /// How long it would wait because of the rate limits.
    #[serde(rename = "waitsMs", with = "toolhub_types::millis")]
    #[schemars(with = "u64")]
    pub waits: Duration,
    /// Whether a cached result would be used.
    pub cache: CacheForecast,
    /// Whether the tool has hooks. They did not run; they may change the arguments or refuse the call.
    pub hooks: bool,
}

/// What would happen to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForecastResult {
    /// The tool runs.
    Run,
    /// The call waits for its rate limit, then the tool runs.
    Wait,
    /// The call gets a cached result.
    Cached,
    /// A person is asked, unless an earlier answer to the same call is unused.
    Ask,
    /// The call is refused.
    Refused,
}

/// Why a call would be refused.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ForecastError {
    /// The stable error code.
    pub code: ErrorKind,
    /// The error text for operators.
    pub detail: String,
    /// The error text that is safe to show to a model.
    pub model: String,
    /// How long to wait before the call may succeed.
    #[serde(rename = "retryAfterMs", with = "toolhub_types::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub retry_after: Option<Duration>,
}

/// The rule that decides about a call.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecidingRule {
    /// Its decision.
    pub decision: Decision,
    /// Its label; that of the default if no rule matches.
    pub rule: String,
    /// The reason given in the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ToolHub {
    /// The explanation of a call's tool, with what would happen to the call.
    pub(in crate::hub) async fn explain_call(&self, submission: Submission) -> Result<Explanation, CallError> {
        // A tool that needs a thread gets a new one, of which nothing is known.
        let thread = submission.call.thread.clone();
        let forecast = pipeline::forecast(&self.engine, submission).await?;
        let (call, tool) = (&forecast.envelope.call, &forecast.envelope.tool);
        let mut explanation = self.explain(&tool.definition.name, &call.tenant, thread.as_ref()).await?;
        let arguments = call.arguments.to_value();
        let (decision, rule, reason) = tool.gate.deciding_rule(&tool.definition, &arguments, &call.caller);
        let grants = match decision {
            Decision::Ask => {
                let approvals = &self.engine.approvals;
                approvals.grants_for(tool.version(), &call.tenant, thread.as_ref(), &[rule.as_str()]).await?
            }
            Decision::Allow | Decision::Deny => Vec::new(),
        };
        let subject = Subject { tenant: &call.tenant, thread: call.thread.as_ref(), caller: &call.caller };
        let (rates, rule) = (self.quotas(tool, subject), DecidingRule { decision, rule, reason });
        explanation.call = Some(Box::new(CallForecast::of(forecast, rule, grants.into_iter().next(), rates)));
        Ok(explanation)
    }
}

impl CallForecast {
    fn of(forecast: Forecast, rule: DecidingRule, grant: Option<Grant>, rates: Vec<RateQuota>) -> Self {
        let Forecast { envelope, withheld, unmet_dependencies, invalid, forbidden, cache } = forecast;
        let problems = match &invalid {
            Some(CallError { detail: Detail::Problems(problems), .. }) => problems.clone(),
            _ => Vec::new(),
        };
        let (waits, exceeded) = rate_wait(&rates);
        let (asks, is_cached) = (rule.decision == Decision::Ask && grant.is_none(), cache == CacheForecast::Hit);
        // A call that asks, or has a cached result, does not come to the rate limits now.
        let exceeded = exceeded.filter(|_| !asks && !is_cached);
        let error = withheld.or(unmet_dependencies).or(invalid).or(forbidden);
        let error = error.or_else(|| exceeded.map(|exceeded| pipeline::rate_limited(&envelope, &exceeded)));
        let result = match () {
            () if error.is_some() => ForecastResult::Refused,
            () if asks => ForecastResult::Ask,
            () if is_cached => ForecastResult::Cached,
            () if !waits.is_zero() => ForecastResult::Wait,
            () => ForecastResult::Run,
        };
        let (error, hooks) = (error.map(ForecastError::from), !envelope.tool.hooks.is_empty());
        Self { result, error, problems, rule, grant, rates, waits, cache, hooks }
    }

    pub(super) fn text(&self, language: Language) -> String {
        let (rule, detail) =
            (&self.rule.rule, self.error.as_ref().map_or("", |error| error.detail.trim_end_matches('.')));
        let seconds = self.waits.as_secs_f64();
        match (self.result, language) {
            (ForecastResult::Run, Language::English) => format!("This call would run ({rule})."),
            (ForecastResult::Run, Language::Chinese) => format!("此调用将会执行（{rule}）。"),
            (ForecastResult::Wait, Language::English) => {
                format!("This call would wait {seconds:.1} s for the rate limit, then run ({rule}).")
            }
            (ForecastResult::Wait, Language::Chinese) => {
                format!("此调用将因速率限制等待 {seconds:.1} 秒，然后执行（{rule}）。")
            }
            (ForecastResult::Cached, Language::English) => "This call would get a cached result.".into(),
            (ForecastResult::Cached, Language::Chinese) => "此调用将得到缓存的结果。".into(),
            (ForecastResult::Ask, Language::English) => format!("This call would need an approval: {rule}."),
            (ForecastResult::Ask, Language::Chinese) => format!("此调用需要确认：{rule}。"),
            (ForecastResult::Refused, Language::English) => format!("This call would be refused: {detail}."),
            (ForecastResult::Refused, Language::Chinese) => format!("此调用将被拒绝：{detail}。"),
        }
    }
}

impl From<CallError> for ForecastError {
    fn from(error: CallError) -> Self {
        let CallError { kind, operator, model, retry_after, .. } = error;
        Self { code: kind, detail: operator, model, retry_after }
    }
}

/// How long a call waits for its rate limits, in the order of the limits; and which one refuses it because it would wait too long.
fn rate_wait(rates: &[RateQuota]) -> (Duration, Option<RateExceeded>) {
    let wait_for = |RateQuota { limit, remaining, resets_in, .. }: &RateQuota| match remaining {
        0 => resets_in.saturating_sub(limit.interval().saturating_mul(limit.burst_size() - 1)),
        _ => Duration::ZERO,
    };
    let wait = rates.iter().map(wait_for).max().unwrap_or_default();
    let exceeded = rates.iter().enumerate().map(|(limit_index, rate)| {
        let retry_after = wait_for(rate).saturating_sub(rate.limit.max_wait());
        RateExceeded { retry_after, limit_index }
    });
    let exceeded = exceeded.filter(|exceeded| !exceeded.retry_after.is_zero());
    (wait, exceeded.max_by_key(|exceeded| exceeded.retry_after))
}
