//! Wall time that does not jump.
//!
//! In: the machine's clock and its monotonic clock. Out: the machine's time while the two agree. If the machine's clock jumps, the
//! time from before goes on, because expiries would be wrong by the jump: records, approvals and idempotency keys would be gone.
//! That ends when the machine's clock returns to the earlier time, has run without a jump for an hour, or an operator accepts it.
//! Time that the machine was suspended is no jump.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::UNIX_EPOCH,
};

use toolhub_types::timestamp::Timestamp;

const SECOND: i64 = 1_000_000_000;
/// How often the two clocks are compared.
const CHECK_INTERVAL: i64 = SECOND;
/// A smaller difference between two checks is a correction, which is followed.
const MAX_CORRECTION: i64 = 60 * SECOND;
/// How long a clock that has jumped must be steady to be accepted.
const STEADY_TIME: i64 = 3600 * SECOND;

/// Two clocks, in nanoseconds.
pub(crate) trait TimeSource: Send + Sync {
    /// Wall time, since the Unix epoch.
    fn wall(&self) -> i64;
    /// Monotonic time, including the time the machine was suspended.
    fn monotonic(&self) -> i64;
}

/// The clocks of the machine.
pub(super) struct MachineTime;

impl TimeSource for MachineTime {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn wall(&self) -> i64 {
        let since_epoch = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> i64 {
        #[cfg(target_os = "linux")]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec * SECOND + time.tv_nsec
    }
}

/// A jump of the machine's clock that is not accepted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockJump {
    /// How far the machine's clock is ahead, in milliseconds; negative if it is behind.
    pub millis: i64,
    /// When the new time will be accepted if the clock is steady until then, in the time that goes on.
    pub accepted_at: Timestamp,
}

/// Wall time that does not jump.
pub(crate) struct JumpGuard<S> {
    source: S,
    /// Wall time minus monotonic time.
    offset: AtomicI64,
    /// When the clocks are compared next, in monotonic time.
    next_check: AtomicI64,
    jump: Mutex<Option<Jump>>,
}

/// Where the machine's clock has jumped to.
#[derive(Debug, Clone, Copy)]
struct Jump {
    /// Wall time minus monotonic time, after the jump.
    offset: i64,
    /// Since when it has been steady, in monotonic time.
    since: i64,
}

/// What a comparison of the clocks has found.
enum Change {
    /// The clock is back where it was before it jumped.
    Back,
    /// The clock is followed again, because it has been steady.
    Accepted,
    /// The clock has jumped by so many seconds.
    Jumped { seconds: i64 },
}

