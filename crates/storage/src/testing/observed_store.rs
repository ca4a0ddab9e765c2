//! A memory store that tells a test how it is used.

use std::{
    fmt::{self, Debug, Formatter},
    sync::Arc,
};

use futures_core::future::BoxFuture;
use futures_util::StreamExt;

use crate::{
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, WatchEvent, Watcher},
    clock::Timestamp,
};

/// One use of an [`ObservedStore`].
#[derive(Debug, Clone, Copy)]
pub enum StoreUse<'a> {
    /// Rows are loaded.
    Load(&'a [RowKey]),
    /// A batch is committed.
    Commit(&'a Batch),
    /// A page is scanned.
    Scan(&'a Scan),
    /// Expired rows are removed.
    Sweep,
    /// A watcher gets an event.
    Event(&'a WatchEvent),
}

/// A memory store that calls a function before each use. The function may count, or panic as a store with a bug would.
pub struct ObservedStore {
    memory: Arc<Memory>,
    observe: Arc<dyn Fn(StoreUse<'_>) + Send + Sync>,
}

impl ObservedStore {
    /// An empty store.
    #[must_use]
    pub fn new(observe: impl Fn(StoreUse<'_>) + Send + Sync + 'static) -> Self {
        Self { memory: Arc::default(), observe: Arc::new(observe) }
    }

    /// The store without its observer.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

impl Debug for ObservedStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedStore").finish_non_exhaustive()
    }
}

impl Backend for ObservedStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        (self.observe)(StoreUse::Load(keys));
        self.memory.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        (self.observe)(StoreUse::Commit(&batch));
        self.memory.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        (self.observe)(StoreUse::Scan(&scan));
        self.memory.scan(scan, now)
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        (self.observe)(StoreUse::Sweep);
        self.memory.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        let observe = self.observe.clone();
        Box::pin(self.memory.watch(table).inspect(move |event| observe(StoreUse::Event(event))))
    }
}
