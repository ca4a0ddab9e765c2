//! Counts how long one sort of thing takes, from all threads at once.
//!
//! In: durations. Out: their sum as a `Latency`. As in `meter.rs`, each thread counts in a part of its own, which exists once
//! that thread has something to count. Here is also which part is whose.

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

/// How long something took, each time.
#[derive(Default)]
pub struct LatencyRecorder(OnceLock<Box<[OnceLock<Box<Histogram>>]>>);

crate::brief_debug!("LatencyRecorder" LatencyRecorder);

impl LatencyRecorder {
    /// It took so long this time.
    pub fn record(&self, took: Duration) {
        let parts = self.0.get_or_init(|| (0..shard_count()).map(|_| OnceLock::new()).collect());
        // The number of parts is a power of two.
        parts[thread_index() & (parts.len() - 1)].get_or_init(|| Box::new(Histogram::new())).record(took);
    }

    /// Everything counted so far.
    pub fn latency(&self) -> Latency {
        let mut counts = HistogramSnapshot::default();
        for part in self.0.get().into_iter().flatten().filter_map(OnceLock::get) {
            part.add_to(&mut counts);
        }
        Latency::from_counts(counts)
    }
}

static NEXT_THREAD_INDEX: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Threads are numbered as they come, so that busy ones that began together have different parts.
    static THREAD_INDEX: usize = NEXT_THREAD_INDEX.fetch_add(1, Relaxed);
}

/// The number of this thread, small and its own.
pub fn thread_index() -> usize {
    THREAD_INDEX.with(|mine| *mine)
}

/// How many parts a meter has: one for each core, as far as that is worth its memory.
pub fn shard_count() -> usize {
    static SHARDS: OnceLock<usize> = OnceLock::new();
    *SHARDS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        cores.clamp(1, 8).next_power_of_two()
    })
}
