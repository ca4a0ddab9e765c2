//! Lock-free latency histogram with fixed memory.
//!
//! In: one duration at a time, from any thread. Out: counts that can be merged and queried for quantiles. Each power
//! of two from one microsecond to about half an hour has four buckets; shorter durations have four buckets in total, longer
//! ones share the last bucket. So the width of a bucket is at most a quarter of its lower bound.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

const BUCKETS: usize = 128;
/// A quarter of a microsecond: with this unit the first four buckets end where the powers of two begin.
const UNIT_NANOS: u32 = 250;

/// Concurrent histogram of durations.
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    max_nanos: AtomicU64,
}

/// The sum of one or more histograms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistogramSnapshot {
    /// Empty if nothing was recorded.
    buckets: Vec<u64>,
    nanos: u128,
    max: Duration,
}

crate::brief_debug!("Histogram" Histogram);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], nanos: AtomicU64::new(0), max_nanos: AtomicU64::new(0) }
    }

    /// Records one duration.
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
        // Load first: a new maximum is rare, and a plain load is cheaper than an atomic read-modify-write.
        if nanos > self.max_nanos.load(Relaxed) {
            self.max_nanos.fetch_max(nanos, Relaxed);
        }
    }

    /// The number of recorded durations.
    pub fn total(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Adds this histogram to a snapshot.
    pub fn add_to(&self, counts: &mut HistogramSnapshot) {
        counts.buckets.resize(BUCKETS, 0);
        for (sum, bucket) in counts.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Relaxed);
        }
        counts.nanos += u128::from(self.nanos.load(Relaxed));
        counts.max = counts.max.max(Duration::from_nanos(self.max_nanos.load(Relaxed)));
    }
}

impl HistogramSnapshot {
    /// The number of recorded durations.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of two snapshots.
    pub fn merge(mut self, others: &Self) -> Self {
        self.buckets.resize(BUCKETS, 0);
        for (sum, count) in self.buckets.iter_mut().zip(&others.buckets) {
            *sum += count;
        }
        self.nanos += others.nanos;
        self.max = self.max.max(others.max);
        self
    }

    /// What was recorded after an earlier snapshot of the same histograms. Its longest duration is accurate to about 12.5 %.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        for (count, before) in self.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.saturating_sub(*before);
        }
        self.nanos = self.nanos.saturating_sub(earlier.nanos);
        if self.max == earlier.max {
            let last = self.buckets.iter().rposition(|count| *count > 0);
            let end = last.map_or(Duration::ZERO, |last| bucket_start(last + 1));
            self.max = if last == Some(BUCKETS - 1) { self.max } else { self.max.min(end) };
        }
        self
    }

    /// The same snapshot in as little memory as possible.
    #[must_use]
    pub fn compact(mut self) -> Self {
        let used = self.buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        self.buckets.truncate(used);
        self.buckets.shrink_to_fit();
        self
    }

    /// The longest duration.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The mean duration.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let nanos = self.nanos.checked_div(u128::from(self.total())).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The quantile for this fraction (0 to 1): the middle of the bucket it falls into.
    pub fn quantile(&self, fraction: f64) -> Duration {
        let rank = (self.total() as f64 * fraction).ceil() as u64;
        let mut cumulative = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            cumulative += count;
            if *count > 0 && cumulative >= rank {
                return if at + 1 == BUCKETS {
                    self.max
                } else {
                    ((bucket_start(at) + bucket_start(at + 1)) / 2).min(self.max)
                };
            }
        }
        Duration::ZERO
    }

    /// The number of durations in buckets that end at or before this bound.
    pub fn count_within(&self, bound: Duration) -> u64 {
        let inside = |at: usize| if at + 1 == BUCKETS { self.max <= bound } else { bucket_start(at + 1) <= bound };
        self.buckets.iter().enumerate().take_while(|(at, _)| inside(*at)).map(|(_, count)| count).sum()
    }
}

fn bucket(nanos: u64) -> usize {
    let units = nanos / u64::from(UNIT_NANOS);
    if units < 4 {
        return units as usize;
    }
    let power = units.ilog2() as usize;
    let quarter = (units >> (power - 2)) as usize & 3;
    ((power - 1) * 4 + quarter).min(BUCKETS - 1)
}

