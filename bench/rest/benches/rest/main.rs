//! What a REST tool costs beside a bare client that sends the same request.
//!
//! In: nothing. Out: a table of requests per second, with ratios and targets. A server that does next to nothing has a thread of its
//! own; those who ask share the others, are timed in turns, and each ratio is the median over the turns.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops where it stands")]
#![allow(clippy::disallowed_methods, reason = "this is where real time is measured")]

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
/// How much of the bare client's rate is hoped for.
const MIN_RATE_RATIO: f64 = 0.8;

fn main() {
    // Without `--bench` cargo only wants to know whether it runs.
    let (turns, turn) = match std::env::args().any(|word| word == "--bench") {
        true => (ROUNDS, ROUND_DURATION),
        false => (1, Duration::from_millis(50)),
    };
    let address = server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        println!("| request | who asks | at once | requests/s | times bare | target |");
        println!("|---|---|---|---|---|---|");
        for at_once in [1, 16] {
            for post in [false, true] {
                let clients = [clients::baseline_client(address, post), clients::hub_client(address, post).await];
                let mut rates = [Vec::new(), Vec::new()];
                for number in 0..=turns {
                    for (client, rates) in clients.iter().zip(&mut rates) {
                        let rate = run(client, at_once, turn).await;
                        // The first turn only warms up.
                        if number > 0 {
                            rates.push(rate);
                        }
                    }
                }
                report(if post { "POST" } else { "GET" }, at_once, &rates);
            }
        }
    });
}

/// So many ask, one request after the other, for one turn; requests per second.
async fn run(client: &Arc<dyn Client>, at_once: usize, long: Duration) -> f64 {
    let begun = Instant::now();
    let end = begun + long;
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut many = 0_u32;
                while Instant::now() < end {
                    client.send().await;
                    many += 1;
                }
                many
            })
        })
        .collect();
    let mut many = 0.0;
    for task in tasks {
        many += f64::from(task.await.unwrap());
    }
    many / begun.elapsed().as_secs_f64()
}

fn report(request: &str, at_once: usize, [bare, ours]: &[Vec<f64>; 2]) {
    let ratio = median(ours.iter().zip(bare).map(|(ours, bare)| ours / bare).collect());
    let word = if ratio >= MIN_RATE_RATIO { "met" } else { "MISSED" };
    println!("| {request} | bare reqwest | {at_once} | {:.0} | 1 | |", median(bare.clone()));
    println!(
        "| {request} | through the hub | {at_once} | {:.0} | {ratio:.2} | ≥ {MIN_RATE_RATIO}, {word} |",
        median(ours.clone())
    );
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
