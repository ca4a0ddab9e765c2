//! Times paths interleaved in short rounds, so that disturbances of the machine affect all of them equally.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

/// A path to be timed: creates the future of one call.
pub(crate) type TimedPath<'a> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a>;

const ROUNDS: usize = 41;
const ROUND: Duration = Duration::from_millis(40);

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("the runtime can be created")
}

/// The median nanoseconds of one call of each path.
pub(crate) fn measure_interleaved(
    runtime: &tokio::runtime::Runtime,
    paths: &[(&str, TimedPath<'_>)],
) -> Vec<(String, f64)> {
    let batches: Vec<u32> = paths.iter().map(|(_, path)| calls_per_round(runtime, path)).collect();
    let mut times = vec![Vec::new(); paths.len()];
    for _ in 0..ROUNDS {
        for (index, (_, path)) in paths.iter().enumerate() {
            times[index].push(nanos_per_call(runtime, path, batches[index]));
        }
    }
    paths.iter().zip(times).map(|((name, _), times)| ((*name).to_owned(), median(times))).collect()
}

/// How many calls fit into a round. Also serves as the warm-up.
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

/// For each workload: the rate of two threads over the rate of one, measured interleaved.
pub(crate) fn two_thread_speedup(workloads: &[&(dyn Fn() + Sync)]) -> Vec<f64> {
    let timed = |workload: &(dyn Fn() + Sync), threads: usize| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(workload);
            }
        });
        start.elapsed().as_secs_f64()
    };
    let mut ratios = vec![Vec::new(); workloads.len()];
    for _ in 0..15 {
        for (index, workload) in workloads.iter().enumerate() {
            ratios[index].push(2.0 * timed(workload, 1) / timed(workload, 2));
        }
    }
    ratios.into_iter().map(median).collect()
}
