//! The clock: wall time for records, monotonic time for deadlines.
//!
//! Out: `Timestamp` (stored, shown) and tokio's `Instant` (never stored, never jumps).
//! All code reads the hub's clock, so that a test can freeze time.

mod jump_guard;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

pub use jump_guard::ClockJump;
pub(crate) use jump_guard::JumpGuard;
use jump_guard::MachineTime;
#[cfg(feature = "testing")]
pub(crate) use jump_guard::TimeSource;
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

/// The operating system's clock, but without its jumps: after one, the time from before goes on until the clock has been steady
/// for an hour.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

static MACHINE: LazyLock<JumpGuard<MachineTime>> = LazyLock::new(|| JumpGuard::new(MachineTime));

impl SystemClock {
    /// The jump of the machine's clock that is not followed yet.
    #[must_use]
    pub fn jump(&self) -> Option<ClockJump> {
        MACHINE.jump()
    }

    /// Follows the machine's clock from now on, although it has jumped.
    pub fn accept_jump(&self) {
        MACHINE.accept();
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        MACHINE.now()
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
