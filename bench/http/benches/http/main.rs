//! What a call over HTTP costs beside a bare handler doing the same JSON.
//!
//! In: nothing. Out: a table of requests per second and of the 99th of 100 answers, with ratios and targets. Servers and
//! clients share this process; they are asked in turns, and each ratio is the median over the turns.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops where it stands")]
#![allow(clippy::disallowed_methods, reason = "this is where real time is measured")]

mod baseline;
mod hub_server;
mod load;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::time::Duration;

use load::{Measurement, Target};

const CLIENTS: usize = 64;
const ROUNDS: usize = 7;
const ROUND_DURATION: Duration = Duration::from_secs(2);

fn main() {
    // Without `--bench` cargo only wants to know whether it runs.
    let (turns, turn) = match std::env::args().any(|word| word == "--bench") {
        true => (ROUNDS, ROUND_DURATION),
        false => (1, Duration::from_millis(50)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = std::env::temp_dir().join(format!("toolhub-bench-http-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let targets = [
            baseline::start().await,
            hub_server::start("toolhub, in memory", hub_server::Store::Memory, false).await,
            hub_server::start("toolhub, in memory, with a key", hub_server::Store::Memory, true).await,
            hub_server::start("toolhub, on SQLite", hub_server::Store::Sqlite(folder.join("bench.db")), false).await,
        ];
        let mut measured = vec![Vec::new(); targets.len()];
        for turn_number in 0..=turns {
            for (target, measured) in targets.iter().zip(&mut measured) {
                let one = load::run(target, CLIENTS, turn).await;
                // The first turn only warms up.
                if turn_number > 0 {
                    measured.push(one);
                }
            }
        }
        report(&targets, &measured);
        let _ = std::fs::remove_dir_all(&folder);
    });
}

fn report(targets: &[Target], measured: &[Vec<Measurement>]) {
    println!(
        "| {CLIENTS} connections kept alive | answer, bytes | requests/s | times bare | target | p99 | times bare | target |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (at, target) in targets.iter().enumerate() {
        let rate = median(measured[at].iter().map(|one| one.rate).collect());
        let p99 = median(measured[at].iter().map(|one| one.p99.as_secs_f64() * 1e3).collect());
        let pairs = || measured[at].iter().zip(&measured[0]);
        let rates = median(pairs().map(|(ours, bare)| ours.rate / bare.rate).collect());
        let tails = median(pairs().map(|(ours, bare)| ours.p99.as_secs_f64() / bare.p99.as_secs_f64()).collect());
        let word = |met: bool| if met { "met" } else { "MISSED" };
        let wanted_rate =
            target.min_rate_ratio.map(|least| format!("≥ {least}, {}", word(rates >= least))).unwrap_or_default();
        let wanted_tail =
            target.max_p99_ratio.map(|most| format!("≤ {most}, {}", word(tails <= most))).unwrap_or_default();
        println!(
            "| {} | {} | {rate:.0} | {rates:.2} | {wanted_rate} | {p99:.2} ms | {tails:.2} | {wanted_tail} |",
            target.name, target.body_len
        );
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
