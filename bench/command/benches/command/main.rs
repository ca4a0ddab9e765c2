//! What a program as a tool costs beside the same program started by hand.
//!
//! In: nothing. Out: a table of times for one call, with ratios. The program is `sed`, which does next to nothing: it turns
//! a request into an answer. All ways are measured in turns, and each ratio is the median over the turns. This program is its own guard.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops where it stands")]
#![allow(clippy::disallowed_methods, reason = "this is where real time is measured")]

mod baseline;
mod hub_tools;

// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use toolhub::command::guard;

/// How `sed` makes an answer of a request.
const SED_ARGS: [&str; 2] = ["-u", "s/\"arguments\"/\"result\"/"];
const ROUNDS: usize = 9;

/// One way to get an answer from the program.
struct Variant {
    name: &'static str,
    calls: u32,
    /// The number of the way it is compared with.
    baseline: usize,
    times: Vec<Duration>,
}

fn main() -> ExitCode {
    if let Some(end) = guard::run_if_requested(std::env::args_os()) {
        return end;
    }
    // Without `--bench` cargo only wants to know whether it runs.
    let (turns, part) = if std::env::args().any(|word| word == "--bench") { (ROUNDS, 1) } else { (1, 100) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // On a worker, where servers and agents call: the thread that only waits for the runtime is woken by another each time.
    runtime.block_on(runtime.spawn(measure(turns, part))).unwrap();
    ExitCode::SUCCESS
}

async fn measure(turns: usize, part: u32) {
    let way =
        |name, calls: u32, beside| Variant { name, calls: (calls / part).max(1), baseline: beside, times: Vec::new() };
    let mut ways = [
        way("one process for each call: `tokio::process`", 200, 0),
        way("the same as a tool", 200, 0),
        way("the same as a tool, below a guard", 100, 0),
        way("a process that lives: its pipes", 10_000, 3),
        way("the same as a tool", 5_000, 3),
        way("the same as a tool, below a guard", 5_000, 3),
    ];
    let (mut line, hub) = (baseline::PersistentProcess::start(), hub_tools::hub().await);
    for turn in 0..=turns {
        for (number, way) in ways.iter_mut().enumerate() {
            let began = Instant::now();
            for _ in 0..way.calls {
                match number {
                    0 => baseline::run_once().await,
                    1 => hub_tools::call(&hub, "once").await,
                    2 => hub_tools::call(&hub, "once_guarded").await,
                    3 => line.round_trip().await,
                    4 => hub_tools::call(&hub, "lives").await,
                    _ => hub_tools::call(&hub, "lives_guarded").await,
                }
            }
            // The first turn only warms up.
            if turn > 0 {
                way.times.push(began.elapsed() / way.calls);
            }
        }
    }
    report(&ways);
    hub.shutdown(Duration::from_secs(10)).await;
}

fn report(ways: &[Variant]) {
    println!("| way | one call | times the one by hand |");
    println!("|---|---|---|");
    for way in ways {
        let time = median(way.times.iter().map(|time| time.as_secs_f64() * 1e6).collect());
        let pairs = way.times.iter().zip(&ways[way.baseline].times);
        let ratio = median(pairs.map(|(ours, bare)| ours.as_secs_f64() / bare.as_secs_f64()).collect());
        println!("| {} | {time:.0} µs | {ratio:.2} |", way.name);
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