impl<S: TimeSource> JumpGuard<S> {
    pub(crate) fn new(source: S) -> Self {
        let monotonic = source.monotonic();
        let offset = source.wall() - monotonic;
        Self {
            source,
            offset: AtomicI64::new(offset),
            next_check: AtomicI64::new(monotonic + CHECK_INTERVAL),
            jump: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let monotonic = self.source.monotonic();
        let next_check = self.next_check.load(Ordering::Relaxed);
        if monotonic >= next_check {
            let (order, next) = (Ordering::Relaxed, monotonic + CHECK_INTERVAL);
            // One of several threads is enough.
            if self.next_check.compare_exchange(next_check, next, order, order).is_ok() {
                self.compare(monotonic);
            }
        }
        self.wall_time(monotonic)
    }

    /// The jump that is not accepted yet.
    pub(super) fn jump(&self) -> Option<ClockJump> {
        self.compare(self.source.monotonic());
        let jump = (*self.lock())?;
        Some(ClockJump {
            millis: self.difference(jump) / 1_000_000,
            accepted_at: self.wall_time(jump.since + STEADY_TIME),
        })
    }

    /// Accepts the machine's time.
    pub(super) fn accept(&self) {
        let monotonic = self.source.monotonic();
        let mut jump = self.lock();
        *jump = None;
        self.offset.store(self.source.wall() - monotonic, Ordering::Relaxed);
    }

    fn wall_time(&self, monotonic: i64) -> Timestamp {
        Timestamp::from_millis((monotonic + self.offset.load(Ordering::Relaxed)) / 1_000_000)
    }

    fn difference(&self, jump: Jump) -> i64 {
        jump.offset - self.offset.load(Ordering::Relaxed)
    }

    /// Compares the clocks, and logs what changed. A log asks for the time, so it must be written without the lock.
    fn compare(&self, monotonic: i64) {
        match self.update(monotonic) {
            None => {}
            Some(Change::Back) => {
                tracing::info!("the machine's clock is back at its time from before the jump");
            }
            Some(Change::Accepted) => {
                tracing::warn!("the machine's clock has been steady for an hour since its jump: it is followed again");
            }
            Some(Change::Jumped { seconds }) => {
                tracing::warn!(
                    seconds,
                    "the machine's clock jumped; the time from before goes on, so that nothing expires by mistake, until the \
                     clock has been steady for an hour or `toolhub clock accept`"
                );
            }
        }
    }

    fn update(&self, monotonic: i64) -> Option<Change> {
        let offset = self.source.wall() - monotonic;
        let mut jump = self.lock();
        if is_correction(offset, self.offset.load(Ordering::Relaxed)) {
            self.offset.store(offset, Ordering::Relaxed);
            return jump.take().map(|_| Change::Back);
        }
        match &mut *jump {
            Some(jumped) if is_correction(offset, jumped.offset) => {
                jumped.offset = offset;
                if monotonic - jumped.since < STEADY_TIME {
                    return None;
                }
                *jump = None;
                self.offset.store(offset, Ordering::Relaxed);
                Some(Change::Accepted)
            }
            _ => {
                let jumped = Jump { offset, since: monotonic };
                *jump = Some(jumped);
                Some(Change::Jumped { seconds: self.difference(jumped) / SECOND })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Jump>> {
        self.jump.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_correction(offset: i64, other: i64) -> bool {
    offset.abs_diff(other) <= MAX_CORRECTION.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc::Sender},
        time::Duration,
    };

    use tracing::{Event, Metadata, span};

    use super::*;

    #[derive(Default)]
    struct SetTime {
        wall: AtomicI64,
        monotonic: AtomicI64,
    }
    impl TimeSource for SetTime {
        fn wall(&self) -> i64 {
            self.wall.load(Ordering::Relaxed)
        }
        fn monotonic(&self) -> i64 {
            self.monotonic.load(Ordering::Relaxed)
        }
    }

    impl JumpGuard<SetTime> {
        /// Lets time pass second by second. Returns the time then, in seconds.
        fn pass(&self, seconds: i64) -> i64 {
            for _ in 0..seconds {
                self.source.wall.fetch_add(SECOND, Ordering::Relaxed);
                self.source.monotonic.fetch_add(SECOND, Ordering::Relaxed);
                self.now();
            }
            self.now().millis() / 1000
        }

        /// Sets the wall clock forward or back.
        fn set(&self, seconds: i64) {
            self.source.wall.fetch_add(seconds * SECOND, Ordering::Relaxed);
        }
    }

    const YEAR: i64 = 365 * 24 * 3600;

    #[test]
    fn corrections_are_followed() {
        let guard = JumpGuard::new(SetTime::default());
        assert_eq!(guard.pass(10), 10);
        guard.set(59);
        assert_eq!(guard.pass(1), 70);
        guard.set(-59);
        assert_eq!((guard.pass(1), guard.jump()), (12, None));
    }

    #[test]
    fn a_jump_is_followed_once_the_clock_has_been_steady_for_an_hour_and_a_clock_that_comes_back_at_once() {
        for jump in [YEAR, -YEAR, 3600, -3600] {
            let guard = JumpGuard::new(SetTime::default());
            guard.set(jump);
            assert_eq!(guard.pass(60), 60);
            let accepted_at = Timestamp::from_millis(3_601_000);
            assert_eq!(guard.jump(), Some(ClockJump { millis: jump * 1000, accepted_at }));
            guard.set(-jump);
            assert_eq!((guard.pass(1), guard.jump()), (61, None));
            guard.set(jump);
            assert_eq!(guard.pass(3600), 3661);
            assert_eq!((guard.pass(2), guard.jump()), (3663 + jump, None));
        }
    }

    #[test]
    fn a_clock_that_keeps_jumping_is_not_followed_until_it_is_accepted() {
        let guard = JumpGuard::new(SetTime::default());
        for _ in 0..10 {
            guard.set(1000);
            guard.pass(1800);
        }
        assert_eq!(guard.pass(1), 18_001);
        assert_eq!(guard.jump().unwrap().millis, 10_000_000);
        guard.accept();
        assert_eq!((guard.pass(1), guard.jump()), (28_002, None));
    }

    /// A log that writes the time of each line.
    struct TimedLog(Arc<JumpGuard<SetTime>>, Sender<Timestamp>);

    impl tracing::Subscriber for TimedLog {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &Event<'_>) {
            let _ = self.1.send(self.0.now());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a_log_of_a_jump_may_ask_for_the_time() {
        let guard = Arc::new(JumpGuard::new(SetTime::default()));
        let (sender, times) = std::sync::mpsc::channel();
        let log = TimedLog(guard.clone(), sender);
        std::thread::spawn(move || {
            tracing::subscriber::with_default(log, || {
                // Long enough that the log compares the clocks again.
                guard.source.monotonic.fetch_add(60 * SECOND, Ordering::Relaxed);
                guard.set(YEAR);
                guard.jump()
            })
        });
        assert_eq!(times.recv_timeout(Duration::from_secs(60)), Ok(Timestamp::from_millis(60_000)));
    }
}
