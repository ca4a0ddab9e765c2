//! Retry policy: exponential backoff with full jitter.
//!
//! In: settings, how the last attempt failed, the time left until the call's deadline, a random number. Out: the delay before the next
//! attempt, or `None` to give up. Holds no clock and no tool; the pipeline waits, and checks the retry budget (`scheduler/retry_budget.rs`) first.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How often a failed call is retried, and with which delays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "RetryPolicy")]
pub struct Retry {
    /// Maximum number of attempts, including the first. 1 disables retries.
    pub attempts: u32,
    /// The delay before the second attempt.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub first: Duration,
    /// The factor by which each delay grows.
    pub factor: f64,
    /// Maximum delay, unless the upstream service asks for a longer one (`Retry-After`).
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub longest: Duration,
    /// Whether delays have full jitter, so that calls that failed together are not retried together.
    pub jitter: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 3, first: Duration::from_secs(1), factor: 2.0, longest: Duration::from_secs(30), jitter: true }
    }
}

/// The facts about a failed attempt that decide whether it is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptFailure {
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Whether it provably failed before it had any side effect.
    pub before_effect: bool,
    /// The delay that the upstream service asked for.
    pub retry_after: Option<Duration>,
}

/// A longer `Retry-After` of a service is clamped to this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5 * 60);

/// The delay before the next attempt; `None` to give up.
///
/// `may_repeat`: the call is safe to repeat. `random`: from 0 to 1.
pub fn next_retry_delay(
    retry: &Retry,
    attempts_made: u32,
    failure: &AttemptFailure,
    may_repeat: bool,
    time_left: Duration,
    random: f64,
) -> Option<Duration> {
    let may_retry = failure.retryable && (may_repeat || failure.before_effect) && attempts_made < retry.attempts;
    // Compare the unclamped value: a service that asks for more time than the call has left will not recover in time for this call.
    if !may_retry || failure.retry_after.is_some_and(|retry_after| retry_after >= time_left) {
        return None;
    }
    let full_delay = backoff(retry, attempts_made);
    let own_delay = if retry.jitter { apply_jitter(full_delay, random) } else { full_delay };
    let delay = own_delay.max(failure.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER));
    (delay < time_left).then_some(delay)
}

/// A random part of the delay; the whole delay if the result is not a valid duration.
fn apply_jitter(full_delay: Duration, random: f64) -> Duration {
    Duration::try_from_secs_f64(full_delay.as_secs_f64() * random.clamp(0.0, 1.0)).unwrap_or(full_delay)
}

