//! Places where a test lets the process die: before and after every step that matters when the power goes.
//!
//! In: the name of the place. Out: nothing; or the end of the process, where the environment names the place. Builds
//! without debug assertions, which is what is shipped, have nothing of it.

/// The process dies here if `TOOLHUB_FAILPOINT` is this name, or this name, a `#` and the number of the visit.
#[cfg(debug_assertions)]
pub(crate) fn reach(place: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };
    static TARGET: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let text = std::env::var("TOOLHUB_FAILPOINT").ok()?;
        Some(match text.split_once('#') {
            Some((place, visit)) => (place.to_owned(), visit.parse().unwrap_or(1)),
            None => (text, 1),
        })
    });
    static VISITS: AtomicU32 = AtomicU32::new(0);
    if let Some((wanted, visit)) = &*TARGET
        && wanted == place
        && VISITS.fetch_add(1, Ordering::Relaxed) + 1 == *visit
    {
        std::process::abort();
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn reach(_: &str) {}
