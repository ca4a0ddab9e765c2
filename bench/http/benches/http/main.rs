//! Compares calls over HTTP with a bare axum handler for the same JSON, and a tenant's calls with those beside a hostile tenant.
//!
//! In: nothing. Out: tables of requests per second and 99th percentile latency, with ratios and targets. Servers and clients share
//! this process; the servers are measured interleaved, and each ratio is the median over the rounds.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod baseline;
mod hub_server;
mod load;
mod tenants;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::time::Duration;

use load::{Measurement, Target};
use toolhub_testkit::TempFolder;

const CLIENTS: usize = 64;
const ROUNDS: usize = 7;
const ROUND_DURATION: Duration = Duration::from_secs(2);

fn main() {
    // Without `--bench`, cargo only checks that the benchmark runs.
    let (rounds, duration) = match std::env::args().any(|arg| arg == "--bench") {
        true => (ROUNDS, ROUND_DURATION),
        false => (1, Duration::from_millis(50)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = TempFolder::new();
        let targets = [
            baseline::start().await,
            hub_server::start("toolhub, in memory", hub_server::Store::Memory, false).await,
            hub_server::start("toolhub, in memory, with a key", hub_server::Store::Memory, true).await,
            hub_server::start("toolhub, on SQLite", hub_server::Store::Sqlite(folder.join("bench.db")), false).await,
        ];
        let mut measured = vec![Vec::new(); targets.len()];
        for round in 0..=rounds {
            for (target, measured) in targets.iter().zip(&mut measured) {
                let measurement = load::run(target, CLIENTS, duration).await;
                // The first round is a warm-up.
                if round > 0 {
                    measured.push(measurement);
                }
            }
        }
        report(&targets, &measured);
        tenants::run(rounds, duration, &folder).await;
    });
}

fn report(targets: &[Target], measured: &[Vec<Measurement>]) {
    println!(
        "| {CLIENTS} keep-alive connections | response, bytes | requests/s | times bare | target | p99 | times bare | target |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (index, target) in targets.iter().enumerate() {
        let rate = median(measured[index].iter().map(|round| round.rate).collect());
        let p99 = median(measured[index].iter().map(|round| round.p99.as_secs_f64() * 1e3).collect());
        let pairs = || measured[index].iter().zip(&measured[0]);
        let rate_ratio = median(pairs().map(|(hub, bare)| hub.rate / bare.rate).collect());
        let p99_ratio = median(pairs().map(|(hub, bare)| hub.p99.as_secs_f64() / bare.p99.as_secs_f64()).collect());
        let verdict = |met: bool| if met { "met" } else { "MISSED" };
        let rate_target =
            target.min_rate_ratio.map(|min| format!("≥ {min}, {}", verdict(rate_ratio >= min))).unwrap_or_default();
        let p99_target =
            target.max_p99_ratio.map(|max| format!("≤ {max}, {}", verdict(p99_ratio <= max))).unwrap_or_default();
        println!(
            "| {} | {} | {rate:.0} | {rate_ratio:.2} | {rate_target} | {p99:.2} ms | {p99_ratio:.2} | {p99_target} |",
            target.name, target.body_len
        );
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
