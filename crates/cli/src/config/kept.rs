//! A SQLite store that is the hub's alone, and that others may still ask for backups.
//!
//! In: the requests of the hub. Out: the store's answers. The hub is told that it is alone with the store, so that it knows at
//! once what a dead process left open; `shared_store` would make it wait for other hubs.

use std::sync::Arc;

use toolhub::{
    BoxFuture, Sqlite,
    backend::{Backend, Batch, Key, Page, Row, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};

/// The hub's hand on a store.
pub(super) struct Kept(pub(super) Arc<Sqlite>);

impl Backend for Kept {
    fn load<'a>(&'a self, keys: &'a [Key], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.0.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        self.0.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.0.scan(scan, now)
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(most, now)
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
