//! What may be said about calls: of one tool, or of many.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Size, Time};

/// What holds for calls. What is not said follows `[defaults]`, and after that the hub.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Calls {
    /// How long a call may take, all attempts and the waits between them included; "30s" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// How long one attempt may take. Without it a timeout is not tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Time>,
    /// How long a call may stay silent; every sign of progress begins it anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Time>,
    /// How many characters of text a model is shown; the rest is kept as an artifact. 25000 where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub text_limit: Option<u32>,
    /// How much structured output is passed on; more is kept as an artifact. "1MiB" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<Size>,
    /// How often a failed call is tried again; only where the tool is read-only or idempotent, or nothing had happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How many calls may come in how much time; of several, all hold. No limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimits>,
    /// How many calls may run at once, of each tool; no limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_concurrency: Option<u32>,
    /// How long a call may wait for its turn; "1m" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Time>,
    /// Keeps the answers of read-only tools, and gives them again to calls with the same arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Whether a tool may run beside other calls of the same step although it is not read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_safe: Option<bool>,
    /// Whether a person is asked before every call that no rule speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<bool>,
    /// How long a person has to answer; then it is a no. "15m" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_timeout: Option<Time>,
}

/// How often a failed call is tried again, and after how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// How often the tool is tried, counting the first time. 1: never again.
    #[schemars(range(min = 1))]
    pub attempts: u32,
    /// How the waits grow.
    pub backoff: Backoff,
    /// The wait before the second attempt.
    pub initial: Time,
    /// By how much each wait is longer than the one before, where they grow.
    #[schemars(range(min = 1))]
    pub factor: f64,
    /// No wait is longer, unless the service behind the tool asks for it.
    pub max: Time,
    /// Whether a wait is a random part of its length, so that calls that failed together do not come back together.
    pub jitter: bool,
}

/// How the waits between attempts grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// Each is `factor` times as long as the one before.
    #[default]
    Exponential,
    /// All are as long as the first.
    Fixed,
}

/// One limit, or several that all hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RateLimits {
    /// One.
    One(RateLimit),
    /// Several.
    Many(Vec<RateLimit>),
}

/// So many calls in a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimit {
    /// How many calls a period allows.
    #[schemars(range(min = 1))]
    pub requests: u32,
    /// The period; at most a year.
    pub per: Time,
    /// How many may come at once; as many as a period allows where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub burst: Option<u32>,
    /// Who shares it.
    pub scope: RateScope,
    /// How long a call beyond the limit waits for its turn; it is refused at once where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Time>,
}

/// Who shares a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScope {
    /// Everybody who calls the tool.
    #[default]
    Tool,
    /// Each thread has its own.
    Thread,
    /// Each key has its own.
    Key,
}

/// Keeps the answers of read-only tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// How long an answer is kept.
    pub ttl: Time,
}

impl Default for Retry {
    fn default() -> Self {
        let usual = toolhub_core::Retry::default();
        Self {
            attempts: usual.attempts,
            backoff: Backoff::default(),
            initial: Time(usual.first),
            factor: usual.factor,
            max: Time(usual.longest),
            jitter: usual.jitter,
        }
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        let per = Time(std::time::Duration::from_secs(60));
        Self { requests: 60, per, burst: None, scope: RateScope::default(), wait: None }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self { ttl: Time(std::time::Duration::from_secs(60)) }
    }
}
