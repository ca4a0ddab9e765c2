//! A clock that tests control.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::clock::{Clock, JumpGuard, TimeSource};
use toolhub_types::timestamp::Timestamp;

/// A clock for tests that run with tokio's time paused (`#[tokio::test(start_paused = true)]`).
///
/// It starts at 2024-01-01 12:00 UTC. While every task waits, tokio advances time to the next timer immediately.
/// [`advance`](Self::advance) moves the time explicitly; [`jump`](Self::jump) changes the wall clock only, as setting the
/// system time does.
#[derive(Debug, Clone)]
pub struct TestClock {
    started: Instant,
    wall_offset_millis: Arc<AtomicI64>,
}

/// Noon, so that an hour back or forth stays on the same day.
const NOON: Timestamp = Timestamp::from_millis(1_704_110_400_000);

impl TestClock {
    /// A clock at noon. Must be created inside the test's runtime.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now(), wall_offset_millis: Arc::default() }
    }

    /// Moves time forward and fires every timer that is due.
    pub async fn advance(&self, by: Duration) {
        tokio::time::advance(by).await;
    }

    /// Moves the wall clock by this many milliseconds, forward or back. Timers are not affected.
    pub fn jump(&self, millis: i64) {
        self.wall_offset_millis.fetch_add(millis, Ordering::Relaxed);
    }

    /// The clock as [`SystemClock`](crate::clock::SystemClock) would report it: without its jumps.
    #[must_use]
    pub fn without_jumps(&self) -> impl Clock + use<> {
        WithoutJumps(JumpGuard::new(self.clone()))
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let wall = NOON + self.started.elapsed();
        Timestamp::from_millis(wall.millis() + self.wall_offset_millis.load(Ordering::Relaxed))
    }
}

struct WithoutJumps(JumpGuard<TestClock>);

impl Clock for WithoutJumps {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl TimeSource for TestClock {
    fn wall(&self) -> i64 {
        self.now().millis() * 1_000_000
    }

    fn monotonic(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
}
