//! Counts what happens to one tool's calls, from all threads at once.
//!
//! In: ends, refusals, retries. Out: sums. Each thread counts in a part of its own, because two cores that write to
//! one number spend more time passing it back and forth than counting. A part takes over a kilobyte, therefore it
//! exists only once a thread has called the tool: a hundred thousand tools that nobody calls take nothing.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use super::ToolStats;
use toolhub_storage::latency::{Histogram, HistogramSnapshot, Latency, shard_count, thread_index};
use toolhub_types::{error::ErrorKind, tool::ToolName};

/// The counters of one tool.
#[derive(Default)]
pub(crate) struct Meter(OnceLock<Box<[OnceLock<Box<MeterShard>>]>>);

/// A call that is with the tool and takes its time, until this is dropped.
#[must_use = "the call counts as with the tool until this is dropped"]
pub(crate) struct InFlight<M: AsRef<Meter>>(M);

const KINDS: usize = ErrorKind::TABLE.len();

/// What some of the threads have counted. Aligned, so that no two parts share a cache line (two on some machines).
#[repr(align(128))]
struct MeterShard {
    /// How long calls took that succeeded.
    succeeded: Histogram,
    /// How long calls took that failed, by kind; made for a kind when the first call fails with it.
    failed: OnceLock<Box<[OnceLock<Box<Histogram>>]>>,
    errors: [AtomicU64; KINDS],
    /// Calls may begin on one thread and leave on another; only the sums over all parts belong together.
    started: AtomicU64,
    finished: AtomicU64,
    retries: AtomicU64,
    rate_limited: AtomicU64,
}

impl Meter {
    /// A call that reached the tool has ended.
    pub(crate) fn record_end(&self, took: Duration, error: Option<ErrorKind>) {
        let part = self.shard();
        match error {
            None => part.succeeded.record(took),
            Some(kind) => {
                part.failed_histogram(kind).record(took);
                part.errors[kind as usize].fetch_add(1, Relaxed);
            }
        }
    }

    /// A call was refused before it reached the tool.
    pub(crate) fn record_refusal(&self, kind: ErrorKind) {
        self.shard().errors[kind as usize].fetch_add(1, Relaxed);
    }

    /// A failed attempt is made again.
    pub(crate) fn record_retry(&self) {
        self.shard().retries.fetch_add(1, Relaxed);
    }

    /// A rate limit refused a call or made it wait. The refusal itself is told to `refused`.
    pub(crate) fn record_rate_limited(&self) {
        self.shard().rate_limited.fetch_add(1, Relaxed);
    }

    /// How many calls ever reached the tool, each counted once however often it was tried.
    pub(crate) fn calls(&self) -> u64 {
        self.in_flight() + self.shards().map(MeterShard::ended_count).sum::<u64>()
    }

    /// Everything counted so far. Who waits and who is stuck others know.
    pub(crate) fn stats(&self, tool: ToolName, queued: usize, stuck: usize) -> ToolStats {
        let (mut succeeded, mut failed) =
            (HistogramSnapshot::default(), BTreeMap::<&'static str, HistogramSnapshot>::new());
        let mut stats = ToolStats {
            tool,
            calls: 0,
            errors: Default::default(),
            in_flight: 0,
            queued,
            stuck,
            retries: 0,
            rate_limited: 0,
            latency: Latency::default(),
            succeeded: Latency::default(),
            failed: BTreeMap::default(),
        };
        stats.in_flight = self.in_flight();
        for part in self.shards() {
            part.succeeded.add_to(&mut succeeded);
            for (kind, histogram) in part.failed_histograms() {
                // Two kinds may have one name.
                histogram.add_to(failed.entry(ErrorKind::TABLE[kind].name).or_default());
            }
            stats.retries += part.retries.load(Relaxed);
            stats.rate_limited += part.rate_limited.load(Relaxed);
            for (row, errors) in ErrorKind::TABLE.iter().zip(&part.errors) {
                match errors.load(Relaxed) {
                    0 => {}
                    errors => *stats.errors.entry(row.name).or_default() += errors,
                }
            }
        }
        let all = failed.values().fold(succeeded.clone(), HistogramSnapshot::merge);
        stats.latency = Latency::from_counts(all);
        stats.succeeded = Latency::from_counts(succeeded);
        stats.failed = failed.into_iter().map(|(error, counts)| (error, Latency::from_counts(counts))).collect();
        stats.calls = stats.latency.count;
        stats
    }

    /// How many calls are with the tool now.
    fn in_flight(&self) -> u64 {
        // Those who left are read first, and whoever sees a call leave has seen it begin (`Release` there): otherwise a
        // call that does both meanwhile would count as left only.
        let left: u64 = self.shards().map(|part| part.finished.load(Acquire)).sum();
        let begun: u64 = self.shards().map(|part| part.started.load(Relaxed)).sum();
        begun.saturating_sub(left)
    }

    /// This thread's part.
    fn shard(&self) -> &MeterShard {
        let parts = self.0.get_or_init(|| (0..shard_count()).map(|_| OnceLock::new()).collect());
        // The number of parts is a power of two.
        parts[thread_index() & (parts.len() - 1)].get_or_init(|| Box::new(MeterShard::new()))
    }

    fn shards(&self) -> impl Iterator<Item = &MeterShard> {
        self.0.get().into_iter().flatten().filter_map(OnceLock::get).map(Box::as_ref)
    }
}

impl AsRef<Meter> for Meter {
    fn as_ref(&self) -> &Meter {
        self
    }
}

impl<M: AsRef<Meter>> InFlight<M> {
    /// Begins with the call. A `&Meter` will do, or an `Arc`; what is cheapest to hold for as long as the call runs.
    pub(crate) fn begin(meter: M) -> Self {
        meter.as_ref().shard().started.fetch_add(1, Relaxed);
        Self(meter)
    }
}

impl<M: AsRef<Meter>> Drop for InFlight<M> {
    fn drop(&mut self) {
        self.0.as_ref().shard().finished.fetch_add(1, Release);
    }
}

impl MeterShard {
    const fn new() -> Self {
        Self {
            succeeded: Histogram::new(),
            failed: OnceLock::new(),
            errors: [const { AtomicU64::new(0) }; KINDS],
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            rate_limited: AtomicU64::new(0),
        }
    }

