//! A clock that moves only when the test says so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::clock::Clock;
use toolhub_types::timestamp::Timestamp;

/// A clock for tests that run with tokio's time paused (`#[tokio::test(start_paused = true)]`).
///
/// It begins at 2024-01-01 12:00 UTC. Waiting moves it: while every task waits, tokio skips to the next timer at once.
/// [`advance`](Self::advance) moves it on purpose; [`jump`](Self::jump) turns the wall clock only, as when somebody
/// sets the machine's time.
#[derive(Debug, Clone)]
pub struct TestClock {
    started: Instant,
    wall_offset_millis: Arc<AtomicI64>,
}

/// Noon, so that an hour back or forth stays on the same day.
const NOON: Timestamp = Timestamp::from_millis(1_704_110_400_000);

impl TestClock {
    /// A clock at noon. To be made inside the test's runtime.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now(), wall_offset_millis: Arc::default() }
    }

    /// Moves time forward and lets every timer that is due run.
    pub async fn advance(&self, by: Duration) {
        tokio::time::advance(by).await;
    }

    /// Turns the wall clock by this many milliseconds, forward or back. Timers do not notice.
    pub fn jump(&self, millis: i64) {
        self.wall_offset_millis.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let moved = NOON + self.started.elapsed();
        Timestamp::from_millis(moved.millis() + self.wall_offset_millis.load(Ordering::Relaxed))
    }
}
