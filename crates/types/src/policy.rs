//! What a tool's owner sets about its calls: times, sizes, rates, slots, retries, questions.
//!
//! `Policy` holds what was said, `Limits` what holds after everything that was said about a tool has been laid over
//! each other. Nothing here acts; the pipeline's doors do.

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

pub use gate::{ApprovalRequirement, Gate, Verdict};
pub use glob::Glob;
pub use policy_set::PolicyError;
pub use policy_set::PolicySet;
pub use rate::{OnExcess, RateLimit, RateScope};
pub use retry::Retry;
pub use retry::{AttemptFailure, next_retry_delay};
pub use rules::{AnnotationMatch, ArgumentMatch, Decision, Rule, RuleError};

/// What was said about a tool's calls; what is not said follows the hub's defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    /// How long a call may take, all attempts and the waits between them included.
    pub timeout: Option<Duration>,
    /// How long one attempt may take. Without it a timeout is not tried again, unless whoever raised it says that it may be.
    pub attempt_timeout: Option<Duration>,
    /// How long a call may stay silent; every sign of progress begins it anew.
    pub idle_timeout: Option<Duration>,
    /// How many characters of text a model is shown.
    pub text_limit: Option<usize>,
    /// How many bytes of structured output are passed on.
    pub output_limit: Option<usize>,
    /// How often a failed call is tried again, where that is safe.
    pub retry: Option<Retry>,
    /// How many calls may come in how much time; all of them hold.
    pub rate_limits: Option<Vec<RateLimit>>,
    /// How many calls may run at once.
    pub max_concurrency: Option<usize>,
    /// How long a call may wait for its turn.
    pub queue_timeout: Option<Duration>,
    /// How long the answer of a read-only tool is kept and given again.
    pub cache: Option<Duration>,
    /// Whether the tool may run beside other calls of the same step, although it is not read-only.
    pub parallel_safe: Option<bool>,
    /// Whether a person is asked before every call.
    pub confirm: Option<bool>,
    /// How long a person has to answer.
    pub approval_timeout: Option<Duration>,
}

/// What holds for a tool's calls.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ToolLimits")]
pub struct Limits {
    /// How long a call may take.
    #[serde(rename = "timeoutMs", with = "crate::millis")]
    #[schemars(with = "u64")]
    pub timeout: Duration,
    /// How long one attempt may take.
    #[serde(rename = "attemptTimeoutMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub attempt_timeout: Option<Duration>,
    /// How long a call may stay silent.
    #[serde(rename = "idleTimeoutMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub idle_timeout: Option<Duration>,
    /// How many characters of text a model is shown; the rest is kept as an artifact.
    pub text: usize,
    /// How many bytes of structured output are passed on; more is kept as an artifact.
    pub output: usize,
    /// How often a failed call is tried again, where that is safe.
    pub retry: Retry,
    /// How many calls may come in how much time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate_limits: Vec<RateLimit>,
    /// How many calls may run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<usize>,
    /// How long a call may wait for its turn.
    #[serde(rename = "queueTimeoutMs", with = "crate::millis")]
    #[schemars(with = "u64")]
    pub queue_timeout: Duration,
    /// How long an answer is kept and given again.
    #[serde(rename = "cacheMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub cache: Option<Duration>,
    /// Whether the tool may run beside other calls of the same step, although it is not read-only.
    pub parallel_safe: bool,
    /// Whether a person is asked before every call; where nothing was said, the tool's origin decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<bool>,
    /// How long a person has to answer.
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
            queue_timeout: Duration::from_secs(60),
            cache: None,
            parallel_safe: false,
            confirm: None,
            approval_timeout: Duration::from_secs(15 * 60),
        }
    }
}

impl Limits {
    /// These limits with what a policy says laid over them.
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
            queue_timeout: policy.queue_timeout.unwrap_or(self.queue_timeout),
            cache: policy.cache.or(self.cache),
            parallel_safe: policy.parallel_safe.unwrap_or(self.parallel_safe),
            confirm: policy.confirm.or(self.confirm),
            approval_timeout: policy.approval_timeout.unwrap_or(self.approval_timeout),
        }
    }
    /// What holds, in few words, for people who ask why a call ended as it did.
    #[must_use]
    pub fn describe(&self, language: Language) -> String {
        let english = language == Language::English;
        let say = |word: &str, chinese: &str| if english { word.to_owned() } else { chinese.to_owned() };
        let mut words = vec![format!("{} {:?}", say("timeout", "超时"), self.timeout)];
        let times = [
            (say("attempt timeout", "单次超时"), self.attempt_timeout),
            (say("idle timeout", "静默超时"), self.idle_timeout),
            (say("cache", "缓存"), self.cache),
        ];
        words.extend(times.into_iter().filter_map(|(what, time)| Some(format!("{what} {:?}", time?))));
        let attempts = self.retry.attempts;
        words.push(if english {
            format!("up to {attempts} attempts where repeating is safe")
        } else {
            format!("可安全重复时最多尝试 {attempts} 次")
        });
        let at_once = |calls| if english { format!("{calls} at once") } else { format!("最多同时 {calls} 次") };
        words.extend(self.max_concurrency.map(at_once));
        let rate = |limit: &RateLimit| match english {
            true => format!("{} per {:?}", limit.requests, limit.per),
            false => format!("每 {:?} 最多 {} 次", limit.per, limit.requests),
        };
        words.extend(self.rate_limits.iter().map(rate));
        words.join(if english { ", " } else { "，" })
    }
}
