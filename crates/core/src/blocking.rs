//! Bounded pool for blocking functions, on tokio's blocking threads.
//!
//! In: a closure. Out: its result, or `overloaded` if no permit became free before the deadline. A function cannot be stopped: after
//! its call has ended it keeps its permit until it returns, and is counted as stuck.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;

use toolhub_storage::clock::Instant;
use toolhub_types::error::{ErrorKind, ToolError};

const RUNNING: u8 = 0;
const ABANDONED: u8 = 1;
const RETURNED: u8 = 2;

/// Limits the number of concurrent blocking functions with a semaphore.
pub(crate) struct BlockingPool {
    permits: Arc<Semaphore>,
    stuck: StuckCounter,
}

/// Number of functions that still run after their call has ended.
#[derive(Clone, Default)]
pub(crate) struct StuckCounter(Arc<AtomicUsize>);

impl StuckCounter {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl BlockingPool {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), stuck: StuckCounter::default() }
    }

    /// Number of functions that still run after their call has ended.
    pub(crate) fn stuck_count(&self) -> usize {
        self.stuck.count()
    }

    /// Runs a function. If it gets stuck, it is counted in `stuck` too, the counter of its tool.
    #[allow(clippy::disallowed_methods, reason = "this pool bounds the number of blocking functions")]
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        stuck: StuckCounter,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let permit = tokio::time::timeout_at(deadline, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(ToolError::with_kind(
                ErrorKind::Overloaded,
                "no thread for a blocking tool became free in time",
            )
            .effect(toolhub_types::effect::Effect::None));
        };
        let phase = Arc::new(AtomicU8::new(RUNNING));
        let counts = [self.stuck.clone(), stuck];
        let worker = Worker { phase: phase.clone(), counts: counts.clone() };
        let waiter = Waiter { phase, counts };
        let handle = tokio::task::spawn_blocking(move || {
            // Both are dropped when the function returns or panics: only then is the permit released.
            let _held = (worker, permit);
            work()
        });
        let result = handle.await;
        drop(waiter);
        match result {
            Ok(value) => Ok(value),
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(ToolError::operator_only(ErrorKind::Interrupted, "the runtime is shutting down")),
        }
    }
}

/// Held by the function. Its drop ends the function's time as stuck, if it was.
struct Worker {
    phase: Arc<AtomicU8>,
    counts: [StuckCounter; 2],
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.phase.swap(RETURNED, Ordering::AcqRel) == ABANDONED {
            decrement(&self.counts);
        }
    }
}

fn decrement(counts: &[StuckCounter]) {
    for stuck in counts {
        stuck.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Held by the waiting call. If it is dropped before the function returned, the function counts as stuck.
struct Waiter {
    phase: Arc<AtomicU8>,
    counts: [StuckCounter; 2],
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Increment first, and undo it if the function returned meanwhile, so that the counter never underflows.
        for stuck in &self.counts {
            stuck.0.fetch_add(1, Ordering::Relaxed);
        }
        if self.phase.compare_exchange(RUNNING, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            decrement(&self.counts);
        }
    }
}
