//! `Backend` for `Arc<B>`, so that a caller can pass a store to a hub and keep a handle to it.
//!
//! In: the requests of `Backend`. Out: the inner store's results. Every method is forwarded, also those with a default in the
//! trait: otherwise an exclusive store would not report itself as exclusive through its `Arc`.

use std::{collections::BTreeMap, sync::Arc};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;

use super::{
    Backend, Batch, LossReport, Page, Row, RowKey, Scan, ServersReport, SizeLimit, StoreError, Table, Watcher,
};
use crate::{clock::Clock, seal::SealKey};
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

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        (**self).sweep(limit, now)
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

    fn write_error(&self) -> Option<String> {
        (**self).write_error()
    }

    fn damage(&self) -> Option<String> {
        (**self).damage()
    }

    fn losses(&self, seen: usize) -> Vec<LossReport> {
        (**self).losses(seen)
    }

    fn warnings(&self) -> Vec<String> {
        (**self).warnings()
    }

    fn memory_pressure(&self) -> Option<f64> {
        (**self).memory_pressure()
    }

    fn lacks_replicas(&self, stamp: u64) -> bool {
        (**self).lacks_replicas(stamp)
    }

    fn servers(&self) -> Option<ServersReport> {
        (**self).servers()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        (**self).clock()
    }

    fn is_write_behind(&self) -> bool {
        (**self).is_write_behind()
    }

    fn size_limit(&self) -> Option<&SizeLimit> {
        (**self).size_limit()
    }

    fn seal_key(&self) -> Option<SealKey> {
        (**self).seal_key()
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }
}
