//! Converts the call settings of a config to the `Policy` of core.

use std::time::Duration;

use toolhub_core::{OnExcess, Policy, RateLimit, RateScope, Retry};

use super::to_usize;
use crate::config::{
    Diagnostics, KeyPath,
    raw::{self, Backoff, CallSettings, RateLimits},
};

const MAX_RATE_PERIOD: Duration = Duration::from_secs(365 * 24 * 3600);

impl CallSettings {
    /// Converts the settings at `at` to a policy, and reports contradictions.
    pub fn policy(&self, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Policy {
        if let (Some(timeout), Some(attempt)) = (self.timeout, self.attempt_timeout)
            && attempt.0 > timeout.0
        {
            let help = "make it shorter than `timeout`, which covers all attempts";
            diagnostics.report(&at.key("attempt_timeout"), "`attempt_timeout` is longer than `timeout`", help);
        }
        let rate_limits = self.rate_limit.as_ref().map(|limits| match limits {
            RateLimits::One(one) => vec![rate_limit(one, &at.key("rate_limit"), diagnostics)],
            RateLimits::Many(many) => {
                let each = many.iter().enumerate();
                each.map(|(index, one)| rate_limit(one, &at.key("rate_limit").index(index), diagnostics)).collect()
            }
        });
        Policy {
            timeout: self.timeout.map(|time| time.0),
            attempt_timeout: self.attempt_timeout.map(|time| time.0),
            idle_timeout: self.idle_timeout.map(|time| time.0),
            text_limit: self.text_limit.map(to_usize),
            output_limit: self.output_limit.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX)),
            retry: self.retry.as_ref().map(|settings| retry(settings, &at.key("retry"), diagnostics)),
            rate_limits,
            max_concurrency: self.max_concurrency.map(to_usize),
            max_concurrency_shared: self.max_concurrency_shared.map(to_usize),
            queue_timeout: self.queue_timeout.map(|time| time.0),
            cache: self.cache.as_ref().map(|cache| cache.ttl.0),
            parallel_safe: self.parallel_safe,
            confirm: self.confirm,
            approval_timeout: self.approval_timeout.map(|time| time.0),
        }
    }
}

fn retry(settings: &raw::Retry, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Retry {
    // The default factor is no contradiction: `config show` writes it out.
    if settings.backoff == Backoff::Fixed && (settings.factor - raw::Retry::default().factor).abs() > f64::EPSILON {
        let help = "remove it, or use backoff = \"exponential\"";
        diagnostics.report(&at.key("factor"), "`factor` has no effect with backoff = \"fixed\"", help);
    }
    if settings.max.0 < settings.initial.0 {
        diagnostics.report(&at.key("max"), "`max` is shorter than `initial`", "make it at least as long as `initial`");
    }
    Retry {
        attempts: settings.attempts,
        first: settings.initial.0,
        factor: if settings.backoff == Backoff::Fixed { 1.0 } else { settings.factor },
        longest: settings.max.0,
        jitter: settings.jitter,
    }
}

fn rate_limit(settings: &raw::RateLimit, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> RateLimit {
    if settings.per.0 > MAX_RATE_PERIOD {
        diagnostics.report(&at.key("per"), "a period is at most a year", "use at most \"365d\"");
    }
    RateLimit {
        requests: settings.requests,
        per: settings.per.0,
        burst: settings.burst,
        scope: match settings.scope {
            raw::RateScope::Tool => RateScope::Tool,
            raw::RateScope::Thread => RateScope::Thread,
            raw::RateScope::Key => RateScope::Caller,
        },
        on_excess: settings.wait.map_or(OnExcess::Reject, |time| OnExcess::Wait { at_most: time.0 }),
    }
}
