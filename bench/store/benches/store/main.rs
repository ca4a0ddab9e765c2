//! Compares the SQLite store with bare SQLite, and measures it with a million contexts and a million calls.
//!
//! In: nothing, or which of `rates`, `many` and `calls` to measure, and a file with the result of `peers.py`. Out: a table of rates with ratios
//! and targets. The databases are created in the folder for temporary files, which should be on a real disk.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod baseline;
mod million_calls;
mod million_contexts;
mod rates;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use toolhub_testkit::TempFolder;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let (files, parts): (Vec<_>, Vec<_>) = args.into_iter().partition(|arg| arg.ends_with(".json"));
    let is_selected = |name: &str| parts.is_empty() || parts.iter().any(|part| part == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
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
}

pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
