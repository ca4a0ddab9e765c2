//! Sharded counters and latency histograms of one tool.
//!
//! In: ends, refusals, retries. Out: sums. Each thread counts in a shard of its own, because cores that write to the
//! same cache line slow each other down. A shard takes more than a kilobyte, so it is allocated only when a thread
//! first calls the tool: a hundred thousand tools without calls take no memory for it.

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

/// Counts a call as executing until it is dropped.
#[must_use = "the call counts as in flight until this is dropped"]
pub(crate) struct InFlight<M: AsRef<Meter>>(M);

/// Counts a poll of the tool's future until it is dropped, on the same thread.
#[must_use = "the poll counts as running until this is dropped"]
pub(crate) struct Polling<'a>(&'a AtomicU64);

/// What the end of a poll adds to `MeterShard::polls`: one ended poll more, one running poll less.
const POLL_ENDED: u64 = (1 << 32) - 1;

const KINDS: usize = ErrorKind::TABLE.len();

/// The counters of some of the threads. Aligned, so that no two shards share a cache line (some CPUs prefetch pairs).
#[repr(align(128))]
struct MeterShard {
    /// Latency of successful calls.
    succeeded: Histogram,
    /// Latency of failed calls, by kind; allocated when the first call fails with that kind.
    failed: OnceLock<Box<[OnceLock<Box<Histogram>>]>>,
    refusals: [AtomicU64; KINDS],
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    /// A call may start on one thread and finish on another; only the sums over all shards match.
    started: AtomicU64,
    finished: AtomicU64,
    retries: AtomicU64,
    rate_limited: AtomicU64,
    /// Polls of the tool's future: in the lower half those that run now, in the upper half those that ended.
    polls: AtomicU64,
}

impl Meter {
    /// A call that reached the tool, or was answered from its result cache, has ended.
    pub(crate) fn record_end(&self, duration: Duration, error: Option<ErrorKind>) {
        let shard = self.shard();
        match error {
            None => shard.succeeded.record(duration),
            Some(kind) => shard.failed_histogram(kind).record(duration),
        }
    }

    /// A call was refused before it reached the tool.
    pub(crate) fn record_refusal(&self, kind: ErrorKind) {
        self.shard().refusals[kind as usize].fetch_add(1, Relaxed);
    }

    /// A call was answered from the result cache; `record_end` counts the call itself.
    pub(crate) fn record_cache_hit(&self) {
        self.shard().cache_hits.fetch_add(1, Relaxed);
    }

    /// A call was not found in the result cache.
    pub(crate) fn record_cache_miss(&self) {
        self.shard().cache_misses.fetch_add(1, Relaxed);
    }

    /// A failed attempt is retried.
    pub(crate) fn record_retry(&self) {
        self.shard().retries.fetch_add(1, Relaxed);
    }

    /// A rate limit refused a call or delayed it. `record_refusal` counts the refusal itself.
    pub(crate) fn record_rate_limited(&self) {
        self.shard().rate_limited.fetch_add(1, Relaxed);
    }

    /// The polls of each shard in which one runs now: its index, and a number that changes whenever a poll begins or ends.
    pub(crate) fn running_polls(&self) -> impl Iterator<Item = (usize, u64)> {
        let shards = self.0.get().into_iter().flatten().enumerate();
        let polls = shards.filter_map(|(index, shard)| Some((index, shard.get()?.polls.load(Relaxed))));
        polls.filter(|(_, polls)| polls & u64::from(u32::MAX) != 0)
    }

    /// A number that has changed if a call began, went on or ended since it was read; the count of its end may follow a moment later.
    pub(crate) fn activity(&self) -> u64 {
        self.shards().map(MeterShard::activity).fold(0, u64::wrapping_add)
    }

    /// How many calls ever reached the tool, each counted once whatever its number of attempts.
    pub(crate) fn calls(&self) -> u64 {
        self.in_flight() + self.shards().map(MeterShard::ended_count).sum::<u64>()
    }

