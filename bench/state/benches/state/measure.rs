//! Times paths interleaved in short rounds, so that disturbances of the machine affect all of them equally.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

/// A path to be timed: creates the future of one round trip.
pub(crate) type TimedPath<'a> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a>;

const ROUNDS: usize = 31;
const ROUND: Duration = Duration::from_millis(30);

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("the runtime can be created")
}

/// The median nanoseconds of one round trip on each path.
pub(crate) fn measure_interleaved(
    runtime: &tokio::runtime::Runtime,
    paths: &[(String, TimedPath<'_>)],
) -> Vec<(String, f64)> {
    let batches: Vec<u32> = paths.iter().map(|(_, path)| calls_per_round(runtime, path)).collect();
    let mut times = vec![Vec::new(); paths.len()];
    for _ in 0..ROUNDS {
        for (index, (_, path)) in paths.iter().enumerate() {
            times[index].push(nanos_per_call(runtime, path, batches[index]));
        }
    }
    paths.iter().zip(times).map(|((name, _), times)| (name.clone(), median(times))).collect()
}

/// How many round trips fit into a round. Also serves as the warm-up.
fn calls_per_round(runtime: &tokio::runtime::Runtime, path: &TimedPath<'_>) -> u32 {
    nanos_per_call(runtime, path, 2_000);
    let nanos = nanos_per_call(runtime, path, 2_000);
    (ROUND.as_nanos() as f64 / nanos).clamp(100.0, 1_000_000.0) as u32
}

fn nanos_per_call(runtime: &tokio::runtime::Runtime, path: &TimedPath<'_>, calls: u32) -> f64 {
    runtime.block_on(async {
        let start = Instant::now();
        for _ in 0..calls {
            path().await;
        }
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Pseudo-random indices below a bound, unpredictable for caches.
pub(crate) struct RandomIndices(std::cell::Cell<u64>, u64);

impl RandomIndices {
    pub(crate) fn below(bound: usize) -> Self {
        Self(std::cell::Cell::new(1), bound as u64)
    }

    pub(crate) fn next(&self) -> usize {
        let next = self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.set(next);
        ((next >> 33) % self.1) as usize
    }
}
