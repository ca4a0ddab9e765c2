//! A store that always answers: what takes too long is an error.
//!
//! In: any backend. Out: the same, with an end to every wait, so that no call hangs because its store does.

use std::{future::Future, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;

use super::{Backend, Batch, Key, Page, Row, Scan, StoreError, Table, Watcher};
use crate::clock::Timestamp;

/// Far beyond what a healthy store takes for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// A backend whose every answer comes within ten seconds.
pub(crate) struct Bounded(pub(crate) Arc<dyn Backend>);

async fn soon<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
    otherwise: fn(String) -> StoreError,
) -> Result<T, StoreError> {
    let late = |_| Err(otherwise(format!("no answer within {PATIENCE:?}")));
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(late)
}

impl Backend for Bounded {
    fn load<'a>(&'a self, keys: &'a [Key], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(soon(self.0.load(keys, now), StoreError::Unavailable))
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        // It may still be written after we have stopped waiting.
        Box::pin(soon(self.0.commit(batch, now), StoreError::Unknown))
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(soon(self.0.scan(scan, now), StoreError::Unavailable))
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(soon(self.0.sweep(most, now), StoreError::Unknown))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.0.watch(table)
    }

    fn alone(&self) -> bool {
        self.0.alone()
    }

    fn is_behind(&self) -> bool {
        self.0.is_behind()
    }
}
