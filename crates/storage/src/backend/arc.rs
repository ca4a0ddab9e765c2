//! A store in an `Arc` is a store: whoever hands one to a hub may keep the other end.
//!
//! In: the requests of `Backend`. Out: what the store inside answers to them. Each method is handed on, also those the trait
//! has an answer for: a store that is alone is alone in its `Arc` too.

use std::{collections::BTreeMap, sync::Arc};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;

use super::{Backend, Batch, Page, Row, RowKey, Scan, StoreError, Table, Watcher};
use toolhub_types::timestamp::Timestamp;

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        (**self).load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        (**self).commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        (**self).scan(scan, now)
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        (**self).sweep(most, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        (**self).watch(table)
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        (**self).count_by_id(table, now)
    }

    fn is_exclusive(&self) -> bool {
        (**self).is_exclusive()
    }

    fn is_write_behind(&self) -> bool {
        (**self).is_write_behind()
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }
}
