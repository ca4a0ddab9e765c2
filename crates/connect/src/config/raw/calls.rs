//! Config keys that apply to calls, of one tool or of several.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{PositiveDuration, Size};

/// Settings of calls. A missing key falls back to `[defaults]`, then to the default of the hub.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallSettings {
    /// Timeout of a call, including all attempts and the delays between them. Default: "30s".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<PositiveDuration>,
    /// Timeout of one attempt. Without it, a timeout is not retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<PositiveDuration>,
    /// How long a call may run without reporting progress; each progress report restarts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<PositiveDuration>,
    /// Maximum number of characters of text shown to the model; the full text is stored as an artifact. Default: 25000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub text_limit: Option<u32>,
    /// Maximum size of structured output that is passed on, and of images, audio and embedded files together (in base64); larger output
    /// is stored as an artifact. Default: "1MiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<Size>,
    /// Retries of failed calls. Only if the tool is read-only or idempotent, or the failed attempt had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Rate limit, or a list of limits that all apply. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimits>,
    /// Maximum number of concurrent calls per tool, on each node. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_concurrency: Option<u32>,
    /// Maximum number of concurrent calls per tool, on all nodes together: for tools that must not run beside themselves on any node.
    /// Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_concurrency_shared: Option<u32>,
    /// How long a call may wait in the queue. Default: "1m".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<PositiveDuration>,
    /// Caches results of read-only tools, for calls with the same arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Whether the tool may run in parallel with other calls of the same step although it is not read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_safe: Option<bool>,
    /// Whether every call that no rule matches needs approval by a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<bool>,
    /// How long an approval may take; after that the call is denied. Default: "15m".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_timeout: Option<PositiveDuration>,
}

/// Retries of failed calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Maximum number of attempts, including the first. 1 means no retries.
    #[schemars(range(min = 1))]
    pub attempts: u32,
    /// How the delay between attempts grows.
    pub backoff: Backoff,
    /// Delay before the second attempt.
    pub initial: PositiveDuration,
    /// Growth factor of the delay with exponential backoff.
    #[schemars(range(min = 1))]
    pub factor: f64,
    /// Maximum delay, unless the service itself asks for a longer one.
    pub max: PositiveDuration,
    /// Whether each delay is randomized, so that calls that failed together are not retried together.
    pub jitter: bool,
}

/// How the delay between attempts grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// Each delay is `factor` times the one before.
    #[default]
    Exponential,
    /// All delays are equal to `initial`.
    Fixed,
}

/// One rate limit, or several that all apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RateLimits {
    /// One limit.
    One(RateLimit),
    /// Several limits.
    Many(Vec<RateLimit>),
}

/// A rate limit: a number of calls per period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimit {
    /// Number of calls allowed per period.
    #[schemars(range(min = 1))]
    pub requests: u32,
    /// The period, at most a year.
    pub per: PositiveDuration,
    /// Maximum burst size. Default: `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub burst: Option<u32>,
    /// Which calls share the limit.
    pub scope: RateScope,
    /// How long a call over the limit may wait. Default: it is refused immediately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<PositiveDuration>,
}

/// Which calls share a rate limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScope {
    /// All calls of the tool share it.
    #[default]
    Tool,
    /// Each thread has its own limit.
    Thread,
    /// Each API key has its own limit.
    Key,
}

/// Caches results of read-only tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// How long a result stays in the cache.
    pub ttl: PositiveDuration,
}

impl Default for Retry {
    fn default() -> Self {
        let defaults = toolhub_core::Retry::default();
        Self {
            attempts: defaults.attempts,
            backoff: Backoff::default(),
            initial: PositiveDuration(defaults.first),
            factor: defaults.factor,
            max: PositiveDuration(defaults.longest),
            jitter: defaults.jitter,
        }
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        let per = PositiveDuration(std::time::Duration::from_secs(60));
        Self { requests: 60, per, burst: None, scope: RateScope::default(), wait: None }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self { ttl: PositiveDuration(std::time::Duration::from_secs(60)) }
    }
}
