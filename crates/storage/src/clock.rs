//! What time it is: wall time for records, monotonic time for waiting.
//!
//! Out: `Timestamp` (stored, shown, may jump) and tokio's `Instant` (never stored, never jumps).
//! Everybody asks the hub's clock, so that a test can hold time still.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

pub use tokio::time::Instant;
pub use toolhub_types::timestamp::Timestamp;

/// Where the time comes from.
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

/// The moment this much later. A time beyond all measure, such as `Duration::MAX` for "never", means thirty years.
pub fn deadline_after(now: Instant, time: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now + time.min(THIRTY_YEARS)
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
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
