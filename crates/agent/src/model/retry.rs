//! Computes the backoff before a model request is retried.
//!
//! In: the number of retries, the provider's `Retry-After`, and the remaining time. Out: a delay, or `None` for "give
//! up". Reads no clock.

use std::time::Duration;

/// Maximum delay without a `Retry-After` of the provider.
const MAX_DELAY: Duration = Duration::from_secs(8);

/// How long to wait before the next attempt; `random` is between 0 and 1.
pub(super) fn next_delay(
    retries: u32,
    first: Duration,
    retry_after: Option<Duration>,
    remaining: Duration,
    random: f64,
) -> Option<Duration> {
    let delay = retry_after.unwrap_or_else(|| {
        let full = first.saturating_mul(2_u32.saturating_pow(retries)).min(MAX_DELAY.max(first));
        // Jitter, so that clients that failed together do not retry together.
        full.mul_f64(1.0 - random.clamp(0.0, 1.0) / 4.0)
    });
    (delay < remaining).then_some(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(500);
    const REMAINING: Duration = Duration::from_secs(60);

    #[test]
    fn waits_double_up_to_a_bound_and_are_not_all_alike() {
        let waits = [0, 1, 2, 20].map(|retries| next_delay(retries, FIRST, None, REMAINING, 0.0).unwrap().as_millis());
        assert_eq!(waits, [500, 1000, 2000, 8000]);
        assert_eq!(next_delay(0, FIRST, None, REMAINING, 1.0), Some(Duration::from_millis(375)));
    }

    #[test]
    fn what_a_provider_says_counts_and_nobody_waits_for_what_comes_too_late() {
        let retry_after = Some(Duration::from_secs(20));
        assert_eq!(next_delay(5, FIRST, retry_after, REMAINING, 1.0), retry_after);
        assert_eq!(next_delay(0, FIRST, retry_after, Duration::from_secs(20), 0.0), None);
        assert_eq!(next_delay(0, FIRST, None, Duration::from_millis(100), 0.0), None);
    }
}
