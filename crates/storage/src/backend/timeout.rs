//! A store that always answers: what takes too long is an error.
//!
//! In: any backend. Out: the same, with an end to every wait, so that no call hangs because its store does; and how long each
//! answer took, for whoever keeps an eye on the store.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::time::Instant;

use super::{Backend, Batch, Page, Row, RowKey, Scan, StoreError, Table, Watcher};
use crate::{
    backend::{StoreMeter, StoreMeters},
    latency::LatencyRecorder,
};
use toolhub_types::timestamp::Timestamp;

/// Far beyond what a healthy store takes for anything.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Nobody waits for a count, so it may walk a large table.
const COUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// A backend whose every answer comes within ten seconds, and a count within a minute.
pub struct TimeoutBackend {
    store: Arc<dyn Backend>,
    meter: Arc<StoreMeter>,
}

impl TimeoutBackend {
    /// The same store, with an end to every wait; how long it takes is counted.
    #[must_use]
    pub fn new(store: Arc<dyn Backend>, meters: &StoreMeters) -> Self {
        Self { meter: meters.meter(store.name()), store }
    }
}

crate::brief_debug!("TimeoutBackend" TimeoutBackend);

async fn with_timeout<T>(
    meter: &LatencyRecorder,
    answer: impl Future<Output = Result<T, StoreError>>,
    otherwise: fn(String) -> StoreError,
) -> Result<T, StoreError> {
    let begun = Instant::now();
    let late = |_| Err(otherwise(format!("no answer within {OPERATION_TIMEOUT:?}")));
    let answer = tokio::time::timeout_at(begun + OPERATION_TIMEOUT, answer).await.unwrap_or_else(late);
    meter.record(begun.elapsed());
    answer
}

impl Backend for TimeoutBackend {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(with_timeout(&self.meter.load, self.store.load(keys, now), StoreError::Unavailable))
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        // It may still be written after we have stopped waiting.
        Box::pin(with_timeout(&self.meter.commit, self.store.commit(batch, now), StoreError::Unknown))
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(with_timeout(&self.meter.scan, self.store.scan(scan, now), StoreError::Unavailable))
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(with_timeout(&self.meter.sweep, self.store.sweep(most, now), StoreError::Unknown))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.store.watch(table)
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(async move {
            // Not measured: how long it takes says how much there is, not how the store is.
            let late = |_| Err(StoreError::Unavailable(format!("not counted within {COUNT_TIMEOUT:?}")));
            tokio::time::timeout(COUNT_TIMEOUT, self.store.count_by_id(table, now)).await.unwrap_or_else(late)
        })
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    fn is_write_behind(&self) -> bool {
        self.store.is_write_behind()
    }

    fn name(&self) -> &'static str {
        self.store.name()
    }
}
