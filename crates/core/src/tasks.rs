//! Supervises background tasks: a task that panics is logged with its name and restarted with backoff.
//!
//! In: a name, a stop token and a task factory. Out: a future that ends when the task does, or at the first restart after the stop.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

/// Delay before the first restart; doubles with each further panic.
const INITIAL_RESTART_DELAY: Duration = Duration::from_secs(1);
/// Longest delay before a restart.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);

/// Creates a background task: once at the start, and again after each panic.
pub type TaskFactory = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

/// Runs a background task. If it panics, logs the panic and restarts it after a delay, unless `stop` is cancelled. A task that
/// must end with `stop` has to watch the token itself.
pub async fn supervise(name: &'static str, stop: CancellationToken, mut factory: TaskFactory) {
    let mut delay = INITIAL_RESTART_DELAY;
    while let Err(panic) = AssertUnwindSafe(async { factory().await }).catch_unwind().await {
        let panic = panic_text(&*panic).unwrap_or("no message");
        tracing::error!(task = name, %panic, restart_in = ?delay, "background task panicked; restarting");
        if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
            return;
        }
        delay = (2 * delay).min(MAX_RESTART_DELAY);
    }
}

/// The message of a panic, if it has one.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;

    /// A task that panics `times` times, and then ends; and the number of its runs.
    fn panics(times: u32) -> (Arc<AtomicU32>, TaskFactory) {
        let runs = Arc::new(AtomicU32::new(0));
        let counter = runs.clone();
        let factory = move || {
            let run = counter.fetch_add(1, Ordering::Relaxed);
            async move { assert!(run >= times, "run {run}") }.boxed()
        };
        (runs, Box::new(factory))
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again_until_it_ends() {
        let (runs, factory) = panics(3);
        let started = tokio::time::Instant::now();
        supervise("test", CancellationToken::new(), factory).await;
        assert_eq!(runs.load(Ordering::Relaxed), 4);
        assert_eq!(started.elapsed(), Duration::from_secs(1 + 2 + 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_to_stop_is_not_started_again() {
        let (runs, factory) = panics(u32::MAX);
        let stop = CancellationToken::new();
        let supervised = tokio::spawn(supervise("test", stop.clone(), factory));
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        stop.cancel();
        supervised.await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
