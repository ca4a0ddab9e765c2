//! The clock: wall time for records, monotonic time for deadlines.
//!
//! Out: `Timestamp` (stored, shown, may jump) and tokio's `Instant` (never stored, never jumps).
//! All code reads the hub's clock, so that a test can freeze time.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

pub use tokio::time::Instant;
pub use toolhub_types::timestamp::Timestamp;

/// A source of wall time and monotonic time.
///
/// An implementation promises that `instant` never goes backwards and runs at the speed of tokio's timers.
pub trait Clock: Send + Sync + 'static {
    /// Wall time, for records.
    fn now(&self) -> Timestamp;

    /// Monotonic time, for deadlines and durations.
    fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// `now + timeout`, capped at thirty years so that `Duration::MAX` ("never") cannot overflow.
pub fn deadline_after(now: Instant, timeout: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now + timeout.min(THIRTY_YEARS)
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

impl<C: Clock> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        self.as_ref().now()
    }
    fn instant(&self) -> Instant {
        self.as_ref().instant()
    }
}