    fn failed_histogram(&self, kind: ErrorKind) -> &Histogram {
        let kinds = self.failed.get_or_init(|| (0..KINDS).map(|_| OnceLock::new()).collect());
        kinds[kind as usize].get_or_init(|| Box::new(Histogram::new()))
    }

    /// The kinds calls failed with, and how long those took.
    fn failed_histograms(&self) -> impl Iterator<Item = (usize, &Histogram)> {
        let kinds = self.failed.get().into_iter().flatten().enumerate();
        kinds.filter_map(|(kind, histogram)| Some((kind, &**histogram.get()?)))
    }

    /// How many calls ended.
    fn ended_count(&self) -> u64 {
        self.succeeded.total() + self.failed_histograms().map(|(_, histogram)| histogram.total()).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn stats(meter: &Meter) -> ToolStats {
        meter.stats(ToolName::new("weather").unwrap(), 0, 0)
    }

    #[test]
    fn threads_lose_no_count() {
        let meter = Arc::new(Meter::default());
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let meter = &meter;
                scope.spawn(move || {
                    for at in 0..5_000 {
                        let _call = InFlight::begin(meter);
                        let error = (at % 5 == 0).then_some(ErrorKind::Timeout);
                        meter.record_end(Duration::from_micros(thread * 100 + at), error);
                        meter.record_refusal(ErrorKind::RateLimited);
                        meter.record_rate_limited();
                        meter.record_retry();
                    }
                });
            }
        });
        let stats = stats(&meter);
        assert_eq!((stats.calls, stats.latency.count, stats.in_flight), (40_000, 40_000, 0));
        assert_eq!((stats.retries, stats.rate_limited), (40_000, 40_000));
        assert_eq!(stats.errors, [("rate_limited", 40_000), ("timeout", 8_000)].into());
        assert_eq!(stats.latency.max, Duration::from_micros(5_699));
    }

    #[test]
    fn a_tool_nobody_called_takes_no_memory() {
        let meter = Meter::default();
        assert!(size_of::<Meter>() <= 32, "{}", size_of::<Meter>());
        assert_eq!(stats(&meter).calls, 0);
        assert_eq!(meter.shards().count(), 0);
        assert!(meter.0.get().is_none(), "reading must not make it");
        meter.record_end(Duration::ZERO, None);
        assert_eq!(meter.shards().count(), 1, "one thread called, so one part exists");
        assert!(shard_count().is_power_of_two() && shard_count() <= 8);
    }

    #[test]
    fn a_call_is_with_the_tool_until_its_guard_is_dropped_on_whatever_thread() {
        let meter = Arc::new(Meter::default());
        let (one, two) = (InFlight::begin(meter.clone()), InFlight::begin(meter.clone()));
        assert_eq!(stats(&meter).in_flight, 2);
        std::thread::spawn(move || drop(one)).join().unwrap();
        assert_eq!(stats(&meter).in_flight, 1);
        drop(two);
        assert_eq!(stats(&meter).in_flight, 0);
    }

    #[test]
    fn refused_calls_are_errors_but_not_calls_and_have_no_latency() {
        let meter = Meter::default();
        meter.record_refusal(ErrorKind::Overloaded);
        meter.record_end(Duration::from_millis(2), Some(ErrorKind::ToolError));
        meter.record_end(Duration::from_millis(2), Some(ErrorKind::ToolRefused));
        let stats = stats(&meter);
        assert_eq!((stats.calls, stats.latency.count), (2, 2));
        assert_eq!(stats.errors, [("overloaded", 1), ("tool_error", 2)].into());
        let failed: Vec<_> = stats.failed.iter().map(|(error, latency)| (*error, latency.count)).collect();
        assert_eq!((stats.succeeded.count, failed), (0, vec![("tool_error", 2)]));
    }

    #[test]
    fn statistics_are_written_in_milliseconds() {
        let meter = Meter::default();
        meter.record_end(Duration::from_micros(1_500), None);
        let stats = meter.stats(ToolName::new("weather").unwrap(), 3, 1);
        assert_eq!(
            serde_json::to_value(&stats).unwrap(),
            json!({
                "tool": "weather", "calls": 1, "errors": {}, "inFlight": 0, "queued": 3, "stuck": 1, "retries": 0,
                "rateLimited": 0,
                "latency": {"count": 1, "meanMs": 1.5, "p50Ms": 1.408, "p95Ms": 1.408, "p99Ms": 1.408, "maxMs": 1.5},
            })
        );
        assert_eq!(stats.latency.cumulative_counts(&[Duration::from_millis(1), Duration::from_secs(1)]), [0, 1]);
    }
}
