//! What the SQLite store costs beside bare SQLite doing the same work, and how it bears a million contexts.
//!
//! In: nothing, or which of `rates` and `many` to measure, and a file with what a neighbour did, by `peers.py`. Out: a table of rates with ratios and targets. The files lie in
//! the folder for temporary files, which should be on a real disk.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops where it stands")]
#![allow(clippy::disallowed_methods, reason = "this is where real time is measured")]

mod baseline;
mod million_contexts;
mod rates;

// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::path::PathBuf;

/// A folder that is gone when the measurement is.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("toolhub-bench-store-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let (files, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.ends_with(".json"));
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let folder = TempFolder::new();
    if wanted("rates") {
        runtime.block_on(rates::measure_all(&folder, files.first().map(String::as_str)));
    }
    if wanted("many") {
        runtime.block_on(million_contexts::measure_all(&folder));
    }
}

pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