/// The lower bound of a bucket.
fn bucket_start(bucket: usize) -> Duration {
    let units = match (bucket / 4, bucket as u64 % 4) {
        (0, units) => units,
        (power, quarter) => (4 + quarter) << (power - 1),
    };
    Duration::from_nanos(units * u64::from(UNIT_NANOS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(times: impl IntoIterator<Item = Duration>) -> HistogramSnapshot {
        let (histogram, mut counts) = (Histogram::new(), HistogramSnapshot::default());
        times.into_iter().for_each(|duration| histogram.record(duration));
        histogram.add_to(&mut counts);
        counts
    }

    #[test]
    fn every_time_lies_between_the_edges_of_its_bucket() {
        for power in 0..64u32 {
            for nanos in [1u64 << power, (1 << power) + 1, (1 << power) - 1, (1 << power) | (1 << (power / 2))] {
                let (at, duration) = (bucket(nanos), Duration::from_nanos(nanos));
                assert!(bucket_start(at) <= duration, "{duration:?}");
                assert!(duration < bucket_start(at + 1) || at == BUCKETS - 1, "{duration:?}");
            }
        }
        assert_eq!(bucket_start(4), Duration::from_micros(1));
        assert!(bucket_start(BUCKETS - 1) > Duration::from_secs(20 * 60), "{:?}", bucket_start(BUCKETS - 1));
        for at in 4..BUCKETS {
            assert!(bucket_start(at + 1) <= bucket_start(at) * 5 / 4, "bucket {at} is too wide");
        }
    }

    /// Compares the quantiles with those of the sorted times.
    #[track_caller]
    fn check(mut nanos: Vec<u64>) {
        let counts = counts(nanos.iter().copied().map(Duration::from_nanos));
        nanos.sort_unstable();
        for part in [0.5, 0.95, 0.99] {
            let exact = nanos[((nanos.len() as f64 * part).ceil() as usize).max(1) - 1] as f64;
            let estimate = counts.quantile(part).as_nanos() as f64;
            assert!((estimate - exact).abs() <= exact * 0.125 + 125.0, "p{part}: {estimate} instead of {exact}");
        }
        assert_eq!(counts.total(), nanos.len() as u64);
        assert_eq!(counts.max().as_nanos(), u128::from(nanos[nanos.len() - 1]));
        assert_eq!(counts.mean().as_nanos(), u128::from(nanos.iter().sum::<u64>() / nanos.len() as u64));
    }

    #[test]
    fn quantiles_of_known_distributions_are_close() {
        let mut random = fastrand::Rng::with_seed(7);
        check(vec![1_000_000]);
        check(vec![30; 10]);
        check((1..=1_000).map(|millis| millis * 1_000_000).collect());
        check((0..10_000).map(|_| random.u64(1_000..1_000_000_000)).collect());
        // Many short durations and a long tail.
        check((0..10_000).map(|_| (2_000.0 * (-random.f64().max(1e-9).ln() * 3.0).exp()) as u64).collect());
        check((0..1_000).map(|at| if at % 10 == 0 { 2_000_000_000 } else { 40_000 }).collect());
    }

    #[test]
    fn nothing_counted_and_endless_calls_are_no_trouble() {
        assert_eq!(
            (counts([]).quantile(0.99), counts([]).mean(), HistogramSnapshot::default().total()),
            Default::default()
        );
        let endless = counts([Duration::MAX, Duration::from_secs(24 * 3600)]);
        assert_eq!(endless.total(), 2);
        assert_eq!(endless.quantile(0.5), endless.max());
    }

    #[test]
    fn what_came_after_a_snapshot_has_quantiles_of_its_own() {
        let (histogram, mut before, mut after) =
            (Histogram::new(), HistogramSnapshot::default(), HistogramSnapshot::default());
        (0..100).for_each(|_| histogram.record(Duration::from_secs(5)));
        histogram.add_to(&mut before);
        let before = before.compact();
        (0..10).for_each(|_| histogram.record(Duration::from_millis(8)));
        histogram.add_to(&mut after);
        let new = after.clone().since(&before);
        assert_eq!((new.total(), new.mean()), (10, Duration::from_millis(8)));
        for duration in [new.quantile(0.5), new.quantile(0.99), new.max()] {
            assert!((7..=10).contains(&duration.as_millis()), "{duration:?}");
        }
        assert_eq!(after.clone().since(&HistogramSnapshot::default()), after);
        assert_eq!(after.clone().since(&after).total(), 0);
    }

    #[test]
    fn calls_within_a_bound_are_counted_up() {
        let counts = counts([1, 3, 3, 20, 5_000].map(Duration::from_millis));
        let within = [0, 2, 5, 50, 10_000].map(|bound| counts.count_within(Duration::from_millis(bound)));
        assert_eq!(within, [0, 1, 3, 4, 5]);
    }
}
