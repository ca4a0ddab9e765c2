//! What may be said about calls: in `[defaults]`, in `[[limits]]`, of a tool; and the rules of `[[policy]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::unit::{Size, Time};

/// What holds for calls. What is not said follows `[defaults]`, and after that the hub.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Calls {
    /// How long a call may take, all attempts and the waits between them included; "30s" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Time>,
    /// How long one attempt may take. Without it a timeout is not tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt_timeout: Option<Time>,
    /// How long a call may stay silent; every sign of progress begins it anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_timeout: Option<Time>,
    /// How many characters of text a model is shown; the rest is kept as an artifact. 25000 where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) text_limit: Option<u32>,
    /// How much structured output is passed on; more is kept as an artifact. "1MiB" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_limit: Option<Size>,
    /// How often a failed call is tried again; only where the tool is read-only or idempotent, or nothing had happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<Retry>,
    /// How many calls may come in how much time; of several, all hold. No limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate_limit: Option<RateLimits>,
    /// How many calls may run at once, of each tool; no limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) max_concurrency: Option<u32>,
    /// How long a call may wait for its turn; "1m" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue_timeout: Option<Time>,
    /// Keeps the answers of read-only tools, and gives them again to calls with the same arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<Cache>,
    /// Whether a tool may run beside other calls of the same step although it is not read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parallel_safe: Option<bool>,
    /// Whether a person is asked before every call that no rule speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confirm: Option<bool>,
    /// How long a person has to answer; then it is a no. "15m" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_timeout: Option<Time>,
}

/// How often a failed call is tried again, and after how long.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Retry {
    /// How often the tool is tried, counting the first time. 1: never again.
    #[schemars(range(min = 1))]
    pub(crate) attempts: u32,
    /// How the waits grow.
    pub(crate) backoff: Backoff,
    /// The wait before the second attempt.
    pub(crate) initial: Time,
    /// By how much each wait is longer than the one before, where they grow.
    #[schemars(range(min = 1))]
    pub(crate) factor: f64,
    /// No wait is longer, unless the service behind the tool asks for it.
    pub(crate) max: Time,
    /// Whether a wait is a random part of its length, so that calls that failed together do not come back together.
    pub(crate) jitter: bool,
}

/// How the waits between attempts grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Backoff {
    /// Each is `factor` times as long as the one before.
    #[default]
    Exponential,
    /// All are as long as the first.
    Fixed,
}

/// One limit, or several that all hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RateLimits {
    /// One.
    One(RateLimit),
    /// Several.
    Many(Vec<RateLimit>),
}

/// So many calls in a period.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RateLimit {
    /// How many calls a period allows.
    #[schemars(range(min = 1))]
    pub(crate) requests: u32,
    /// The period; at most a year.
    pub(crate) per: Time,
    /// How many may come at once; as many as a period allows where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) burst: Option<u32>,
    /// Who shares it.
    pub(crate) scope: RateScope,
    /// How long a call beyond the limit waits for its turn; it is refused at once where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait: Option<Time>,
}

/// Who shares a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RateScope {
    /// Everybody who calls the tool.
    #[default]
    Tool,
    /// Each thread has its own.
    Thread,
    /// Each key has its own.
    Key,
}

/// Keeps the answers of read-only tools.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Cache {
    /// How long an answer is kept.
    pub(crate) ttl: Time,
}

/// What holds for the tools whose names fit a glob.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Limit {
    /// A glob over names of tools: `*` is any run of characters, `?` is one.
    #[schemars(length(min = 1))]
    pub(crate) tool: String,
    #[serde(flatten)]
    pub(crate) calls: Calls,
}

/// Denies, asks or allows the calls it matches. Everything it names must fit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rule {
    /// A glob over names of tools.
    #[serde(default = "every")]
    #[schemars(length(min = 1))]
    pub(crate) tool: String,
    /// What the tool must say about itself.
    #[serde(default, skip_serializing_if = "Matching::is_empty")]
    pub(crate) annotations: Matching,
    /// What the arguments must look like: a JSON pointer, and a regular expression that matches a part of the value there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) arguments: BTreeMap<String, String>,
    /// A glob over callers, such as names of keys; anybody where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) caller: Option<String>,
    /// What to do with the call.
    pub(crate) decision: Decided,
    /// Why, for the people and models who meet the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// How long a person has to answer, for `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval_timeout: Option<Time>,
}

fn every() -> String {
    "*".into()
}

/// What a tool must say about itself; what is not named may be either.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Matching {
    /// Only tools that do, or do not, change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// Only tools that may, or may not, destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive: Option<bool>,
    /// Only tools that may, or may not, be called twice without harm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent: Option<bool>,
    /// Only tools that do, or do not, reach things outside this system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open_world: Option<bool>,
}

impl Matching {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a rule says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decided {
    /// The call is refused.
    Deny,
    /// A person must say yes.
    Ask,
    /// The call goes on.
    Allow,
}

impl Default for Retry {
    fn default() -> Self {
        let usual = toolhub::Retry::default();
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
