//! Latency recorder of one operation, sharded by thread to avoid contention.
//!
//! In: durations. Out: their summary as a `Latency`. Each thread records into its own shard, which is allocated on first use.
//! Also assigns threads to shards, for the other sharded counters of the workspace.

use std::{
    num::NonZero,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    Latency,
    histogram::{Histogram, HistogramSnapshot},
};

/// Records the durations of one operation.
#[derive(Default)]
pub struct LatencyRecorder(OnceLock<Box<[OnceLock<Box<Histogram>>]>>);

crate::brief_debug!("LatencyRecorder" LatencyRecorder);

impl LatencyRecorder {
    /// Records one duration.
    pub fn record(&self, duration: Duration) {
        let shards = self.0.get_or_init(|| (0..shard_count()).map(|_| OnceLock::new()).collect());
        // The number of shards is a power of two.
        shards[thread_index() & (shards.len() - 1)].get_or_init(|| Box::new(Histogram::new())).record(duration);
    }

    /// Summary of everything recorded so far.
    pub fn latency(&self) -> Latency {
        let mut counts = HistogramSnapshot::default();
        for shard in self.0.get().into_iter().flatten().filter_map(OnceLock::get) {
            shard.add_to(&mut counts);
        }
        Latency::from_counts(counts)
    }
}

static NEXT_THREAD_INDEX: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Threads are numbered in order of first use, so that busy threads that started together get different shards.
    static THREAD_INDEX: usize = NEXT_THREAD_INDEX.fetch_add(1, Relaxed);
}

/// The number of this thread: small and unique.
pub fn thread_index() -> usize {
    THREAD_INDEX.with(|index| *index)
}

/// The number of shards of a counter: one per core, at most 8 to bound the memory; a power of two.
pub fn shard_count() -> usize {
    static SHARDS: OnceLock<usize> = OnceLock::new();
    *SHARDS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        cores.clamp(1, 8).next_power_of_two()
    })
}
