//! The clock of the hub: the time of the Redis server, on which all nodes agree.
//!
//! In: samples of the server's time (`TIME`). Out: wall time. Between samples, and while the server is away, the machine's monotonic clock
//! goes on. The clock never goes backwards: it approaches the server's time by running up to a tenth faster or slower, so that nothing
//! expires at once when another server with a wrong clock takes over. On a Cluster, the time is that of the first bucket's server.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use rustix::time::{ClockId, clock_gettime};
use toolhub_storage::{
    backend::StoreError,
    clock::{Clock, Timestamp},
};

use super::{
    answer,
    keys::{Bucket, Keys},
    requests::{Request, Requests},
    script::{ScriptCall, TIME},
};

/// The clock runs faster or slower by at most this part of the time that passes.
const SLEW: i64 = 10;
/// A larger difference from the server's time is worth a warning, in microseconds.
const MAX_DIFFERENCE: i64 = 1_000_000;
/// How many samples are taken for the first time; the fastest counts.
const FIRST_SAMPLES: usize = 3;

/// A clock that follows the server's. All times in microseconds.
pub(super) struct StoreClock {
    course: Mutex<Course>,
    /// By how much the server's time was ahead of this machine's clock at the last sample.
    difference: AtomicI64,
}

/// The server's time at a moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    server: i64,
    /// The middle between request and answer, in monotonic time.
    at: i64,
    /// Half the time between request and answer: the server's time may be so much earlier or later.
    error: i64,
    /// What this machine's clock showed then.
    machine: i64,
}

/// How the clock goes on from a moment.
#[derive(Debug, Clone, Copy)]
struct Course {
    /// The moment, in monotonic time.
    at: i64,
    /// What the clock shows then.
    shown: i64,
    /// By how much it is behind the server then; less than 0 if it is ahead.
    behind: i64,
}

impl Course {
    fn begin(sample: Sample) -> Self {
        Self { at: sample.at, shown: sample.server, behind: 0 }
    }

    fn now(&self, monotonic: i64) -> i64 {
        let elapsed = (monotonic - self.at).max(0);
        let max = elapsed / SLEW;
        self.shown + elapsed + self.behind.clamp(-max, max)
    }

    /// The course from now on, after this sample.
    fn adjusted(self, sample: Sample, monotonic: i64) -> Self {
        if self.now(sample.at).abs_diff(sample.server) <= sample.error.unsigned_abs() {
            return Self { at: monotonic, shown: self.now(monotonic), behind: 0 };
        }
        let shown = self.now(monotonic);
        Self { at: monotonic, shown, behind: sample.server + (monotonic - sample.at) - shown }
    }
}

impl StoreClock {
    /// Asks the server for its time.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn open(requests: &Requests, keys: &Keys) -> Result<Self, StoreError> {
        let mut best = read_sample(requests, keys).await?;
        for _ in 1..FIRST_SAMPLES {
            let sample = read_sample(requests, keys).await?;
            if sample.error < best.error {
                best = sample;
            }
        }
        let difference = AtomicI64::new(best.server - best.machine);
        Ok(Self { course: Mutex::new(Course::begin(best)), difference })
    }

    /// Compares the clock with the server's time.
    ///
    /// # Errors
    /// When the server does not answer; the clock goes on.
    pub(super) async fn adjust(&self, requests: &Requests, keys: &Keys) -> Result<(), StoreError> {
        let sample = read_sample(requests, keys).await?;
        self.difference.store(sample.server - sample.machine, Ordering::Relaxed);
        let mut course = self.lock();
        *course = course.adjusted(sample, monotonic_micros());
        Ok(())
    }

    /// What is worth a warning: the server's time has changed by more than clocks do.
    pub(super) fn warning(&self) -> Option<String> {
        let course = *self.lock();
        (course.behind.abs() > MAX_DIFFERENCE).then(|| {
            "the clock of Redis was set, or another server with another time took over; the hub's clock approaches it slowly. Check the time \
             synchronization (NTP) of the servers"
                .into()
        })
    }

    /// By how many seconds the server's time was ahead of this machine's clock at the last look.
    #[allow(clippy::cast_precision_loss, reason = "the fraction of a microsecond does not matter")]
    pub(super) fn difference(&self) -> f64 {
        self.difference.load(Ordering::Relaxed) as f64 / 1e6
    }

    fn lock(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.lock().now(monotonic_micros()) / 1000)
    }
}

