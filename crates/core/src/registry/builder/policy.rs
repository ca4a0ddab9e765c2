//! What a tool's owner says about its calls, said while the tool is built.

use std::time::Duration;

use super::ToolBuilder;
use toolhub_types::policy::{Policy, RateLimit, Retry};

impl ToolBuilder {
    /// What was said about its calls so far, changed in place.
    pub fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// How long a call may take.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.policy.timeout = Some(time);
        self
    }

    /// How long a call may stay silent; every sign of progress begins it anew.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.policy.idle_timeout = Some(time);
        self
    }

    /// How many characters of text a model is shown; the rest is kept as an artifact.
    pub fn text_limit(mut self, characters: usize) -> Self {
        self.policy.text_limit = Some(characters);
        self
    }

    /// How many bytes of structured output are passed on; more is kept as an artifact.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.policy.output_limit = Some(bytes);
        self
    }

    /// How long one attempt may take. Without it a timeout is not tried again.
    pub fn attempt_timeout(mut self, time: Duration) -> Self {
        self.policy.attempt_timeout = Some(time);
        self
    }

    /// How often a failed call is tried again. Only a tool that is read-only or idempotent is, or a failure that came
    /// before anything was done.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = Some(retry);
        self
    }

    /// A failed call is never tried again.
    pub fn no_retry(self) -> Self {
        self.retry(Retry { attempts: 1, ..Retry::default() })
    }

    /// At most so many calls a minute, for all callers together.
    pub fn per_minute(self, calls: u32) -> Self {
        self.rate_limit(RateLimit::per_minute(calls))
    }

    /// At most so many calls in so much time. Said twice, both hold.
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.policy.rate_limits.get_or_insert_default().push(limit);
        self
    }

    /// At most so many calls at once; others wait for their turn.
    pub fn max_concurrency(mut self, calls: usize) -> Self {
        self.policy.max_concurrency = Some(calls);
        self
    }

    /// How long a call may wait for its turn.
    pub fn queue_timeout(mut self, time: Duration) -> Self {
        self.policy.queue_timeout = Some(time);
        self
    }

    /// Keeps answers for this long, and gives them again to calls with the same arguments. For read-only tools.
    pub fn cache(mut self, time: Duration) -> Self {
        self.policy.cache = Some(time);
        self
    }

    /// It may run beside other calls of the same step, although it is not read-only.
    pub fn parallel_safe(mut self) -> Self {
        self.policy.parallel_safe = Some(true);
        self
    }

    /// A person is asked before every call that no rule speaks of.
    pub fn confirm(mut self) -> Self {
        self.policy.confirm = Some(true);
        self
    }

    /// Nobody is asked, even if the tool was imported. Rules may still ask or deny.
    pub fn trusted(mut self) -> Self {
        self.policy.confirm = Some(false);
        self
    }

    /// How long a person has to answer.
    pub fn approval_timeout(mut self, time: Duration) -> Self {
        self.policy.approval_timeout = Some(time);
        self
    }
}