/// The delay after `attempts_made` attempts, before jitter.
fn backoff(retry: &Retry, attempts_made: u32) -> Duration {
    let exponent = i32::try_from(attempts_made.saturating_sub(1)).unwrap_or(i32::MAX);
    let seconds = retry.first.as_secs_f64() * retry.factor.powi(exponent);
    // An overflow means the maximum delay. A negative or NaN factor is invalid; fall back to the first delay.
    match Duration::try_from_secs_f64(seconds) {
        Ok(delay) => delay.min(retry.longest),
        Err(_) if seconds > 0.0 => retry.longest,
        Err(_) => retry.first.min(retry.longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE_TIME: Duration = Duration::from_secs(3600);
    const RETRYABLE: AttemptFailure = AttemptFailure { retryable: true, before_effect: false, retry_after: None };

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn without_jitter() -> Retry {
        Retry { attempts: 100, jitter: false, ..Retry::default() }
    }

    #[track_caller]
    fn check(retry: &Retry, attempts_made: u32, failure: AttemptFailure, expected_ms: Option<u64>) {
        assert_eq!(
            next_retry_delay(retry, attempts_made, &failure, true, AMPLE_TIME, 1.0),
            expected_ms.map(ms),
            "{retry:?} {failure:?}"
        );
    }

    fn with_retry_after(millis: u64) -> AttemptFailure {
        AttemptFailure { retry_after: Some(ms(millis)), ..RETRYABLE }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        for (attempts_made, expected) in [(1, 1_000), (2, 2_000), (3, 4_000), (5, 16_000), (6, 30_000), (99, 30_000)] {
            check(&without_jitter(), attempts_made, RETRYABLE, Some(expected));
        }
    }

    #[test]
    fn three_attempts_are_made_unless_said_otherwise() {
        check(&Retry::default(), 1, RETRYABLE, Some(1_000));
        check(&Retry::default(), 2, RETRYABLE, Some(2_000));
        check(&Retry::default(), 3, RETRYABLE, None);
        for attempts in [0, 1] {
            check(&Retry { attempts, ..without_jitter() }, 1, RETRYABLE, None);
        }
    }

    #[test]
    fn only_what_may_be_repeated_is_repeated() {
        // retryable, before_effect, may_repeat; whether it is retried.
        for (retryable, before_effect, may_repeat, expected) in [
            (true, false, true, true),
            (true, true, false, true),
            (true, true, true, true),
            (true, false, false, false),
            (false, true, true, false),
            (false, false, true, false),
        ] {
            let failure = AttemptFailure { retryable, before_effect, retry_after: None };
            let delay = next_retry_delay(&Retry::default(), 1, &failure, may_repeat, AMPLE_TIME, 0.5);
            assert_eq!(delay.is_some(), expected, "{failure:?} {may_repeat}");
        }
    }

    #[test]
    fn chance_takes_any_part_of_a_wait() {
        for (random, expected) in [(0.0, 0), (0.25, 500), (1.0, 2_000), (-3.0, 0), (7.0, 2_000), (f64::NAN, 2_000)] {
            assert_eq!(
                next_retry_delay(&Retry::default(), 2, &RETRYABLE, true, AMPLE_TIME, random),
                Some(ms(expected)),
                "{random}"
            );
        }
    }

    #[test]
    fn a_service_that_asks_for_time_gets_it_within_reason() {
        check(&without_jitter(), 1, with_retry_after(200), Some(1_000));
        check(&without_jitter(), 1, with_retry_after(7_000), Some(7_000));
        check(&without_jitter(), 1, with_retry_after(60_000), Some(60_000));
        check(&without_jitter(), 1, with_retry_after(3_000_000), Some(300_000));
        check(&without_jitter(), 1, with_retry_after(3_600_000), None);
        check(&without_jitter(), 1, AttemptFailure { retry_after: Some(Duration::MAX), ..RETRYABLE }, None);
    }

    #[test]
    fn a_wait_that_does_not_fit_into_the_time_left_is_not_begun() {
        for (time_left, expected) in [(1_001, Some(1_000)), (1_000, None), (0, None)] {
            assert_eq!(
                next_retry_delay(&without_jitter(), 1, &RETRYABLE, true, ms(time_left), 1.0),
                expected.map(ms),
                "{time_left}"
            );
        }
        assert_eq!(next_retry_delay(&without_jitter(), 1, &with_retry_after(400_000), true, ms(350_000), 1.0), None);
    }

    #[test]
    fn odd_numbers_never_panic_and_never_wait_too_long() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -2.0, 0.0, 0.5, 1.0, f64::MAX, f64::MIN_POSITIVE];
        for factor in odd {
            for first in [Duration::ZERO, ms(1_000), Duration::MAX] {
                for attempts_made in [0, 1, 2, 3, 1_000, u32::MAX - 1] {
                    let retry = Retry { factor, first, attempts: u32::MAX, ..without_jitter() };
                    let delay = next_retry_delay(&retry, attempts_made, &RETRYABLE, true, AMPLE_TIME, 1.0).unwrap();
                    assert!(delay <= retry.longest, "{retry:?} after {attempts_made}: {delay:?}");
                }
            }
        }
        let endless = Retry { first: Duration::MAX, longest: Duration::MAX, ..without_jitter() };
        assert_eq!(next_retry_delay(&endless, 2, &RETRYABLE, true, AMPLE_TIME, 1.0), None);
        let endless = Retry { jitter: true, ..endless };
        assert_eq!(next_retry_delay(&endless, 2, &RETRYABLE, true, AMPLE_TIME, 1.0), None);
        check(&Retry { factor: f64::NAN, ..without_jitter() }, 2, RETRYABLE, Some(1_000));
        check(&Retry { factor: f64::INFINITY, ..without_jitter() }, 2, RETRYABLE, Some(30_000));
    }

    #[test]
    fn what_is_not_said_keeps_its_default() {
        let read: Retry = serde_json::from_str(r#"{"attempts": 5, "first": 250}"#).unwrap();
        assert_eq!(read, Retry { attempts: 5, first: ms(250), ..Retry::default() });
    }
}
