//! Background tasks: started under a name, restarted with backoff after a panic.
//!
//! In: a name, a stop token and a task factory. Out: a handle to the supervised task, which ends when the task does, or when it would
//! be restarted after the stop. Every long-lived loop of the hub, the server and the CLI is started here; work for one call or request is not.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// Delay before the first restart; doubles with each further panic.
const INITIAL_RESTART_DELAY: Duration = Duration::from_secs(1);
/// Longest delay before a restart. A task that ran for longer than this was healthy; its next panic counts as the first.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);

/// Starts a background task. If it panics, logs the panic with `name` and restarts it after a delay, unless `stop` is cancelled. The
/// factory creates the task at the start and again after each panic; it gets `stop`, which a task that must end with it has to watch.
pub fn spawn(
    name: &'static str,
    stop: CancellationToken,
    mut factory: impl FnMut(CancellationToken) -> BoxFuture<'static, ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut delay = INITIAL_RESTART_DELAY;
        loop {
            let started = Instant::now();
            let run = AssertUnwindSafe(async { factory(stop.clone()).await });
            let Err(panic) = run.catch_unwind().await else { return };
            if started.elapsed() > MAX_RESTART_DELAY {
                delay = INITIAL_RESTART_DELAY;
            }
            let panic = panic_text(&*panic).unwrap_or("no message");
            tracing::error!(task = name, %panic, restart_in = ?delay, "background task panicked; restarting");
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return;
            }
            delay = (2 * delay).min(MAX_RESTART_DELAY);
        }
    })
}

/// The message of a panic, if it has one.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Starts a task whose runs last this long each; all but the last end with a panic. Returns it with the seconds at which its
    /// runs began.
    fn spawn_runs(stop: &CancellationToken, runs: &[u64]) -> (JoinHandle<()>, Arc<Mutex<Vec<u64>>>) {
        let (begun, start) = (Arc::<Mutex<Vec<u64>>>::default(), Instant::now());
        let (starts, mut left) = (begun.clone(), Vec::from(runs).into_iter());
        let task = spawn("test", stop.clone(), move |_| {
            starts.lock().unwrap().push(start.elapsed().as_secs());
            let (run, is_last) = (left.next().unwrap(), left.len() == 0);
            async move {
                tokio::time::sleep(Duration::from_secs(run)).await;
                assert!(is_last, "a planted panic");
            }
            .boxed()
        });
        (task, begun)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_restarted_with_backoff_which_a_healthy_run_resets() {
        for (runs, expected) in
            [(vec![0], vec![0]), (vec![0, 0, 0, 0], vec![0, 1, 3, 7]), (vec![0, 0, 100, 0, 0], vec![0, 1, 3, 104, 106])]
        {
            let (task, begun) = spawn_runs(&CancellationToken::new(), &runs);
            task.await.unwrap();
            assert_eq!(*begun.lock().unwrap(), expected, "{runs:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_task_is_not_restarted() {
        let stop = CancellationToken::new();
        let (task, begun) = spawn_runs(&stop, &[0; 9]);
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        stop.cancel();
        task.await.unwrap();
        assert_eq!(*begun.lock().unwrap(), [0, 1, 3]);
    }
}
