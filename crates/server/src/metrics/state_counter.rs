//! Number of stored states, counted periodically.
//!
//! In: a scrape of `/metrics`. Out: the last count. A count scans all states, so it runs on its own task, only when the
//! page is requested, and with pauses that bound its share of the store's time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use toolhub_core::{CancellationToken, StateKind, ToolHub};

/// How long the request that starts a count waits for its result; small stores are counted by then.
const COUNT_WAIT_TIMEOUT: Duration = Duration::from_millis(250);
/// The pause after a count, as a multiple of its duration: counting takes 1 % of the time at most.
const REST_FACTOR: u32 = 100;
/// The shortest pause.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// A count that takes longer is presumed lost, and another one may start.
const COUNT_TIMEOUT: Duration = Duration::from_secs(600);

/// The last count, and when the next one is due.
#[derive(Debug, Default)]
pub(crate) struct StateCounter(Arc<Mutex<StateCounts>>);

#[derive(Debug, Default)]
struct StateCounts {
    by_kind: BTreeMap<StateKind, u64>,
    next_due: Option<Instant>,
}

impl StateCounter {
    /// The number of states of each kind at the last count; empty before the first.
    pub(crate) async fn counts(&self, hub: &ToolHub, stopping: &CancellationToken) -> BTreeMap<StateKind, u64> {
        if self.try_begin() {
            let (counts, state, stopping) = (self.0.clone(), hub.state().clone(), stopping.clone());
            let count = tokio::spawn(stopping.run_until_cancelled_owned(async move {
                let started = Instant::now();
                let result = state.count().await;
                let mut counts = lock(&counts);
                counts.next_due = Some(Instant::now() + (started.elapsed() * REST_FACTOR).max(MIN_INTERVAL));
                match result {
                    Ok(by_kind) => counts.by_kind = by_kind,
                    Err(error) => tracing::debug!(%error, "count of stored states failed"),
                }
            }));
            // A count that takes longer continues; the next request sees its result.
            let _ = tokio::time::timeout(COUNT_WAIT_TIMEOUT, count).await;
        }
        lock(&self.0).by_kind.clone()
    }

    /// Whether a count is due. Returns true to one caller only.
    fn try_begin(&self) -> bool {
        let (now, mut counts) = (Instant::now(), lock(&self.0));
        let is_due = counts.next_due.is_none_or(|next| next <= now);
        if is_due {
            counts.next_due = Some(now + COUNT_TIMEOUT);
        }
        is_due
    }
}

fn lock(counts: &Mutex<StateCounts>) -> MutexGuard<'_, StateCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
