//! Runs blocking functions beside the runtime, a bounded number at a time.
//!
//! In: a closure. Out: its result, or `overloaded` when no place became free in time. A function cannot be stopped:
//! when nobody waits for it any more it keeps its place until it returns, and is counted as stuck.

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

/// A bounded number of places for blocking functions.
pub(crate) struct BlockingPool {
    permits: Arc<Semaphore>,
    stuck: StuckCounter,
}

/// How many functions run on although nobody waits for them.
#[derive(Clone, Default)]
pub(crate) struct StuckCounter(Arc<AtomicUsize>);

impl StuckCounter {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl BlockingPool {
    pub(crate) fn new(places: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(places)), stuck: StuckCounter::default() }
    }

    /// How many functions run on although nobody waits for them.
    pub(crate) fn stuck_count(&self) -> usize {
        self.stuck.count()
    }

    /// Runs a function; `stuck` counts it beside the pool's own count, for its tool.
    #[allow(clippy::disallowed_methods, reason = "this is the room where blocking functions run")]
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        stuck: StuckCounter,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let place = tokio::time::timeout_at(deadline, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(ToolError::with_kind(
                ErrorKind::Overloaded,
                "no place for a blocking tool became free in time",
            )
            .effect(toolhub_types::effect::Effect::None));
        };
        let phase = Arc::new(AtomicU8::new(RUNNING));
        let counts = [self.stuck.clone(), stuck];
        let worker = Worker { phase: phase.clone(), counts: counts.clone() };
        let waiter = Waiter { phase, counts };
        let handle = tokio::task::spawn_blocking(move || {
            // Both are dropped when the function returns, or panics: only then is the place free.
            let _held = (worker, place);
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

/// Held by the function. Its end settles whether the function was stuck.
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

/// Held by the one who waits. Dropped before the function returned, it makes the function a stuck one.
struct Waiter {
    phase: Arc<AtomicU8>,
    counts: [StuckCounter; 2],
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Counted first and taken back if it returned meanwhile, so that the number never falls below zero.
        for stuck in &self.counts {
            stuck.0.fetch_add(1, Ordering::Relaxed);
        }
        if self.phase.compare_exchange(RUNNING, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            decrement(&self.counts);
        }
    }
}
