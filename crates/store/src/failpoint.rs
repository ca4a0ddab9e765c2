//! Failpoints: named places before and after every durable step where a crash test can abort the process.
//!
//! In: the name of the failpoint. Out: nothing, or an abort if the environment selects it. Release builds, without debug
//! assertions, contain none of it.

/// Aborts the process if `TOOLHUB_FAILPOINT` is this name, or `name#n` on the n-th visit.
#[cfg(debug_assertions)]
pub(crate) fn reach(name: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };
    static TARGET: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let text = std::env::var("TOOLHUB_FAILPOINT").ok()?;
        Some(match text.split_once('#') {
            Some((name, visit)) => (name.to_owned(), visit.parse().unwrap_or(1)),
            None => (text, 1),
        })
    });
    static VISITS: AtomicU32 = AtomicU32::new(0);
    if let Some((target, visit)) = &*TARGET
        && target == name
        && VISITS.fetch_add(1, Ordering::Relaxed) + 1 == *visit
    {
        std::process::abort();
    }
}

/// Does nothing in release builds.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn reach(_: &str) {}
