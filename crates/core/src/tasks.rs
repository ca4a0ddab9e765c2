//! Runs background tasks under a name: a task that panics is logged and started again.
//!
//! In: a name, and a function that makes the task anew. Out: a future that ends when the task does, or when it is told to stop.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

/// How soon a task is started again after its first panic; twice as long after each further one.
const INITIAL_RESTART_DELAY: Duration = Duration::from_secs(1);
/// How long it is left alone at most.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);

/// Makes a background task: once at first, and once more after each panic.
pub type TaskFactory = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

/// Runs a background task. If it panics, that is logged with its name, and it is started again after a pause; not any more
/// once `stop` was given. A task that must end with `stop` watches it itself.
pub async fn supervise(name: &'static str, stop: CancellationToken, mut make: TaskFactory) {
    let mut pause = INITIAL_RESTART_DELAY;
    while let Err(panic) = AssertUnwindSafe(async { make().await }).catch_unwind().await {
        let panic = panic_text(&*panic).unwrap_or("no message");
        tracing::error!(task = name, %panic, restart_in = ?pause, "background task panicked; restarting");
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        pause = (2 * pause).min(MAX_RESTART_DELAY);
    }
}

/// What a panic says, where it says anything.
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

    /// A task that panics so often, and then ends.
    fn panics(times: u32) -> (Arc<AtomicU32>, TaskFactory) {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let make = move || {
            let run = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(run >= times, "run {run}") }.boxed()
        };
        (runs, Box::new(make))
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again_until_it_ends() {
        let (runs, make) = panics(3);
        let began = tokio::time::Instant::now();
        supervise("test", CancellationToken::new(), make).await;
        assert_eq!(runs.load(Ordering::Relaxed), 4);
        assert_eq!(began.elapsed(), Duration::from_secs(1 + 2 + 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_to_stop_is_not_started_again() {
        let (runs, make) = panics(u32::MAX);
        let stop = CancellationToken::new();
        let supervised = tokio::spawn(supervise("test", stop.clone(), make));
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        stop.cancel();
        supervised.await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
