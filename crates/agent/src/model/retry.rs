//! Decides how long to wait before a provider is asked again.
//!
//! In: how often it was asked, what it said about waiting, and how much time is left. Out: a wait, or `None` for "give up". Holds no clock.

use std::time::Duration;

/// The longest wait between two tries of which a provider said nothing.
const MAX_DELAY: Duration = Duration::from_secs(8);

/// How long to wait before the next try; `chance` is between 0 and 1.
pub(super) fn next_delay(
    retries: u32,
    first: Duration,
    told: Option<Duration>,
    left: Duration,
    chance: f64,
) -> Option<Duration> {
    let wait = told.unwrap_or_else(|| {
        let full = first.saturating_mul(2_u32.saturating_pow(retries)).min(MAX_DELAY.max(first));
        // Many clients that fell over together do not come back together.
        full.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 4.0)
    });
    (wait < left).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(500);
    const LEFT: Duration = Duration::from_secs(60);

    #[test]
    fn waits_double_up_to_a_bound_and_are_not_all_alike() {
        let waits = [0, 1, 2, 20].map(|retries| next_delay(retries, FIRST, None, LEFT, 0.0).unwrap().as_millis());
        assert_eq!(waits, [500, 1000, 2000, 8000]);
        assert_eq!(next_delay(0, FIRST, None, LEFT, 1.0), Some(Duration::from_millis(375)));
    }

    #[test]
    fn what_a_provider_says_counts_and_nobody_waits_for_what_comes_too_late() {
        let told = Some(Duration::from_secs(20));
        assert_eq!(next_delay(5, FIRST, told, LEFT, 1.0), told);
        assert_eq!(next_delay(0, FIRST, told, Duration::from_secs(20), 0.0), None);
        assert_eq!(next_delay(0, FIRST, None, Duration::from_millis(100), 0.0), None);
    }
}
