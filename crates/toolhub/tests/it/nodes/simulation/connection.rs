//! The connection of one node to the store, with faults.
//!
//! In: the operations of the node, and the [faults](super::faults) of the node. Out: answers, late, wrong only in that they may be missing;
//! and what really happened to the store, for the checks. Like a real store it says so when notifications were lost.

use std::{sync::Arc, time::Duration};

use futures_util::{
    StreamExt,
    future::{Either, select},
};
use tokio::time::Instant;
use toolhub::{
    BoxFuture,
    backend::{Backend, Batch, Page, Row, RowKey, Scan, SealKey, StoreError, Table, WatchEvent, Watcher},
    clock::Timestamp,
};

use super::{
    faults::{CommitFate, NodeFaults},
    world::World,
};

pub(super) struct Connection {
    world: Arc<World>,
    node: usize,
}

impl Connection {
    pub(super) fn new(world: &Arc<World>, node: usize) -> Self {
        Self { world: world.clone(), node }
    }

    fn faults(&self) -> &Arc<NodeFaults> {
        &self.world.faults[self.node]
    }
}

async fn apply(world: &World, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
    let committed = world.memory().commit(batch.clone(), now).await;
    if let Ok(versions) = &committed {
        world.note_applied(&batch, versions);
    }
    committed
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("simulated".into())
}

fn unknown() -> StoreError {
    StoreError::Unknown("simulated".into())
}

/// The table that decides what happens to a batch: that of its first write.
fn table_of(batch: &Batch) -> Table {
    batch.writes.first().map_or(Table::Calls, |write| write.table)
}

impl Backend for Connection {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move {
            let table = keys.first().map_or(Table::Calls, |key| key.table);
            self.faults().travel(table).await;
            if self.faults().fails_read(table) {
                return Err(unavailable());
            }
            let rows = self.world.memory().load(keys, now).await?;
            self.faults().travel(table).await;
            for (key, row) in keys.iter().zip(&rows) {
                self.world.note_read(self.node, key, row.as_ref());
            }
            Ok(rows)
        })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            let (world, node, table) = (&self.world, self.node, table_of(&batch));
            self.faults().travel(table).await;
            match self.faults().commit_fate(table) {
                CommitFate::Applied => {
                    let status = world.probed_status_in(&batch);
                    let committed = apply(world, batch, now).await;
                    self.faults().travel(table).await;
                    if self.faults().cut_until().is_some() {
                        self.faults().note_failure();
                        return Err(unknown());
                    }
                    if let (Ok(versions), Some(at)) = (&committed, status) {
                        world.note_known(node, versions[at]);
                    }
                    return committed;
                }
                CommitFate::Refused => return Err(unavailable()),
                CommitFate::RequestLost => {}
                CommitFate::AnswerLost => drop(apply(world, batch, now).await),
                CommitFate::Late(delay) => {
                    let world = world.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(delay).await;
                        drop(apply(&world, batch, now).await);
                    });
                }
            }
            tokio::time::sleep(self.faults().patience(table)).await;
            self.faults().thawed().await;
            Err(unknown())
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            let table = scan.table;
            self.faults().travel(table).await;
            if self.faults().fails_read(table) {
                return Err(unavailable());
            }
            let page = self.world.memory().scan(scan, now).await?;
            self.faults().travel(table).await;
            for (key, row) in &page.rows {
                self.world.note_read(self.node, key, Some(row));
            }
            Ok(page)
        })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.world.memory().sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        let (changes, faults) = (self.world.memory().watch(table), self.faults().clone());
        let watch = Watch { changes, table, faults, lost_until: None };
        Box::pin(futures_util::stream::unfold(watch, |mut watch| async move {
            watch.next().await.map(|event| (event, watch))
        }))
    }

    fn seal_key(&self) -> Option<SealKey> {
        self.world.memory().seal_key()
    }
}

/// The changes of one table, some of which are lost.
struct Watch {
    changes: Watcher,
    table: Table,
    faults: Arc<NodeFaults>,
    /// When the node receives `Lagged`.
    lost_until: Option<Instant>,
}

impl Watch {
    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            let report_at = self.lost_until;
            let report = async move {
                match report_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let change = match select(self.changes.next(), Box::pin(report)).await {
                Either::Left((change, _)) => change?,
                Either::Right(_) => {
                    self.lost_until = None;
                    self.faults.thawed().await;
                    return Some(WatchEvent::Lagged);
                }
            };
            let Some(lost_for) = self.faults.lost_notification(self.table) else {
                self.faults.travel(self.table).await;
                return Some(change);
            };
            let until = Instant::now() + lost_for.max(Duration::from_millis(1));
            self.lost_until = Some(self.lost_until.map_or(until, |known| known.max(until)));
        }
    }
}