    /// All counts so far. The caller provides the queued and stuck calls.
    pub(crate) fn stats(&self, tool: ToolName, queued: usize, stuck: usize) -> ToolStats {
        let (mut succeeded, mut failed) =
            (HistogramSnapshot::default(), BTreeMap::<&'static str, HistogramSnapshot>::new());
        let mut stats = ToolStats {
            tool,
            calls: 0,
            errors: Default::default(),
            refusals: Default::default(),
            cache_hits: 0,
            cache_misses: 0,
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
        for shard in self.shards() {
            shard.succeeded.add_to(&mut succeeded);
            for (kind, histogram) in shard.failed_histograms() {
                // Two kinds may share a name.
                histogram.add_to(failed.entry(ErrorKind::TABLE[kind].name).or_default());
            }
            stats.retries += shard.retries.load(Relaxed);
            stats.rate_limited += shard.rate_limited.load(Relaxed);
            stats.cache_hits += shard.cache_hits.load(Relaxed);
            stats.cache_misses += shard.cache_misses.load(Relaxed);
            for (row, refusals) in ErrorKind::TABLE.iter().zip(&shard.refusals) {
                match refusals.load(Relaxed) {
                    0 => {}
                    refusals => *stats.refusals.entry(row.name).or_default() += refusals,
                }
            }
        }
        let total = failed.values().fold(succeeded.clone(), HistogramSnapshot::merge);
        stats.latency = Latency::from_counts(total);
        stats.succeeded = Latency::from_counts(succeeded);
        stats.failed = failed.into_iter().map(|(error, counts)| (error, Latency::from_counts(counts))).collect();
        stats.errors = stats.failed.iter().map(|(error, latency)| (*error, latency.count)).collect();
        stats.calls = stats.latency.count;
        stats
    }

    /// How many calls are executing now.
    pub(crate) fn in_flight(&self) -> u64 {
        // `finished` is read first, and seeing a finish implies seeing its start (`Release` in the drop): otherwise a
        // call that starts and finishes in between would count as finished only.
        let finished: u64 = self.shards().map(|shard| shard.finished.load(Acquire)).sum();
        let started: u64 = self.shards().map(|shard| shard.started.load(Relaxed)).sum();
        started.saturating_sub(finished)
    }

    /// This thread's shard.
    fn shard(&self) -> &MeterShard {
        let shards = self.0.get_or_init(|| (0..shard_count()).map(|_| OnceLock::new()).collect());
        // The number of shards is a power of two.
        shards[thread_index() & (shards.len() - 1)].get_or_init(|| Box::new(MeterShard::new()))
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
    /// Starts counting. Takes a `&Meter` or an `Arc`, whichever is cheaper to hold while the call runs.
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

impl<'a> Polling<'a> {
    /// Starts counting.
    pub(crate) fn begin(meter: &'a Meter) -> Self {
        let polls = &meter.shard().polls;
        polls.fetch_add(1, Relaxed);
        Self(polls)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(POLL_ENDED, Relaxed);
    }
}

impl MeterShard {
    const fn new() -> Self {
        Self {
            succeeded: Histogram::new(),
            failed: OnceLock::new(),
            refusals: [const { AtomicU64::new(0) }; KINDS],
            cache_hits: AtomicU64::new(0),
            cache_misses: AtomicU64::new(0),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            rate_limited: AtomicU64::new(0),
            polls: AtomicU64::new(0),
        }
    }

    fn failed_histogram(&self, kind: ErrorKind) -> &Histogram {
        let kinds = self.failed.get_or_init(|| (0..KINDS).map(|_| OnceLock::new()).collect());
        kinds[kind as usize].get_or_init(|| Box::new(Histogram::new()))
    }

    /// The error kinds with failed calls, and their histograms.
    fn failed_histograms(&self) -> impl Iterator<Item = (usize, &Histogram)> {
        let kinds = self.failed.get().into_iter().flatten().enumerate();
        kinds.filter_map(|(kind, histogram)| Some((kind, &**histogram.get()?)))
    }

    fn activity(&self) -> u64 {
        let counters = [&self.polls, &self.started, &self.finished, &self.cache_hits].into_iter().chain(&self.refusals);
        counters.map(|counter| counter.load(Relaxed)).fold(0, u64::wrapping_add)
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
        assert_eq!((stats.errors, stats.refusals), ([("timeout", 8_000)].into(), [("rate_limited", 40_000)].into()));
        assert_eq!(stats.latency.max, Duration::from_micros(5_699));
    }

    #[test]
    fn a_tool_nobody_called_takes_no_memory() {
        let meter = Meter::default();
        assert!(size_of::<Meter>() <= 32, "{}", size_of::<Meter>());
        assert_eq!(stats(&meter).calls, 0);
        assert_eq!(meter.shards().count(), 0);
        assert!(meter.0.get().is_none(), "reading must not allocate shards");
        meter.record_end(Duration::ZERO, None);
        assert_eq!(meter.shards().count(), 1, "one thread called, so one shard exists");
        assert!(shard_count().is_power_of_two() && shard_count() <= 8);
    }

    #[test]
    fn a_call_is_with_the_tool_until_its_guard_is_dropped_on_whatever_thread() {
        let meter = Arc::new(Meter::default());
        let (first, second) = (InFlight::begin(meter.clone()), InFlight::begin(meter.clone()));
        assert_eq!(stats(&meter).in_flight, 2);
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert_eq!(stats(&meter).in_flight, 1);
        drop(second);
        assert_eq!(stats(&meter).in_flight, 0);
    }

    #[test]
    fn refused_calls_are_counted_apart_and_have_no_latency() {
        let meter = Meter::default();
        meter.record_refusal(ErrorKind::Overloaded);
        meter.record_end(Duration::from_millis(2), Some(ErrorKind::ToolError));
        meter.record_end(Duration::from_millis(2), Some(ErrorKind::ToolRefused));
        let stats = stats(&meter);
        assert_eq!((stats.calls, stats.latency.count), (2, 2));
        assert_eq!((&stats.errors, &stats.refusals), (&[("tool_error", 2)].into(), &[("overloaded", 1)].into()));
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
                "tool": "weather", "calls": 1, "errors": {}, "refusals": {}, "cacheHits": 0, "cacheMisses": 0,
                "inFlight": 0, "queued": 3, "stuck": 1, "retries": 0, "rateLimited": 0,
                "latency": {"count": 1, "meanMs": 1.5, "p50Ms": 1.408, "p95Ms": 1.408, "p99Ms": 1.408, "maxMs": 1.5},
            })
        );
        assert_eq!(stats.latency.cumulative_counts(&[Duration::from_millis(1), Duration::from_secs(1)]), [0, 1]);
    }
}
