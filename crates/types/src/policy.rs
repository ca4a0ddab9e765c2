//! Policies of a tool's calls: timeouts, output limits, rate limits, concurrency, retries, caching, approvals.
//!
//! A `Policy` holds optional settings of one layer; `Limits` are the effective values after all layers have been merged.
//! The stages of the pipeline enforce them.

mod gate;
mod glob;
mod policy_set;
mod rate;
mod retry;
mod rules;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::language::Language;

pub use gate::{ApprovalRequirement, Denial, Gate, PolicyDecision};
pub use glob::Glob;
pub use policy_set::{PolicyError, PolicySet};
pub use rate::{OnExcess, RateLimit, RateScope};
pub use retry::{AttemptFailure, Retry, next_retry_delay};
pub use rules::{AnnotationMatch, ArgumentMatch, Decision, Rule, RuleError};

/// Settings of a tool's calls. An unset field falls back to the next layer, in the end to the hub's defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    /// Timeout of a call, including all attempts and the delays between them.
    pub timeout: Option<Duration>,
    /// Timeout of one attempt. Without it a timeout is not retried, unless the error is marked as retryable.
    pub attempt_timeout: Option<Duration>,
    /// How long a call may report no progress; every progress report resets it.
    pub idle_timeout: Option<Duration>,
    /// Maximum number of characters of text shown to a model.
    pub text_limit: Option<usize>,
    /// Maximum size of structured output, and of binary content in base64, in bytes.
    pub output_limit: Option<usize>,
    /// How a failed call is retried if repeating it is safe.
    pub retry: Option<Retry>,
    /// Rate limits; a call must pass all of them.
    pub rate_limits: Option<Vec<RateLimit>>,
    /// Maximum number of concurrent calls on each node.
    pub max_concurrency: Option<usize>,
    /// Maximum number of concurrent calls on all nodes together.
    pub max_concurrency_shared: Option<usize>,
    /// How long a call may wait in the queue.
    pub queue_timeout: Option<Duration>,
    /// TTL of cached results; read-only tools only.
    pub cache: Option<Duration>,
    /// Whether the tool may run concurrently with other calls of the same step, although it is not read-only.
    pub parallel_safe: Option<bool>,
    /// Whether every call needs the approval of a person.
    pub confirm: Option<bool>,
    /// How long a person has to decide about an approval.
    pub approval_timeout: Option<Duration>,
}

/// The effective settings of a tool's calls.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ToolLimits")]
pub struct Limits {
    /// Timeout of a call.
    #[serde(rename = "timeoutMs", with = "crate::millis")]
    #[schemars(with = "u64")]
    pub timeout: Duration,
    /// Timeout of one attempt.
    #[serde(rename = "attemptTimeoutMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub attempt_timeout: Option<Duration>,
    /// How long a call may report no progress.
    #[serde(rename = "idleTimeoutMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub idle_timeout: Option<Duration>,
    /// Maximum number of characters of text shown to a model; the rest is stored as an artifact.
    pub text: usize,
    /// Maximum size of structured output, and of binary content in base64, in bytes; a larger one is stored as an artifact.
    pub output: usize,
    /// How a failed call is retried if repeating it is safe.
    pub retry: Retry,
    /// Rate limits; a call must pass all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate_limits: Vec<RateLimit>,
    /// Maximum number of concurrent calls on each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<usize>,
    /// Maximum number of concurrent calls on all nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency_shared: Option<usize>,
    /// How long a call may wait in the queue.
    #[serde(rename = "queueTimeoutMs", with = "crate::millis")]
    #[schemars(with = "u64")]
    pub queue_timeout: Duration,
    /// TTL of cached results.
    #[serde(rename = "cacheMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub cache: Option<Duration>,
    /// Whether the tool may run concurrently with other calls of the same step, although it is not read-only.
    pub parallel_safe: bool,
    /// Whether every call needs the approval of a person. Default: decided by the tool's origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<bool>,
    /// How long a person has to decide about an approval.
    #[serde(rename = "approvalTimeoutMs", with = "crate::millis")]
    #[schemars(with = "u64")]
    pub approval_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            attempt_timeout: None,
            idle_timeout: None,
            text: 25_000,
            output: 1024 * 1024,
            retry: Retry::default(),
            rate_limits: Vec::new(),
            max_concurrency: None,
            max_concurrency_shared: None,
            queue_timeout: Duration::from_secs(60),
            cache: None,
            parallel_safe: false,
            confirm: None,
            approval_timeout: Duration::from_secs(15 * 60),
        }
    }
}

