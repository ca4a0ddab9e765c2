//! How often a tool may be called, as its owner says it.
//!
//! In: numbers from code or config. Out: plain values; `scheduler/limiter.rs` holds calls to them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// So many calls in a period. They may come in a burst; after that they come evenly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// How many calls a period allows.
    pub requests: u32,
    /// The period.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub per: Duration,
    /// How many may come at once; as many as a period allows where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Who shares it.
    #[serde(default)]
    pub scope: RateScope,
    /// What happens to a call beyond it.
    #[serde(default)]
    pub on_excess: OnExcess,
}

/// Who shares a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScope {
    /// Everybody who calls the tool.
    #[default]
    Tool,
    /// Each thread has its own; a tenant's calls without a thread share one.
    Thread,
    /// Each caller has its own: a key, a user, an agent.
    Caller,
}

/// What happens to a call beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum OnExcess {
    /// It is refused, and told when to come again.
    #[default]
    Reject,
    /// It waits for its turn; refused only where that would take longer.
    Wait {
        /// How long a call may wait.
        #[serde(with = "crate::millis")]
        #[schemars(with = "u64")]
        at_most: Duration,
    },
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl RateLimit {
    /// So many calls in a period, shared by everybody; more are refused.
    #[must_use]
    pub const fn new(requests: u32, per: Duration) -> Self {
        Self { requests, per, burst: None, scope: RateScope::Tool, on_excess: OnExcess::Reject }
    }

    /// So many calls a second.
    #[must_use]
    pub const fn per_second(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(1))
    }

    /// So many calls a minute.
    #[must_use]
    pub const fn per_minute(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(60))
    }

    /// So many calls an hour.
    #[must_use]
    pub const fn per_hour(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(3600))
    }

    /// At most so many at once.
    #[must_use]
    pub const fn burst(mut self, calls: u32) -> Self {
        self.burst = Some(calls);
        self
    }

    /// Each thread has its own.
    #[must_use]
    pub const fn each_thread(mut self) -> Self {
        self.scope = RateScope::Thread;
        self
    }

    /// Each caller has its own.
    #[must_use]
    pub const fn each_caller(mut self) -> Self {
        self.scope = RateScope::Caller;
        self
    }

    /// A call beyond the limit waits for its turn, but no longer than this.
    #[must_use]
    pub const fn wait(mut self, at_most: Duration) -> Self {
        self.on_excess = OnExcess::Wait { at_most };
        self
    }

    /// Whether calls can be held to this.
    ///
    /// # Errors
    /// When no call would ever pass, or the period is nothing or longer than a year.
    pub fn check(&self) -> Result<(), String> {
        let wrong = if self.requests == 0 {
            "a rate limit allows at least one request"
        } else if self.burst == Some(0) {
            "a burst is at least one request"
        } else if self.per.is_zero() {
            "the period of a rate limit is longer than nothing"
        } else if self.per > YEAR {
            "the period of a rate limit is at most a year"
        } else {
            return Ok(());
        };
        Err(wrong.into())
    }

    /// The time one call takes up, once the burst is used. Rounded up, so that never too many pass.
    pub fn interval(&self) -> Duration {
        let nanos = u64::try_from(self.per.min(YEAR).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos.div_ceil(u64::from(self.requests.max(1))).max(1))
    }

    /// How many may come at once.
    pub fn burst_size(&self) -> u32 {
        self.burst.unwrap_or(self.requests).max(1)
    }

    /// How long a call may wait for its turn.
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
        for good in [
            RateLimit::per_second(1),
            RateLimit::per_minute(u32::MAX),
            RateLimit::per_hour(5).burst(1),
            RateLimit::new(1, YEAR),
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for bad in [
            RateLimit::per_second(0),
            RateLimit::per_second(1).burst(0),
            RateLimit::new(1, Duration::ZERO),
            RateLimit::new(1, Duration::MAX),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
            assert!(bad.interval() > Duration::ZERO && bad.burst_size() > 0, "{bad:?}");
        }
    }

    #[test]
    fn settings_are_written_with_plain_names_and_read_back() {
        let limit = RateLimit::per_minute(30).burst(5).each_thread().wait(Duration::from_secs(2));
        let written = json!({
            "requests": 30, "per": 60_000, "burst": 5, "scope": "thread", "onExcess": {"wait": {"atMost": 2000}}
        });
        assert_eq!(serde_json::to_value(&limit).unwrap(), written);
        assert_eq!(serde_json::from_value::<RateLimit>(written).unwrap(), limit);
        let short = json!({"requests": 3, "per": 1000});
        assert_eq!(serde_json::from_value::<RateLimit>(short).unwrap(), RateLimit::per_second(3));
    }
}
