//! Compares tools of MCP servers with a bare MCP client that makes the same calls, over stdio and over HTTP.
//!
//! In: nothing. Out: a table of calls per second, with ratios and targets, the memory of idle connections, and some times. The servers are minimal
//! and have their own processes; the clients are measured interleaved, and each ratio is the median over the rounds.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod clients;
mod figures;
mod gateways;
mod server;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clients::Client;
use server::{Server, Transport};

const ROUNDS: usize = 7;
const ROUND_DURATION: Duration = Duration::from_secs(1);
const CONCURRENCY: usize = 64;
const IDLE_CONNECTIONS: usize = 50;
/// Calls of each task beside a hostile server: some seconds, because a server may send a burst before it is slowed down.
const CALLS: usize = 50_000;
/// The targets: the minimum ratio to the rate of the bare client, and the maximum memory of an idle connection.
const MIN_RATE_RATIO: f64 = 0.85;
const MAX_IDLE_KILOBYTES: f64 = 300.0;

fn main() {
    if server::run_if_requested() || gateways::run_if_requested() {
        return;
    }
    // Without `--bench`, cargo only checks that the benchmark runs.
    let (rounds, duration, idle, calls) = match std::env::args().any(|arg| arg == "--bench") {
        true => (ROUNDS, ROUND_DURATION, IDLE_CONNECTIONS, CALLS),
        false => (1, Duration::from_millis(50), 2, 10),
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        println!("| transport | client | in flight | calls/s | times bare | target |");
        println!("|---|---|---|---|---|---|");
        for transport in [Transport::Stdio, Transport::Http] {
            let server = Server::start(transport);
            let clients = [clients::baseline_client(&server).await, clients::hub_client(&server).await];
            let mut rates = [Vec::new(), Vec::new()];
            for round in 0..=rounds {
                for (client, rates) in clients.iter().zip(&mut rates) {
                    let rate = run(client, duration).await;
                    // The first round is a warm-up.
                    if round > 0 {
                        rates.push(rate);
                    }
                }
            }
            report(transport, &rates);
        }
        println!("\n| transport | idle connections | kB each | target |");
        println!("|---|---|---|---|");
        for transport in [Transport::Stdio, Transport::Http] {
            let server = Server::start(transport);
            // What the first hub needs once is not counted.
            let _first = clients::idle_hub(&server, 1).await;
            let before = resident_kilobytes();
            let _idle = clients::idle_hub(&server, idle).await;
            let each = (resident_kilobytes() - before) / idle as f64;
            let verdict = if each <= MAX_IDLE_KILOBYTES { "met" } else { "MISSED" };
            println!("| {transport:?} | {idle} | {each:.0} | ≤ {MAX_IDLE_KILOBYTES}, {verdict} |");
        }
        figures::print(&Server::start(Transport::Stdio), calls).await;
        gateways::print(rounds, duration).await;
    });
}

/// Runs one round of concurrent closed-loop tasks; returns calls per second.
async fn run(client: &Arc<dyn Client>, duration: Duration) -> f64 {
    let start = Instant::now();
    let end = start + duration;
    let tasks: Vec<_> = (0..CONCURRENCY)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut calls = 0_u32;
                while Instant::now() < end {
                    client.call().await;
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0.0;
    for task in tasks {
        calls += f64::from(task.await.unwrap());
    }
    calls / start.elapsed().as_secs_f64()
}

fn report(transport: Transport, [bare, hub]: &[Vec<f64>; 2]) {
    let ratio = median(hub.iter().zip(bare).map(|(hub, bare)| hub / bare).collect());
    let verdict = if ratio >= MIN_RATE_RATIO { "met" } else { "MISSED" };
    println!("| {transport:?} | bare rmcp | {CONCURRENCY} | {:.0} | 1 | |", median(bare.clone()));
    println!(
        "| {transport:?} | MCP tool | {CONCURRENCY} | {:.0} | {ratio:.2} | ≥ {MIN_RATE_RATIO}, {verdict} |",
        median(hub.clone())
    );
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn resident_kilobytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