async fn read_sample(requests: &Requests, keys: &Keys) -> Result<Sample, StoreError> {
    let call = ScriptCall::new(&TIME, vec![keys.meta(Bucket(0))]);
    let sent = monotonic_micros();
    let answers = requests.read(&[Request::Script(call)]).await?;
    let error = (monotonic_micros() - sent) / 2;
    let machine = micros(ClockId::Realtime) - error;
    let mut parts = answer::into_array(answers.into_iter().next().ok_or_else(answer::unexpected)?)?.into_iter();
    let mut number = || {
        let text = answer::into_text(parts.next().ok_or_else(answer::unexpected)?)?;
        text.parse::<i64>().map_err(|_| answer::unexpected())
    };
    let server = number()? * 1_000_000 + number()?;
    Ok(Sample { server, at: sent + error, error, machine })
}

/// Monotonic time, including the time that the machine was suspended.
fn monotonic_micros() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    micros(clock)
}

fn micros(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn sample(server: i64, at: i64, error: i64) -> Sample {
        Sample { server, at, error, machine: server }
    }

    /// A clock that showed the server's time, 1000 s, at the moment 0.
    fn course() -> Course {
        Course::begin(sample(1000 * SECOND, 0, 0))
    }

    /// What the clock shows at these moments, in tenths of a second.
    #[track_caller]
    fn check(course: Course, expected: &[(i64, i64)]) {
        for (at, shown) in expected {
            assert_eq!(course.now(at * SECOND) / (SECOND / 10), *shown, "at {at} s");
        }
    }

    #[test]
    fn without_samples_the_clock_goes_on() {
        check(course(), &[(0, 10_000), (10, 10_100), (3600, 46_000)]);
    }

    #[test]
    fn a_difference_that_the_network_explains_is_ignored() {
        let sample = sample(1010 * SECOND + 900, 10 * SECOND, 1000);
        check(course().adjusted(sample, 10 * SECOND), &[(10, 10_100), (20, 10_200)]);
        assert_eq!(course().adjusted(sample, 10 * SECOND).behind, 0);
    }

    #[test]
    fn the_clock_approaches_the_servers_time_and_never_goes_backwards() {
        let at = |server: i64| sample(server * SECOND, 10 * SECOND, SECOND / 1000);
        // The answer arrives a second after the middle.
        let behind = course().adjusted(at(1012), 11 * SECOND);
        check(behind, &[(11, 10_110), (21, 10_220), (31, 10_330), (41, 10_430)]);
        let ahead = course().adjusted(at(1008), 11 * SECOND);
        check(ahead, &[(11, 10_110), (21, 10_200), (31, 10_290), (41, 10_390)]);
        for year in [-365, 365] {
            let wrong = course().adjusted(at(1010 + year * 24 * 3600), 11 * SECOND);
            let shown: Vec<i64> = (0..1000).map(|second| wrong.now(second * SECOND)).collect();
            assert!(shown.is_sorted(), "it runs faster or slower, and is never set");
            assert!((shown[999] - shown[11] - 988 * SECOND).abs() <= 99 * SECOND);
        }
    }

    #[test]
    fn a_second_sample_continues_from_what_was_shown() {
        let first = course().adjusted(sample(1020 * SECOND, 10 * SECOND, 0), 10 * SECOND);
        let shown = first.now(15 * SECOND);
        let second = first.adjusted(sample(1000 * SECOND, 15 * SECOND, 0), 15 * SECOND);
        assert_eq!(second.now(15 * SECOND), shown);
        assert!(second.now(16 * SECOND) > shown);
    }
}
