//! Compares REST tools with a bare HTTP client that sends the same request.
//!
//! In: nothing. Out: a table of requests per second, with ratios and targets. A minimal server has its own thread; the clients share
//! the others, are measured interleaved, and each ratio is the median over the rounds.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod clients;
mod server;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clients::Client;

const ROUNDS: usize = 7;
const ROUND_DURATION: Duration = Duration::from_secs(1);
/// The target: the minimum ratio to the rate of the bare client.
const MIN_RATE_RATIO: f64 = 0.8;

fn main() {
    // Without `--bench`, cargo only checks that the benchmark runs.
    let (rounds, duration) = match std::env::args().any(|arg| arg == "--bench") {
        true => (ROUNDS, ROUND_DURATION),
        false => (1, Duration::from_millis(50)),
    };
    let address = server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        println!("| request | client | concurrency | requests/s | times bare | target |");
        println!("|---|---|---|---|---|---|");
        for concurrency in [1, 16] {
            for post in [false, true] {
                let clients = [clients::baseline_client(address, post), clients::hub_client(address, post).await];
                let mut rates = [Vec::new(), Vec::new()];
                for round in 0..=rounds {
                    for (client, rates) in clients.iter().zip(&mut rates) {
                        let rate = run(client, concurrency, duration).await;
                        // The first round is a warm-up.
                        if round > 0 {
                            rates.push(rate);
                        }
                    }
                }
                report(if post { "POST" } else { "GET" }, concurrency, &rates);
            }
        }
    });
}

/// Runs one round of concurrent closed-loop tasks; returns requests per second.
async fn run(client: &Arc<dyn Client>, concurrency: usize, duration: Duration) -> f64 {
    let start = Instant::now();
    let end = start + duration;
    let tasks: Vec<_> = (0..concurrency)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut requests = 0_u32;
                while Instant::now() < end {
                    client.send().await;
                    requests += 1;
                }
                requests
            })
        })
        .collect();
    let mut requests = 0.0;
    for task in tasks {
        requests += f64::from(task.await.unwrap());
    }
    requests / start.elapsed().as_secs_f64()
}

fn report(request: &str, concurrency: usize, [bare, hub]: &[Vec<f64>; 2]) {
    let ratio = median(hub.iter().zip(bare).map(|(hub, bare)| hub / bare).collect());
    let verdict = if ratio >= MIN_RATE_RATIO { "met" } else { "MISSED" };
    println!("| {request} | bare reqwest | {concurrency} | {:.0} | 1 | |", median(bare.clone()));
    println!(
        "| {request} | REST tool | {concurrency} | {:.0} | {ratio:.2} | ≥ {MIN_RATE_RATIO}, {verdict} |",
        median(hub.clone())
    );
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
