//! Retry budget of a tool: one retry for every five calls, over a sliding window of ten seconds.
//!
//! In: a retry, the total number of calls of the tool, and the time. Out: whether the retry is allowed. A tool that is
//! down gets its calls and a fifth more, not three times its calls; a quiet tool still gets the few retries that help
//! it. `policy/retry.rs` decides whether and when a retry makes sense. The meter counts the calls anyway, so that a
//! successful call costs nothing here; calls since the last retry count for the current second, or not at all if that
//! retry is outside the window.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use toolhub_storage::clock::Instant;

/// The retries of one tool in the last ten seconds.
#[derive(Default)]
pub(crate) struct RetryBudget(Mutex<RetryWindow>);

const SECOND: Duration = Duration::from_secs(1);
const WINDOW_SECONDS: usize = 10;
/// Retries that are always allowed within the window.
const MIN_RETRIES: u64 = 10;
/// Beyond that, one retry for this many calls.
const CALLS_PER_RETRY: u64 = 5;

#[derive(Default)]
struct RetryWindow {
    /// When the current second started.
    second_started_at: Option<Instant>,
    /// The current second is first.
    seconds: [SecondCounts; WINDOW_SECONDS],
    /// The sum of all seconds.
    sum: SecondCounts,
    /// The total of calls at the last update; `None` if that is outside the window.
    calls: Option<u64>,
}

#[derive(Default, Clone, Copy)]
struct SecondCounts {
    calls: u64,
    retries: u64,
}

impl RetryBudget {
    /// Takes one retry from the budget, if there is one. `calls`: the total of the tool's calls, each counted once.
    pub(crate) fn try_withdraw(&self, now: Instant, calls: u64) -> bool {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.advance(now);
        window.count(calls);
        let allowed = window.sum.retries < MIN_RETRIES.max(window.sum.calls / CALLS_PER_RETRY);
        if allowed {
            window.seconds[0].retries += 1;
            window.sum.retries += 1;
        }
        allowed
    }
}

impl RetryWindow {
    /// Adds the calls since the last update.
    fn count(&mut self, calls: u64) {
        let new = calls.saturating_sub(self.calls.unwrap_or(calls.saturating_sub(1)));
        self.calls = Some(self.calls.unwrap_or_default().max(calls));
        self.seconds[0].calls += new;
        self.sum.calls += new;
    }

    /// Drops the seconds that left the window. A time before the current second counts as the current one.
    fn advance(&mut self, now: Instant) {
        let started_at = *self.second_started_at.get_or_insert(now);
        let passed = now.saturating_duration_since(started_at).as_secs();
        if passed == 0 {
            return;
        }
        self.second_started_at = Some(started_at + SECOND * u32::try_from(passed).unwrap_or(u32::MAX));
        let expired = usize::try_from(passed).unwrap_or(WINDOW_SECONDS).min(WINDOW_SECONDS);
        if expired == WINDOW_SECONDS {
            self.calls = None;
        }
        self.seconds.rotate_right(expired);
        for old in &mut self.seconds[..expired] {
            self.sum.calls -= old.calls;
            self.sum.retries -= old.retries;
            *old = SecondCounts::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds this many calls at these milliseconds, updating the window each time; then counts the retries that are
    /// allowed.
    #[track_caller]
    fn check(calls: &[(u64, u64)], retry_at: u64, expected: usize) {
        let (budget, start) = (RetryBudget::default(), Instant::now());
        let mut total = 1;
        for (at, count) in calls {
            total += count;
            let mut window = budget.0.lock().unwrap();
            window.advance(start + Duration::from_millis(*at));
            window.calls.get_or_insert(total - count);
            window.count(total);
        }
        let now = start + Duration::from_millis(retry_at);
        assert_eq!(
            (0..100_000).take_while(|_| budget.try_withdraw(now, total)).count(),
            expected,
            "{calls:?} at {retry_at}"
        );
    }

    #[test]
    fn a_quiet_tool_may_always_retry_and_a_busy_one_a_fifth_of_its_calls() {
        check(&[], 0, 10);
        check(&[(0, 1)], 500, 10);
        check(&[(0, 50)], 500, 10);
        check(&[(0, 54)], 500, 10);
        check(&[(0, 55)], 500, 11);
        check(&[(0, 1_000)], 500, 200);
        check(&[(0, 500), (4_200, 500), (9_900, 500)], 9_950, 300);
    }

    #[test]
    fn only_the_last_ten_seconds_count() {
        check(&[(0, 1_000)], 9_999, 200);
        check(&[(0, 1_000)], 10_000, 10);
        check(&[(0, 1_000), (5_000, 500)], 12_000, 100);
        check(&[(0, 1_000)], 3_600_000, 10);
        check(&[(0, 1_000), (3_600_000, 100)], 3_600_500, 20);
    }

    #[test]
    fn calls_from_long_before_the_first_failure_buy_no_retries() {
        let (budget, start) = (RetryBudget::default(), Instant::now());
        assert_eq!((0..100).filter(|_| budget.try_withdraw(start, 1_000_000)).count(), 10);
        let later = start + Duration::from_secs(60);
        assert_eq!((0..100).filter(|_| budget.try_withdraw(later, 2_000_000)).count(), 10);
    }

    #[test]
    fn retries_come_back_as_time_passes() {
        let (budget, start) = (RetryBudget::default(), Instant::now());
        assert_eq!((0..100).filter(|_| budget.try_withdraw(start, 1)).count(), 10);
        assert!(!budget.try_withdraw(start + Duration::from_millis(9_999), 1));
        assert_eq!((0..100).filter(|_| budget.try_withdraw(start + Duration::from_secs(10), 1)).count(), 10);
    }

    #[test]
    fn a_busy_tool_that_is_down_sees_a_fifth_more_than_its_calls() {
        let (budget, start) = (RetryBudget::default(), Instant::now());
        let (mut calls, mut retries) = (0, 0);
        for at in 0..100_000 {
            let now = start + Duration::from_millis(at);
            calls += 1;
            retries += (0..2).filter(|_| budget.try_withdraw(now, calls)).count() as u64;
        }
        assert!((calls * 19 / 100..=calls / 5).contains(&retries), "{retries} retries of {calls} calls");
    }

    #[test]
    fn a_time_before_the_last_one_is_taken_as_now() {
        let (budget, start) = (RetryBudget::default(), Instant::now());
        assert!(budget.try_withdraw(start + Duration::from_secs(60), 1));
        assert!(budget.try_withdraw(start, 2));
    }
}