impl Limits {
    /// These limits, overridden by the set fields of a policy.
    #[must_use]
    pub fn with_policy(self, policy: &Policy) -> Self {
        Self {
            timeout: policy.timeout.unwrap_or(self.timeout),
            attempt_timeout: policy.attempt_timeout.or(self.attempt_timeout),
            idle_timeout: policy.idle_timeout.or(self.idle_timeout),
            text: policy.text_limit.unwrap_or(self.text),
            output: policy.output_limit.unwrap_or(self.output),
            retry: policy.retry.clone().unwrap_or(self.retry),
            rate_limits: policy.rate_limits.clone().unwrap_or(self.rate_limits),
            max_concurrency: policy.max_concurrency.or(self.max_concurrency),
            max_concurrency_shared: policy.max_concurrency_shared.or(self.max_concurrency_shared),
            queue_timeout: policy.queue_timeout.unwrap_or(self.queue_timeout),
            cache: policy.cache.or(self.cache),
            parallel_safe: policy.parallel_safe.unwrap_or(self.parallel_safe),
            confirm: policy.confirm.or(self.confirm),
            approval_timeout: policy.approval_timeout.unwrap_or(self.approval_timeout),
        }
    }

    /// Maximum number of calls that this node may run at once: the smaller of both limits.
    #[must_use]
    pub fn concurrency_of_node(&self) -> Option<usize> {
        self.max_concurrency.into_iter().chain(self.max_concurrency_shared).min()
    }

    /// A one-line summary of the settings that can explain how a call ended.
    #[must_use]
    pub fn describe(&self, language: Language) -> String {
        let english = language == Language::English;
        let translate = |english_text: &'static str, chinese| if english { english_text } else { chinese };
        let mut parts = vec![format!("{} {:?}", translate("timeout", "超时"), self.timeout)];
        let durations = [
            (translate("attempt timeout", "单次超时"), self.attempt_timeout),
            (translate("idle timeout", "静默超时"), self.idle_timeout),
            (translate("cache", "缓存"), self.cache),
        ];
        parts.extend(durations.into_iter().filter_map(|(label, duration)| Some(format!("{label} {:?}", duration?))));
        parts.push(match (self.retry.attempts, english) {
            (0 | 1, true) => "no retries".into(),
            (0 | 1, false) => "不重试".into(),
            (attempts, true) => format!("up to {attempts} attempts if safe to repeat"),
            (attempts, false) => format!("可安全重复时最多尝试 {attempts} 次"),
        });
        let concurrency =
            |calls| if english { format!("at most {calls} concurrent") } else { format!("最多同时 {calls} 次") };
        parts.extend(self.max_concurrency.map(concurrency));
        parts.extend(self.max_concurrency_shared.map(|calls| match english {
            true => format!("at most {calls} concurrent on all nodes together"),
            false => format!("所有节点合计最多同时 {calls} 次"),
        }));
        let rate = |limit: &RateLimit| match english {
            true => format!("{} per {:?}", limit.requests, limit.per),
            false => format!("每 {:?} 最多 {} 次", limit.per, limit.requests),
        };
        parts.extend(self.rate_limits.iter().map(rate));
        parts.join(if english { ", " } else { "，" })
    }
}
