//! Slows the reading of a server that sends more notifications than anything needs.
//!
//! In: each message that is no answer. Out: a pause, when the server has used up its share. The server then waits until its output is read,
//! so that it takes processor time from no other server. Answers are not counted: there is one per request.

use std::time::Duration;

use tokio::time::Instant;

/// Notifications per second in the long run, and how many may come at once.
const PER_SECOND: u32 = 10_000;
const BURST: u32 = 10_000;
/// The shortest pause, so that a server is read in batches. What is read at once delays the calls of other servers.
const MIN_PAUSE: Duration = Duration::from_millis(2);

/// Counts the notifications of one connection or stream.
pub(super) struct NotificationPace {
    left: f64,
    counted_at: Instant,
}

impl NotificationPace {
    pub(super) fn new() -> Self {
        Self { left: BURST.into(), counted_at: Instant::now() }
    }

    /// Counts a notification, and pauses if there were too many.
    pub(super) async fn count(&mut self) {
        self.left -= 1.0;
        if self.left >= 0.0 {
            return;
        }
        self.refill();
        if self.left < 0.0 {
            tokio::time::sleep(MIN_PAUSE).await;
            self.refill();
        }
    }

    fn refill(&mut self) {
        let now = Instant::now();
        self.left = (self.left + (now - self.counted_at).as_secs_f64() * f64::from(PER_SECOND)).min(BURST.into());
        self.counted_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_a_flood_is_slowed_down() {
        let (mut pace, start) = (NotificationPace::new(), Instant::now());
        for _ in 0..BURST {
            pace.count().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..5 * PER_SECOND {
            pace.count().await;
        }
        assert!(
            start.elapsed() > Duration::from_secs(4) && start.elapsed() < Duration::from_secs(6),
            "{:?}",
            start.elapsed()
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        let quiet = Instant::now();
        for _ in 0..BURST {
            pace.count().await;
        }
        assert_eq!(quiet.elapsed(), Duration::ZERO);
    }
}
