//! A connection to a store whose operations are recorded.
//!
//! In: the requests of one client. Out: the answers of the store, unchanged; and a history of both.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug, Formatter},
    sync::Arc,
};

use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use smol_str::SmolStr;

use super::{History, Request};
use crate::{
    backend::{Backend, Batch, LossReport, Page, Row, RowKey, Scan, SizeLimit, StoreError, Table, Watcher},
    clock::Clock,
    seal::SealKey,
};
use toolhub_types::timestamp::Timestamp;

/// A store whose requests and answers are recorded in a [`History`].
pub struct RecordedStore {
    history: Arc<History>,
    client: usize,
    store: Arc<dyn Backend>,
}

impl RecordedStore {
    pub(super) fn new(history: Arc<History>, client: usize, store: Arc<dyn Backend>) -> Self {
        Self { history, client, store }
    }
}

impl Debug for RecordedStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedStore").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Backend for RecordedStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move {
            let operation = self.history.begin(self.client, now, Request::Load(keys.to_vec(), None));
            let loaded = self.store.load(keys, now).await;
            let answer = loaded.as_ref().ok().cloned();
            self.history.end(operation, |request| {
                if let Request::Load(_, rows) = request {
                    *rows = answer;
                }
            });
            loaded
        })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            let operation = self.history.begin(self.client, now, Request::Commit(batch.clone(), None));
            let committed = self.store.commit(batch, now).await;
            let answer = committed.clone();
            self.history.end(operation, |request| {
                if let Request::Commit(_, result) = request {
                    *result = Some(answer);
                }
            });
            committed
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            let operation = self.history.begin(self.client, now, Request::Scan(scan.clone(), None));
            let scanned = self.store.scan(scan, now).await;
            let answer = scanned.as_ref().ok().cloned();
            self.history.end(operation, |request| {
                if let Request::Scan(_, page) = request {
                    *page = answer;
                }
            });
            scanned
        })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.store.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        let (history, client, watch) = (self.history.clone(), self.client, self.history.next_watch());
        Box::pin(self.store.watch(table).inspect(move |event| {
            let operation = history.begin(client, Timestamp::default(), Request::Event(watch, event.clone()));
            history.end(operation, |_| {});
        }))
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        self.store.count_by_id(table, now)
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
