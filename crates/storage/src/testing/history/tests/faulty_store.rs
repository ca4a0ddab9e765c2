//! A naive store that yields before and after each request, loses some answers as a store may, and has one planted fault.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use fastrand::Rng;
use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::sync::broadcast;

use super::super::BrokenPromise;
use crate::backend::{
    Action, Backend, Batch, Change, Page, PriorRow, Row, RowKey, Scan, StoreError, Table, WatchEvent, Watcher, Write,
    WriteContext,
};
use toolhub_types::timestamp::Timestamp;

/// What is wrong with the store, from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A batch is acknowledged and not applied.
    ForgetsBatch,
    /// A put keeps the version number of the row.
    ReusesVersion,
    /// Preconditions are not checked.
    IgnoresPrecondition,
    /// A load returns the rows of a moment ago.
    ReadsStaleRows,
    /// The first write of a refused batch stays.
    KeepsPartOfRefusedBatch,
    /// A load reads one row after the other.
    TearsLoad,
    /// A batch is applied in two steps.
    TearsCommit,
    /// A batch is applied twice.
    AppliesTwice,
    /// A batch is reported as unavailable and applied.
    AppliesUnavailable,
    /// Another value is stored than was sent.
    AltersValue,
    /// A removed row is still there.
    IgnoresRemoval,
    /// Two events change places.
    SwapsEvents,
}

impl Fault {
    /// All faults, each with promises that it must be found to break.
    pub(super) const ALL: [(Self, &[BrokenPromise]); 12] = [
        (Self::ForgetsBatch, &[BrokenPromise::StaleRead]),
        (Self::ReusesVersion, &[BrokenPromise::VersionWrittenTwice]),
        (Self::IgnoresPrecondition, &[BrokenPromise::PreconditionIgnored]),
        (Self::ReadsStaleRows, &[BrokenPromise::StaleRead]),
        (Self::KeepsPartOfRefusedBatch, &[BrokenPromise::SeenWithoutRequest]),
        (Self::TearsLoad, &[BrokenPromise::HalfBatch]),
        (Self::TearsCommit, &[BrokenPromise::HalfBatch]),
        (Self::AppliesTwice, &[BrokenPromise::VersionWrittenTwice]),
        (Self::AppliesUnavailable, &[BrokenPromise::SeenWithoutRequest]),
        (Self::AltersValue, &[BrokenPromise::ValueAltered]),
        (Self::IgnoresRemoval, &[BrokenPromise::StaleRead]),
        (Self::SwapsEvents, &[BrokenPromise::EventOrder]),
    ];
}

type Rows = BTreeMap<SmolStr, Row>;

pub(super) struct FaultyStore {
    fault: Option<Fault>,
    inner: Mutex<Inner>,
}

struct Inner {
    rows: Rows,
    /// The rows as they were some commits ago.
    earlier: Rows,
    random: Rng,
    events: Option<broadcast::Sender<WatchEvent>>,
    /// An event that comes after the next one.
    delayed: Option<WatchEvent>,
}

impl FaultyStore {
    pub(super) fn new(fault: Option<Fault>, random: Rng) -> Self {
        let (rows, earlier) = Default::default();
        let events = Some(broadcast::channel(10_000).0);
        Self { fault, inner: Mutex::new(Inner { rows, earlier, random, events, delayed: None }) }
    }

    /// Ends all watches.
    pub(super) fn close(&self) {
        self.lock().events = None;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics under the lock")
    }

    /// Whether the planted fault strikes now.
    fn strikes(&self, fault: Fault) -> bool {
        self.fault == Some(fault) && self.lock().random.u8(0..4) == 0
    }

    fn chance(&self, one_in: u8) -> bool {
        self.lock().random.u8(0..one_in) == 0
    }

    async fn pause(&self) {
        while self.chance(2) {
            tokio::task::yield_now().await;
        }
    }

    fn check(&self, batch: &Batch) -> Result<(), StoreError> {
        let inner = self.lock();
        batch.writes.iter().try_for_each(|write| write.check(&prior(&inner.rows, write)))
    }

    fn apply(&self, batch: &Batch, writes: &[Write], now: Timestamp) -> Vec<u64> {
        let mut inner = self.lock();
        if inner.random.u8(0..3) == 0 {
            inner.earlier = inner.rows.clone();
        }
        writes.iter().map(|write| self.write(&mut inner, batch, write, now)).collect()
    }

