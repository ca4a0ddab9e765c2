//! Rolling window over the results of recent calls, in constant space.
//!
//! In: one result at a time. Out: failed and total over the window. The window has ten slices however busy the
//! tool is, because the record is stored with every change. The price: results expire a tenth of the window at a time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

const SLICES: u32 = 10;

/// Recent results in time slices, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RollingWindow(Vec<WindowSlice>);

/// The results of one time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowSlice {
    /// When the slice began.
    pub start: Timestamp,
    /// The number of results.
    pub total: u32,
    /// The number of counted failures among them.
    pub failed: u32,
}

impl RollingWindow {
    /// Adds a result and drops slices outside the window, in the past or (after the clock was set back) in the future.
    pub(super) fn add(&mut self, failed: bool, window: Duration, now: Timestamp) {
        let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        let width = (window / i64::from(SLICES)).max(1);
        let start = Timestamp::from_millis(now.millis().div_euclid(width).saturating_mul(width));
        let oldest = start.millis().saturating_sub(width.saturating_mul(i64::from(SLICES)));
        self.0.retain(|slice| slice.start.millis() > oldest && slice.start <= start);
        match self.0.iter_mut().find(|slice| slice.start == start) {
            Some(slice) => {
                slice.total = slice.total.saturating_add(1);
                slice.failed = slice.failed.saturating_add(u32::from(failed));
            }
            None => self.0.push(WindowSlice { start, total: 1, failed: u32::from(failed) }),
        }
        // Slices of another width stay when the window is reconfigured; without this bound they could accumulate.
        let surplus = self.0.len().saturating_sub(2 * SLICES as usize);
        self.0.drain(..surplus);
    }

    /// The number of failures and of all results.
    pub(super) fn failed_and_total(&self) -> (u64, u64) {
        self.0
            .iter()
            .fold((0, 0), |(failed, total), slice| (failed + u64::from(slice.failed), total + u64::from(slice.total)))
    }

    /// Whether there are no results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slices, oldest first.
    pub fn slices(&self) -> impl Iterator<Item = &WindowSlice> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results as (second, failed) over a window of ten seconds.
    #[track_caller]
    fn check(results: &[(i64, bool)], expected: (u64, u64)) {
        let mut recent = RollingWindow::default();
        for (second, failed) in results {
            recent.add(*failed, Duration::from_secs(10), Timestamp::from_millis(second * 1000));
        }
        assert_eq!(recent.failed_and_total(), expected);
    }

    #[test]
    fn results_inside_the_window_are_tallied_and_older_ones_forgotten() {
        check(&[(0, true), (3, false), (9, true)], (2, 3));
        check(&[(0, true), (3, false), (10, true)], (1, 2));
        check(&[(0, true), (100, false)], (0, 1));
    }

    #[test]
    fn results_from_a_future_that_was_taken_back_are_forgotten() {
        check(&[(3600, true), (0, false)], (0, 1));
    }

    #[test]
    fn any_number_of_results_takes_the_same_space() {
        let mut recent = RollingWindow::default();
        for millis in 0..100_000 {
            let window = if millis % 7 == 0 { 10_000 } else { 90_000 };
            recent.add(true, Duration::from_millis(window), Timestamp::from_millis(millis));
            assert!(recent.0.len() <= 20);
        }
    }

    #[test]
    fn windows_of_no_length_and_of_all_time_work() {
        let mut recent = RollingWindow::default();
        recent.add(true, Duration::ZERO, Timestamp::from_millis(5));
        recent.add(true, Duration::MAX, Timestamp::from_millis(i64::MAX));
        assert!(recent.failed_and_total().1 >= 1);
    }
}
