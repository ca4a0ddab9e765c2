//! Times paths against each other: in turns, in short rounds, so that what disturbs the machine disturbs all of them.
#![allow(clippy::disallowed_methods, reason = "this is where real time is measured")]

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

/// A path to be timed: makes the future of one call.
pub(crate) type TimedPath<'a> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a>;

const ROUNDS: usize = 41;
const ROUND: Duration = Duration::from_millis(40);

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be made")
}

/// The median nanoseconds of one call of each path.
pub(crate) fn measure_interleaved(
    runtime: &tokio::runtime::Runtime,
    paths: &[(&str, TimedPath<'_>)],
) -> Vec<(String, f64)> {
    let batches: Vec<u32> = paths.iter().map(|(_, path)| calls_per_round(runtime, path)).collect();
    let mut times = vec![Vec::new(); paths.len()];
    for _ in 0..ROUNDS {
        for (at, (_, path)) in paths.iter().enumerate() {
            times[at].push(nanos_per_call(runtime, path, batches[at]));
        }
    }
    paths.iter().zip(times).map(|((name, _), times)| ((*name).to_owned(), median(times))).collect()
}

/// How many calls fit into a round; finding out warms everything up.
fn calls_per_round(runtime: &tokio::runtime::Runtime, path: &TimedPath<'_>) -> u32 {
    nanos_per_call(runtime, path, 2_000);
    let nanos = nanos_per_call(runtime, path, 2_000);
    (ROUND.as_nanos() as f64 / nanos).clamp(100.0, 1_000_000.0) as u32
}

fn nanos_per_call(runtime: &tokio::runtime::Runtime, path: &TimedPath<'_>, calls: u32) -> f64 {
    runtime.block_on(async {
        let began = Instant::now();
        for _ in 0..calls {
            path().await;
        }
        began.elapsed().as_nanos() as f64 / f64::from(calls)
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// For each work: the rate of two threads over the rate of one, in turns.
pub(crate) fn two_thread_speedup(works: &[&(dyn Fn() + Sync)]) -> Vec<f64> {
    let timed = |work: &(dyn Fn() + Sync), threads: usize| {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        began.elapsed().as_secs_f64()
    };
    let mut ratios = vec![Vec::new(); works.len()];
    for _ in 0..15 {
        for (at, work) in works.iter().enumerate() {
            ratios[at].push(2.0 * timed(work, 1) / timed(work, 2));
        }
    }
    ratios.into_iter().map(median).collect()
}
