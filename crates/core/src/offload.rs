//! Keeps long computations off the async workers.
//!
//! In: work and the size of its input. Out: its result. A worker that parses megabytes serves no other call meanwhile.

/// Work on more than this runs on a blocking thread. Parsing so much takes about a millisecond.
const MAX_INPUT_IN_PLACE: usize = 256 << 10;

/// Runs work on an input of this size: in place if it is small, else on a blocking thread.
#[allow(clippy::disallowed_methods, reason = "the work is short, and there is at most one per running call")]
pub async fn run<T: Send + 'static>(input_bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if input_bytes <= MAX_INPUT_IN_PLACE {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        // The runtime is shutting down, and drops this future too.
        Err(_) => std::future::pending().await,
    }
}
