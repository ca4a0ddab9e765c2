//! What holds for calls, in the words of core.

use std::time::Duration;

use toolhub_core::{OnExcess, Policy, RateLimit, RateScope, Retry};

use super::to_usize;
use crate::config::{
    Diagnostics, KeyPath,
    raw::{self, Backoff, Calls, RateLimits},
};

const MAX_RATE_PERIOD: Duration = Duration::from_secs(365 * 24 * 3600);

impl Calls {
    /// What was said about calls, in the words of core. `at` is where it was said.
    pub fn policy(&self, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Policy {
        if let (Some(timeout), Some(attempt)) = (self.timeout, self.attempt_timeout)
            && attempt.0 > timeout.0
        {
            let help = "make it shorter than `timeout`, which covers all attempts";
            desk.report(&at.key("attempt_timeout"), "one attempt may take longer than the whole call", help);
        }
        let rate_limits = self.rate_limit.as_ref().map(|limits| match limits {
            RateLimits::One(one) => vec![rate_limit(one, &at.key("rate_limit"), desk)],
            RateLimits::Many(many) => {
                let each = many.iter().enumerate();
                each.map(|(place, one)| rate_limit(one, &at.key("rate_limit").index(place), desk)).collect()
            }
        });
        Policy {
            timeout: self.timeout.map(|time| time.0),
            attempt_timeout: self.attempt_timeout.map(|time| time.0),
            idle_timeout: self.idle_timeout.map(|time| time.0),
            text_limit: self.text_limit.map(to_usize),
            output_limit: self.output_limit.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX)),
            retry: self.retry.as_ref().map(|said| retry(said, &at.key("retry"), desk)),
            rate_limits,
            max_concurrency: self.max_concurrency.map(to_usize),
            queue_timeout: self.queue_timeout.map(|time| time.0),
            cache: self.cache.as_ref().map(|cache| cache.ttl.0),
            parallel_safe: self.parallel_safe,
            confirm: self.confirm,
            approval_timeout: self.approval_timeout.map(|time| time.0),
        }
    }
}

fn retry(said: &raw::Retry, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Retry {
    // A factor as usual may have been written by `config show`.
    if said.backoff == Backoff::Fixed && (said.factor - raw::Retry::default().factor).abs() > f64::EPSILON {
        let help = "remove it, or use backoff = \"exponential\"";
        desk.report(&at.key("factor"), "`factor` does nothing with backoff = \"fixed\"", help);
    }
    if said.max.0 < said.initial.0 {
        desk.report(&at.key("max"), "`max` is shorter than `initial`", "make it at least as long as the first wait");
    }
    Retry {
        attempts: said.attempts,
        first: said.initial.0,
        factor: if said.backoff == Backoff::Fixed { 1.0 } else { said.factor },
        longest: said.max.0,
        jitter: said.jitter,
    }
}

fn rate_limit(said: &raw::RateLimit, at: &KeyPath, desk: &mut Diagnostics<'_>) -> RateLimit {
    if said.per.0 > MAX_RATE_PERIOD {
        desk.report(&at.key("per"), "a period is at most a year", "use at most \"365d\"");
    }
    RateLimit {
        requests: said.requests,
        per: said.per.0,
        burst: said.burst,
        scope: match said.scope {
            raw::RateScope::Tool => RateScope::Tool,
            raw::RateScope::Thread => RateScope::Thread,
            raw::RateScope::Key => RateScope::Caller,
        },
        on_excess: said.wait.map_or(OnExcess::Reject, |time| OnExcess::Wait { at_most: time.0 }),
    }
}
