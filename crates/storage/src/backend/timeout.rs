//! Backend decorator that adds a timeout to every operation, records its latency, and lets commits wait for room.
//!
//! In: any backend. Out: the same backend, whose operations fail instead of hanging, so that no call hangs because its store
//! does; latencies for `backend/meters.rs`; and commits that wait a moment while the store is at its size limit (backpressure).

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::time::Instant;

use super::{
    Backend, Batch, LossReport, Page, Row, RowKey, Scan, ServersReport, SizeLimit, StoreError, Table, Watcher,
};
use crate::{
    backend::{StoreMeter, StoreMeters},
    clock::Clock,
    latency::LatencyRecorder,
    seal::SealKey,
};
use toolhub_types::timestamp::Timestamp;

/// Far more than a healthy store needs for any operation.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
/// No call waits for a count, so it may walk a large table.
const COUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// A backend whose operations time out after ten seconds, and counts after a minute.
pub struct TimeoutBackend {
    store: Arc<dyn Backend>,
    meter: Arc<StoreMeter>,
}

impl TimeoutBackend {
    /// Wraps a store; its latencies are recorded in the meter of its backend.
    #[must_use]
    pub fn new(store: Arc<dyn Backend>, meters: &StoreMeters) -> Self {
        Self { meter: meters.meter(store.name()), store }
    }
}

crate::brief_debug!("TimeoutBackend" TimeoutBackend);

async fn with_timeout<T>(
    meter: &LatencyRecorder,
    operation: impl Future<Output = Result<T, StoreError>>,
    timeout_error: fn(String) -> StoreError,
) -> Result<T, StoreError> {
    let started = Instant::now();
    let timed_out = |_| Err(timeout_error(format!("timed out after {OPERATION_TIMEOUT:?}")));
    let result = tokio::time::timeout_at(started + OPERATION_TIMEOUT, operation).await.unwrap_or_else(timed_out);
    meter.record(started.elapsed());
    result
}

impl Backend for TimeoutBackend {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(with_timeout(&self.meter.load, self.store.load(keys, now), StoreError::Unavailable))
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            // The wait for room is not part of the latency: it says nothing about the health of the store.
            let growth = batch.max_growth();
            let reservation = match self.store.size_limit().filter(|_| growth > 0) {
                Some(limit) => Some(limit.reserve(growth).await),
                None => None,
            };
            // The batch may still be written after the timeout.
            let result = with_timeout(&self.meter.commit, self.store.commit(batch, now), StoreError::Unknown).await;
            drop(reservation);
            result
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(with_timeout(&self.meter.scan, self.store.scan(scan, now), StoreError::Unavailable))
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(with_timeout(&self.meter.sweep, self.store.sweep(limit, now), StoreError::Unknown))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.store.watch(table)
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(async move {
            // Not recorded: the duration depends on the size of the table, not on the health of the store.
            let timed_out = |_| Err(StoreError::Unavailable(format!("count timed out after {COUNT_TIMEOUT:?}")));
            tokio::time::timeout(COUNT_TIMEOUT, self.store.count_by_id(table, now)).await.unwrap_or_else(timed_out)
        })
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    fn write_error(&self) -> Option<String> {
        self.store.write_error()
    }

    fn damage(&self) -> Option<String> {
        self.store.damage()
    }

    fn losses(&self, seen: usize) -> Vec<LossReport> {
        self.store.losses(seen)
    }

    fn warnings(&self) -> Vec<String> {
        self.store.warnings()
    }

    fn memory_pressure(&self) -> Option<f64> {
        self.store.memory_pressure()
    }

    fn lacks_replicas(&self, stamp: u64) -> bool {
        self.store.lacks_replicas(stamp)
    }

    fn servers(&self) -> Option<ServersReport> {
        self.store.servers()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }

    fn is_write_behind(&self) -> bool {
        self.store.is_write_behind()
    }

    fn size_limit(&self) -> Option<&SizeLimit> {
        self.store.size_limit()
    }

    fn seal_key(&self) -> Option<SealKey> {
        self.store.seal_key()
    }

    fn name(&self) -> &'static str {
        self.store.name()
    }
}
