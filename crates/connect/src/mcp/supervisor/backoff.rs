//! Decides how long to wait before the next attempt to connect.
//!
//! In: why the last attempt failed, and a random number. Out: the wait. It holds no clock and no random numbers; the supervisor waits.

use std::time::Duration;

/// Bounds of the longest wait, which doubles with each attempt.
const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The longest delay that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Wait after the server has refused the credentials: they do not change by themselves.
const UNAUTHORIZED_DELAY: Duration = Duration::from_secs(300);
/// A connection that lived this long was healthy: the next wait is the shortest again.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The waits between attempts that fail one after the other.
pub(super) struct Backoff {
    /// The longest wait before the next attempt.
    longest: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { longest: MIN_DELAY }
    }

    /// A connection ended that had lived for this long.
    pub(super) fn connected_for(&mut self, lived: Duration) {
        if lived >= HEALTHY_AFTER {
            *self = Self::new();
        }
    }

    /// The wait before the next attempt. `retry_after`: how long the server asks to wait. `random`: at least 0 and less than 1. Full
    /// jitter: many servers that were lost together do not come back together.
    pub(super) fn next_wait(
        &mut self,
        needs_credentials: bool,
        retry_after: Option<Duration>,
        random: f64,
    ) -> Duration {
        let wait = if needs_credentials { UNAUTHORIZED_DELAY } else { self.longest.mul_f64(random) };
        self.longest = (2 * self.longest).min(MAX_DELAY);
        wait.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
    }
}

/// How long to wait before a server that is too busy for its first list is asked again. `asked`: how long it asks to wait.
pub(super) fn busy_wait(asked: Duration) -> Duration {
    asked.clamp(MIN_DELAY, MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALMOST_ONE: f64 = 1.0 - f64::EPSILON;

    fn millis(wait: Duration) -> u128 {
        // The random number is less than one.
        (wait.as_secs_f64() * 1_000.0).round() as u128
    }

    #[test]
    fn the_longest_wait_doubles_from_half_a_second_to_a_minute_and_the_wait_is_any_part_of_it() {
        let waits = |random: f64| {
            let mut backoff = Backoff::new();
            [(); 10].map(|()| millis(backoff.next_wait(false, None, random)))
        };
        assert_eq!(waits(ALMOST_ONE), [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
        assert_eq!(waits(0.5), [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(waits(0.0), [0; 10]);
    }

    #[test]
    fn only_a_connection_that_was_healthy_makes_the_next_wait_the_shortest_again() {
        let after = |lived: u64| {
            let mut backoff = Backoff::new();
            for _ in 0..4 {
                backoff.next_wait(false, None, 0.5);
            }
            backoff.connected_for(Duration::from_secs(lived));
            millis(backoff.next_wait(false, None, ALMOST_ONE))
        };
        assert_eq!([after(0), after(9), after(10), after(3_600)], [8_000, 8_000, 500, 500]);
    }

    #[test]
    fn a_server_may_ask_for_five_minutes_and_refused_credentials_wait_as_long() {
        let wait = |needs_credentials, retry_after: Option<u64>, random| {
            Backoff::new().next_wait(needs_credentials, retry_after.map(Duration::from_secs), random).as_secs()
        };
        assert_eq!([wait(false, Some(7), 0.9), wait(false, Some(90_000), 0.9)], [7, 300]);
        assert_eq!([wait(true, None, 0.0), wait(true, Some(7), 0.9), wait(true, Some(90_000), 0.0)], [300; 3]);
        let asked = [0, 7, 90_000].map(|asked| millis(busy_wait(Duration::from_secs(asked))));
        assert_eq!(asked, [500, 7_000, 60_000]);
    }
}
