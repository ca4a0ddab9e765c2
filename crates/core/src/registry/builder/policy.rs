//! Policy settings of `ToolBuilder`: timeouts, retries, rate limits, concurrency, caching, approval.

use std::time::Duration;

use super::ToolBuilder;
use toolhub_types::policy::{Policy, RateLimit, Retry};

impl ToolBuilder {
    /// Changes the policy in place.
    pub fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// Timeout of a call.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.policy.timeout = Some(time);
        self
    }

    /// Timeout for a call that reports no progress; every progress report resets it.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.policy.idle_timeout = Some(time);
        self
    }

    /// Maximum number of characters of text shown to the model; the rest is stored as an artifact.
    pub fn text_limit(mut self, characters: usize) -> Self {
        self.policy.text_limit = Some(characters);
        self
    }

    /// Maximum size in bytes of structured output, and of binary content in base64; larger output is stored as an artifact.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.policy.output_limit = Some(bytes);
        self
    }

    /// Timeout of one attempt. Without it a timeout is not retried.
    pub fn attempt_timeout(mut self, time: Duration) -> Self {
        self.policy.attempt_timeout = Some(time);
        self
    }

    /// Retries of a failed call. Applies only to read-only and idempotent tools, and to failures before any side effect.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = Some(retry);
        self
    }

    /// Disables retries.
    pub fn no_retry(self) -> Self {
        self.retry(Retry { attempts: 1, ..Retry::default() })
    }

    /// Rate limit of `calls` per minute, for all callers together.
    pub fn per_minute(self, calls: u32) -> Self {
        self.rate_limit(RateLimit::per_minute(calls))
    }

    /// Adds a rate limit. All added limits apply.
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.policy.rate_limits.get_or_insert_default().push(limit);
        self
    }

    /// Maximum number of concurrent calls on each node; others are queued.
    pub fn max_concurrency(mut self, calls: usize) -> Self {
        self.policy.max_concurrency = Some(calls);
        self
    }

    /// Maximum number of concurrent calls on all nodes together, for a tool that must not run beside itself on any node; others are
    /// queued. Each call asks the store for a permit, and is refused with `store_unavailable` while the store does not answer.
    pub fn max_concurrency_shared(mut self, calls: usize) -> Self {
        self.policy.max_concurrency_shared = Some(calls);
        self
    }

    /// Longest time a call may be queued.
    pub fn queue_timeout(mut self, time: Duration) -> Self {
        self.policy.queue_timeout = Some(time);
        self
    }

    /// Caches results for this long, for calls with the same arguments. For read-only tools.
    pub fn cache(mut self, time: Duration) -> Self {
        self.policy.cache = Some(time);
        self
    }

    /// Allows it to run concurrently with other calls of the same step, although it is not read-only.
    pub fn parallel_safe(mut self) -> Self {
        self.policy.parallel_safe = Some(true);
        self
    }

    /// Requires approval for every call that no rule matches.
    pub fn confirm(mut self) -> Self {
        self.policy.confirm = Some(true);
        self
    }

    /// Requires no approval, even if the tool was imported. Rules may still ask or deny.
    pub fn trusted(mut self) -> Self {
        self.policy.confirm = Some(false);
        self
    }

    /// Time after which a pending approval is denied.
    pub fn approval_timeout(mut self, time: Duration) -> Self {
        self.policy.approval_timeout = Some(time);
        self
    }
}
