//! Compares the SQLite store with bare SQLite, and measures it with a million contexts and a million calls; compares the Redis store with
//! its own script, and measures what calls cost there.
//!
//! In: nothing, or which of `rates`, `many`, `calls` and `redis` to measure, and a file with the result of `peers.py`. Out: tables with
//! ratios and targets. The databases are created in the folder for temporary files, which should be on a real disk; `redis-server` keeps
//! its files in memory.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod baseline;
mod million_calls;
mod million_contexts;
mod rates;
mod redis_costs;
mod redis_rates;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use toolhub_testkit::TempFolder;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let (files, parts): (Vec<_>, Vec<_>) = args.into_iter().partition(|arg| arg.ends_with(".json"));
    let is_selected = |name: &str| parts.is_empty() || parts.iter().any(|part| part == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = TempFolder::new();
    if is_selected("rates") {
        runtime.block_on(rates::measure_all(&folder, files.first().map(String::as_str)));
    }
    if is_selected("many") {
        runtime.block_on(million_contexts::measure_all(&folder));
    }
    if is_selected("calls") {
        runtime.block_on(million_calls::measure_all(&folder));
    }
    if is_selected("redis") {
        runtime.block_on(async {
            redis_rates::measure_all().await;
            redis_costs::measure_all().await;
        });
    }
}

pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
