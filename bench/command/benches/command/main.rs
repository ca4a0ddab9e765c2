//! Compares command tools with spawning the same program directly.
//!
//! In: nothing. Out: a table of times per call, with ratios. The program is `sed`, which does almost nothing: it rewrites a request into
//! a response. All variants are measured interleaved, and each ratio is the median over the rounds. This program is its own guard.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod baseline;
mod hub_tools;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use toolhub::command::guard;

/// Makes `sed` rewrite a request into a response.
const SED_ARGS: [&str; 2] = ["-u", "s/\"arguments\"/\"result\"/"];
const ROUNDS: usize = 9;

/// One way to call the program.
struct Variant {
    name: &'static str,
    calls: u32,
    /// The index of the variant it is compared with.
    baseline: usize,
    times: Vec<Duration>,
}

fn main() -> ExitCode {
    if let Some(code) = guard::run_if_requested(std::env::args_os()) {
        return code;
    }
    // Without `--bench`, cargo only checks that the benchmark runs.
    let (rounds, divisor) = if std::env::args().any(|arg| arg == "--bench") { (ROUNDS, 1) } else { (1, 100) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // On a worker thread, as in servers and agents: the thread in `block_on` would have to be woken by another one each time.
    runtime.block_on(runtime.spawn(measure(rounds, divisor))).unwrap();
    ExitCode::SUCCESS
}

async fn measure(rounds: usize, divisor: u32) {
    let variant =
        |name, calls: u32, baseline| Variant { name, calls: (calls / divisor).max(1), baseline, times: Vec::new() };
    let mut variants = [
        variant("one process per call: `tokio::process`", 200, 0),
        variant("one-shot tool", 200, 0),
        variant("one-shot tool, with guard", 100, 0),
        variant("long-running process: its pipes", 10_000, 3),
        variant("stateful tool", 5_000, 3),
        variant("stateful tool, with guard", 5_000, 3),
    ];
    let (mut process, hub) = (baseline::PersistentProcess::start(), hub_tools::hub().await);
    for round in 0..=rounds {
        for (index, variant) in variants.iter_mut().enumerate() {
            let start = Instant::now();
            for _ in 0..variant.calls {
                match index {
                    0 => baseline::run_once().await,
                    1 => hub_tools::call(&hub, "one_shot").await,
                    2 => hub_tools::call(&hub, "one_shot_guarded").await,
                    3 => process.round_trip().await,
                    4 => hub_tools::call(&hub, "long_running").await,
                    _ => hub_tools::call(&hub, "long_running_guarded").await,
                }
            }
            // The first round is a warm-up.
            if round > 0 {
                variant.times.push(start.elapsed() / variant.calls);
            }
        }
    }
    report(&variants);
    hub.shutdown(Duration::from_secs(10)).await;
}

fn report(variants: &[Variant]) {
    println!("| variant | one call | times the baseline |");
    println!("|---|---|---|");
    for variant in variants {
        let time = median(variant.times.iter().map(|time| time.as_secs_f64() * 1e6).collect());
        let pairs = variant.times.iter().zip(&variants[variant.baseline].times);
        let ratio = median(pairs.map(|(time, baseline)| time.as_secs_f64() / baseline.as_secs_f64()).collect());
        println!("| {} | {time:.0} µs | {ratio:.2} |", variant.name);
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
