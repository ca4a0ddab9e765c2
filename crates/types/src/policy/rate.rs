//! Rate limit settings.
//!
//! In: numbers from code or config. Out: validated values and the derived GCRA parameters; `scheduler/limiter.rs` enforces them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A maximum number of calls per period. A burst may use them immediately; after that, calls are spaced evenly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// Calls allowed per period.
    pub requests: u32,
    /// The period.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub per: Duration,
    /// Maximum burst. Default: `requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Which calls share the limit.
    #[serde(default)]
    pub scope: RateScope,
    /// What happens to a call above the limit.
    #[serde(default)]
    pub on_excess: OnExcess,
}

/// Which calls share a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScope {
    /// All calls of the tool.
    #[default]
    Tool,
    /// The calls of one thread; a tenant's calls without a thread share one limit.
    Thread,
    /// The calls of one caller: a key, a user, an agent.
    Caller,
}

/// What happens to a call above the rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum OnExcess {
    /// The call is refused with a retry-after.
    #[default]
    Reject,
    /// The call waits; it is refused only if the wait would exceed the maximum.
    Wait {
        /// Maximum wait.
        #[serde(with = "crate::millis")]
        #[schemars(with = "u64")]
        at_most: Duration,
    },
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl RateLimit {
    /// A limit of `requests` per period, shared by all calls of the tool; calls above it are refused.
    #[must_use]
    pub const fn new(requests: u32, per: Duration) -> Self {
        Self { requests, per, burst: None, scope: RateScope::Tool, on_excess: OnExcess::Reject }
    }

    /// A limit of `requests` per second.
    #[must_use]
    pub const fn per_second(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(1))
    }

    /// A limit of `requests` per minute.
    #[must_use]
    pub const fn per_minute(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(60))
    }

    /// A limit of `requests` per hour.
    #[must_use]
    pub const fn per_hour(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(3600))
    }

    /// Sets the maximum burst.
    #[must_use]
    pub const fn burst(mut self, calls: u32) -> Self {
        self.burst = Some(calls);
        self
    }

    /// Makes the limit apply to each thread separately.
    #[must_use]
    pub const fn each_thread(mut self) -> Self {
        self.scope = RateScope::Thread;
        self
    }

    /// Makes the limit apply to each caller separately.
    #[must_use]
    pub const fn each_caller(mut self) -> Self {
        self.scope = RateScope::Caller;
        self
    }

    /// Lets a call above the limit wait, but no longer than `at_most`.
    #[must_use]
    pub const fn wait(mut self, at_most: Duration) -> Self {
        self.on_excess = OnExcess::Wait { at_most };
        self
    }

    /// Checks the values.
    ///
    /// # Errors
    /// When no call could ever pass, or the period is zero or longer than a year.
    pub fn check(&self) -> Result<(), String> {
        let problem = if self.requests == 0 {
            "a rate limit must allow at least one request"
        } else if self.burst == Some(0) {
            "the burst of a rate limit must be at least one request"
        } else if self.per.is_zero() {
            "the period of a rate limit must be longer than zero"
        } else if self.per > YEAR {
            "the period of a rate limit must be at most a year"
        } else {
            return Ok(());
        };
        Err(problem.into())
    }

    /// The GCRA emission interval: the time between two calls once the burst is used up. Rounded up, so that the limit is never exceeded.
    pub fn interval(&self) -> Duration {
        let nanos = u64::try_from(self.per.min(YEAR).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos.div_ceil(u64::from(self.requests.max(1))).max(1))
    }

    /// The effective maximum burst, at least 1.
    pub fn burst_size(&self) -> u32 {
        self.burst.unwrap_or(self.requests).max(1)
    }

    /// How long a call above the limit may wait; zero means it is refused.
    pub fn max_wait(&self) -> Duration {
        match self.on_excess {
            OnExcess::Reject => Duration::ZERO,
            OnExcess::Wait { at_most } => at_most.min(YEAR),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_that_lets_nobody_pass_is_refused() {
        for valid in [
            RateLimit::per_second(1),
            RateLimit::per_minute(u32::MAX),
            RateLimit::per_hour(5).burst(1),
            RateLimit::new(1, YEAR),
        ] {
            assert_eq!(valid.check(), Ok(()), "{valid:?}");
        }
        for invalid in [
            RateLimit::per_second(0),
            RateLimit::per_second(1).burst(0),
            RateLimit::new(1, Duration::ZERO),
            RateLimit::new(1, Duration::MAX),
        ] {
            assert!(invalid.check().is_err(), "{invalid:?}");
            assert!(invalid.interval() > Duration::ZERO && invalid.burst_size() > 0, "{invalid:?}");
        }
    }

    #[test]
    fn settings_are_written_with_plain_names_and_read_back() {
        let limit = RateLimit::per_minute(30).burst(5).each_thread().wait(Duration::from_secs(2));
        let json = json!({
            "requests": 30, "per": 60_000, "burst": 5, "scope": "thread", "onExcess": {"wait": {"atMost": 2000}}
        });
        assert_eq!(serde_json::to_value(&limit).unwrap(), json);
        assert_eq!(serde_json::from_value::<RateLimit>(json).unwrap(), limit);
        let minimal = json!({"requests": 3, "per": 1000});
        assert_eq!(serde_json::from_value::<RateLimit>(minimal).unwrap(), RateLimit::per_second(3));
    }
}
