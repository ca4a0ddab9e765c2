//! A store that always answers: what takes too long is an error.
//!
//! In: any backend. Out: the same, with an end to every wait, so that no call hangs because its store does; and how long each
//! answer took, for whoever keeps an eye on the store.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::time::Instant;

use super::{Backend, Batch, Key, Page, Row, Scan, StoreError, Table, Watcher};
use crate::{
    backend::{StoreMeter, StoreMeters},
    latency::Timed,
};
use toolhub_types::timestamp::Timestamp;

/// Far beyond what a healthy store takes for anything.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nobody waits for a count, so it may walk a large table.
const LONGEST_COUNT: Duration = Duration::from_secs(60);

/// A backend whose every answer comes within ten seconds, and a count within a minute.
pub struct Bounded {
    store: Arc<dyn Backend>,
    meter: Arc<StoreMeter>,
}

impl Bounded {
    /// The same store, with an end to every wait; how long it takes is counted.
    #[must_use]
    pub fn new(store: Arc<dyn Backend>, meters: &StoreMeters) -> Self {
        Self { meter: meters.of(store.name()), store }
    }
}

crate::brief_debug!("Bounded" Bounded);

async fn soon<T>(
    meter: &Timed,
    answer: impl Future<Output = Result<T, StoreError>>,
    otherwise: fn(String) -> StoreError,
) -> Result<T, StoreError> {
    let begun = Instant::now();
    let late = |_| Err(otherwise(format!("no answer within {PATIENCE:?}")));
    let answer = tokio::time::timeout_at(begun + PATIENCE, answer).await.unwrap_or_else(late);
    meter.add(begun.elapsed());
    answer
}

impl Backend for Bounded {
    fn load<'a>(&'a self, keys: &'a [Key], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(soon(&self.meter.load, self.store.load(keys, now), StoreError::Unavailable))
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        // It may still be written after we have stopped waiting.
        Box::pin(soon(&self.meter.commit, self.store.commit(batch, now), StoreError::Unknown))
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(soon(&self.meter.scan, self.store.scan(scan, now), StoreError::Unavailable))
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(soon(&self.meter.sweep, self.store.sweep(most, now), StoreError::Unknown))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.store.watch(table)
    }

    fn tally(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(async move {
            // Not measured: how long it takes says how much there is, not how the store is.
            let late = |_| Err(StoreError::Unavailable(format!("not counted within {LONGEST_COUNT:?}")));
            tokio::time::timeout(LONGEST_COUNT, self.store.tally(table, now)).await.unwrap_or_else(late)
        })
    }

    fn alone(&self) -> bool {
        self.store.alone()
    }

    fn is_behind(&self) -> bool {
        self.store.is_behind()
    }

    fn name(&self) -> &'static str {
        self.store.name()
    }
}