    fn write(&self, inner: &mut Inner, batch: &Batch, write: &Write, now: Timestamp) -> u64 {
        let context = WriteContext { stamp: batch.stamp, floor: 0, now };
        let applied = write.change.apply(&prior(&inner.rows, write), context);
        let mut version = applied.version;
        match (applied.action, &write.change) {
            (Action::Put { mut row_version, created }, Change::Put { value, schema, expires }) => {
                let mut value = value.clone();
                let is_struck = inner.random.u8(0..4) == 0;
                match self.fault.filter(|_| is_struck) {
                    Some(Fault::ReusesVersion) => row_version.number = (row_version.number - 1).max(1),
                    Some(Fault::AltersValue) => value = [&*value, b"!"].concat().into(),
                    _ => {}
                }
                version = row_version.number;
                let row =
                    Row { version: row_version, schema: *schema, value, expires: *expires, created, updated: now };
                inner.rows.insert(write.id.clone(), row);
            }
            (Action::Remove, _) if self.fault != Some(Fault::IgnoresRemoval) => {
                inner.rows.remove(&write.id);
            }
            _ => {}
        }
        if applied.changed {
            let key = RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() };
            self.emit(inner, WatchEvent::Row(key, (version > 0).then_some(version)));
        }
        version
    }

    fn emit(&self, inner: &mut Inner, event: WatchEvent) {
        let is_delayed = self.fault == Some(Fault::SwapsEvents) && inner.delayed.is_none() && inner.random.bool();
        let earlier = inner.delayed.take();
        if is_delayed {
            inner.delayed = Some(event);
        } else if let Some(events) = &inner.events {
            for event in [Some(event), earlier].into_iter().flatten() {
                let _ = events.send(event);
            }
        }
    }
}

fn prior(rows: &Rows, write: &Write) -> PriorRow {
    PriorRow::from_found(rows.get(&write.id).map(|row| (row.version, row.created)))
}

impl Backend for FaultyStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], _: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move {
            self.pause().await;
            if self.strikes(Fault::ReadsStaleRows) {
                let inner = self.lock();
                return Ok(keys.iter().map(|key| inner.earlier.get(&key.id).cloned()).collect());
            }
            let mut rows = Vec::new();
            if self.fault == Some(Fault::TearsLoad) {
                for key in keys {
                    rows.push(self.lock().rows.get(&key.id).cloned());
                    self.pause().await;
                }
            } else {
                let inner = self.lock();
                rows.extend(keys.iter().map(|key| inner.rows.get(&key.id).cloned()));
            }
            self.pause().await;
            Ok(rows)
        })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            self.pause().await;
            // A store may lose a request, or an answer.
            if self.chance(10) {
                return Err(StoreError::Unknown("the request was lost".into()));
            }
            if self.strikes(Fault::AppliesUnavailable) {
                self.check(&batch)?;
                self.apply(&batch, &batch.writes, now);
                return Err(StoreError::Unavailable("not really".into()));
            }
            if let Err(error) = self.check(&batch)
                && !self.strikes(Fault::IgnoresPrecondition)
            {
                if self.strikes(Fault::KeepsPartOfRefusedBatch) {
                    self.apply(&batch, &batch.writes[..1], now);
                }
                return Err(error);
            }
            if self.strikes(Fault::ForgetsBatch) {
                let inner = self.lock();
                let context = WriteContext { stamp: batch.stamp, floor: 0, now };
                let version = |write: &Write| write.change.apply(&prior(&inner.rows, write), context).version;
                return Ok(batch.writes.iter().map(version).collect());
            }
            let mut versions = if self.fault == Some(Fault::TearsCommit) {
                let mut versions = self.apply(&batch, &batch.writes[..1], now);
                self.pause().await;
                versions.extend(self.apply(&batch, &batch.writes[1..], now));
                versions
            } else {
                self.apply(&batch, &batch.writes, now)
            };
            self.pause().await;
            if self.strikes(Fault::AppliesTwice) {
                versions = self.apply(&batch, &batch.writes, now);
            }
            if self.chance(10) {
                return Err(StoreError::Unknown("the answer was lost".into()));
            }
            Ok(versions)
        })
    }

    fn scan(&self, scan: Scan, _: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            self.pause().await;
            let crate::backend::Scope::Partition(partition) = &scan.scope else { return Ok(Page::default()) };
            let key = |id: &SmolStr| RowKey { partition: partition.clone(), table: scan.table, id: id.clone() };
            let rows = self.lock().rows.iter().map(|(id, row)| (key(id), row.clone())).collect();
            self.pause().await;
            Ok(Page::cut(rows, &scan))
        })
    }

    fn sweep(&self, _: usize, _: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async { Ok(0) })
    }

    fn watch(&self, _: Table) -> Watcher {
        let receiver = self.lock().events.as_ref().map(broadcast::Sender::subscribe);
        Box::pin(futures_util::stream::unfold(receiver, |receiver| async move {
            let mut receiver = receiver?;
            receiver.recv().await.ok().map(|event| (event, Some(receiver)))
        }))
    }
}
