//! The points of one series, with one step between them.
//!
//! In: counts with the time at which they were read. Out: points since a time. Counts of the same step are summed; the numbers of
//! running and queued calls are the largest ones.

use std::{collections::VecDeque, time::Duration};

use toolhub_core::{CallSample, HistogramSnapshot, clock::Timestamp};

/// How many points the memory of a ring grows by.
const GROWTH: usize = 60;

/// What happened to calls in some time.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    refused: u64,
    cache_hits: u64,
    latency: HistogramSnapshot,
    in_flight: u64,
    pub(super) queued: u64,
}

/// The calls of one step. Small, because there are many: times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// The number of steps since 1970 at its begin.
    step: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    pub(crate) cancelled: u32,
    pub(crate) refused: u32,
    pub(crate) cache_hits: u32,
    /// Zero without calls.
    pub(crate) p50: f32,
    pub(crate) p95: f32,
    pub(crate) p99: f32,
    pub(crate) in_flight: u32,
    pub(crate) queued: u32,
}

pub(super) struct Ring {
    step: Duration,
    max_points: usize,
    /// Steps that are over.
    points: VecDeque<Point>,
    /// The current step.
    open: Option<(u32, Counts)>,
}

impl Counts {
    pub(super) fn of(sample: &CallSample) -> Self {
        Self {
            succeeded: sample.succeeded,
            failed: sample.failed(),
            cancelled: sample.cancelled(),
            refused: sample.refused,
            cache_hits: sample.cache_hits,
            latency: sample.latency.clone(),
            in_flight: sample.in_flight,
            queued: sample.queued as u64,
        }
    }

    /// Adds what happened to other calls in the same time.
    pub(super) fn add(&mut self, other: &Self) {
        self.add_ended(other);
        self.in_flight += other.in_flight;
        self.queued += other.queued;
    }

    /// Adds what happened to the same calls later.
    fn continue_with(&mut self, later: &Self) {
        self.add_ended(later);
        self.in_flight = self.in_flight.max(later.in_flight);
        self.queued = self.queued.max(later.queued);
    }

    fn add_ended(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.refused += other.refused;
        self.cache_hits += other.cache_hits;
        self.latency = std::mem::take(&mut self.latency).merge(&other.latency);
    }

    fn point(&self, step: u32) -> Point {
        let millis = |fraction| self.latency.quantile(fraction).as_secs_f32() * 1e3;
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Point {
            step,
            succeeded: count(self.succeeded),
            failed: count(self.failed),
            cancelled: count(self.cancelled),
            refused: count(self.refused),
            cache_hits: count(self.cache_hits),
            p50: millis(0.50),
            p95: millis(0.95),
            p99: millis(0.99),
            in_flight: count(self.in_flight),
            queued: count(self.queued),
        }
    }
}

impl Point {
    /// Its begin.
    pub(crate) fn at(&self, step: Duration) -> Timestamp {
        Timestamp::from_millis(0) + step * self.step
    }

    /// How many calls ended, without those that were refused.
    pub(crate) fn ended(&self) -> u32 {
        self.succeeded.saturating_add(self.failed).saturating_add(self.cancelled)
    }
}

impl Ring {
    pub(super) fn new(step: Duration, length: Duration) -> Self {
        let max_points = usize::try_from(length.as_millis() / step.as_millis()).unwrap_or(usize::MAX);
        Self { step, max_points, points: VecDeque::new(), open: None }
    }

    /// Adds what happened in the time that ends now.
    pub(super) fn add(&mut self, counts: &Counts, now: Timestamp) {
        let step = self.step_of(now);
        match &mut self.open {
            // Also if the clock went back a little.
            Some((open, sum)) if *open >= step => sum.continue_with(counts),
            open => {
                if let Some((step, sum)) = open.replace((step, counts.clone())) {
                    self.push(sum.point(step));
                }
            }
        }
    }

    fn push(&mut self, point: Point) {
        if self.points.len() >= self.max_points {
            self.points.pop_front();
        }
        if self.points.len() == self.points.capacity() {
            self.points.reserve_exact(GROWTH.min(self.max_points - self.points.len()));
        }
        self.points.push_back(point);
    }

    /// The points since this time, the oldest first, and the current one.
    pub(super) fn points(&self, since: Timestamp) -> Vec<Point> {
        let (since, open) = (self.step_of(since), self.open.as_ref().map(|(step, counts)| counts.point(*step)));
        self.points.iter().copied().chain(open).filter(|point| point.step > since).collect()
    }

    /// The step in which something was added last.
    pub(super) fn last_added(&self) -> u32 {
        self.open.as_ref().map_or(0, |(step, _)| *step)
    }

    fn step_of(&self, time: Timestamp) -> u32 {
        let millis = u128::try_from(time.millis()).unwrap_or(0);
        u32::try_from(millis / self.step.as_millis()).unwrap_or(u32::MAX)
    }

    #[cfg(test)]
    pub(super) fn max_bytes(&self) -> usize {
        size_of::<Self>() + 128 * size_of::<u64>() + self.max_points * size_of::<Point>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(succeeded: u64) -> Counts {
        Counts { succeeded, queued: succeeded, ..Counts::default() }
    }

    fn seconds(number: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + number * 1000)
    }

    #[test]
    fn counts_of_a_step_are_summed_and_old_points_go() {
        let step = Duration::from_secs(10);
        let mut ring = Ring::new(step, Duration::from_secs(40));
        for second in 0..95 {
            ring.add(&counts(second), seconds(second.cast_signed()));
        }
        let points = ring.points(seconds(0));
        let sums: Vec<(i64, u32, u32)> = points
            .iter()
            .map(|point| ((point.at(step).millis() - seconds(0).millis()) / 1000, point.succeeded, point.queued))
            .collect();
        assert_eq!(sums, [(50, 545, 59), (60, 645, 69), (70, 745, 79), (80, 845, 89), (90, 460, 94)]);
        assert_eq!(ring.points(seconds(70)).len(), 2);
        assert!(ring.points.capacity() <= 4, "{}", ring.points.capacity());
    }

    #[test]
    fn a_clock_that_goes_back_adds_to_the_current_point() {
        let mut ring = Ring::new(Duration::from_secs(1), Duration::from_secs(60));
        for second in [5, 6, 4, 7] {
            ring.add(&counts(1), seconds(second));
        }
        let points: Vec<u32> = ring.points(seconds(0)).iter().map(|point| point.succeeded).collect();
        assert_eq!(points, [1, 2, 1]);
    }
}
