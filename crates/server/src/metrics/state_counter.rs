//! How many states are kept, counted now and then.
//!
//! In: a look at the page of numbers. Out: the last count. Counting walks all states, so it is done beside whoever looks, only
//! when somebody looks, and rests long enough that it never takes more than a small part of the store's time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use toolhub_core::{CancellationToken, StateKind, ToolHub};

/// How long whoever begins a count waits for its end; small stores are counted by then.
const COUNT_WAIT_TIMEOUT: Duration = Duration::from_millis(250);
/// How many times as long as it took a count rests: it takes a hundredth of the time at most.
const REST_FACTOR: u32 = 100;
/// It rests at least this long.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// A count that has not ended by then never will.
const COUNT_TIMEOUT: Duration = Duration::from_secs(600);

/// The last count, and when the next one may begin.
#[derive(Debug, Default)]
pub(crate) struct StateCounter(Arc<Mutex<StateCounts>>);

#[derive(Debug, Default)]
struct StateCounts {
    by_kind: BTreeMap<StateKind, u64>,
    next_due: Option<Instant>,
}

impl StateCounter {
    /// How many states of each kind were there when they were counted last; nothing before that.
    pub(crate) async fn counts(&self, hub: &ToolHub, stopping: &CancellationToken) -> BTreeMap<StateKind, u64> {
        if self.try_begin() {
            let (book, state, stopping) = (self.0.clone(), hub.state().clone(), stopping.clone());
            let count = tokio::spawn(stopping.run_until_cancelled_owned(async move {
                let begun = Instant::now();
                let counted = state.count().await;
                let mut book = lock(&book);
                book.next_due = Some(Instant::now() + (begun.elapsed() * REST_FACTOR).max(MIN_INTERVAL));
                match counted {
                    Ok(counted) => book.by_kind = counted,
                    Err(error) => tracing::debug!(%error, "the states could not be counted"),
                }
            }));
            // A count that takes longer goes on, for whoever looks next.
            let _ = tokio::time::timeout(COUNT_WAIT_TIMEOUT, count).await;
        }
        lock(&self.0).by_kind.clone()
    }

    /// Whether it is time to count. Only one is told so.
    fn try_begin(&self) -> bool {
        let (now, mut book) = (Instant::now(), lock(&self.0));
        let due = book.next_due.is_none_or(|next| next <= now);
        if due {
            book.next_due = Some(now + COUNT_TIMEOUT);
        }
        due
    }
}

fn lock(book: &Mutex<StateCounts>) -> MutexGuard<'_, StateCounts> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}
