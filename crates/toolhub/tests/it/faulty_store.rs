//! Faulty stores: one that yields before every answer, one that hangs, one that commits although its caller was dropped, one whose
//! answers are lost, one that other nodes are always faster than, one whose watch panics.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use toolhub::{
    BoxFuture,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, Scope, StoreError, Table, Watcher},
    clock::Timestamp,
};

/// A memory store that yields before every answer, and can be made to hang, to be unavailable, or to commit late: like
/// a server, it then commits what it was sent, even if the caller was dropped.
#[derive(Default)]
pub(crate) struct FaultyStore {
    pub(crate) memory: Arc<Memory>,
    pub(crate) writes_late: AtomicBool,
    pub(crate) hangs: AtomicBool,
    /// Reads of states hang.
    pub(crate) hangs_on_state_loads: AtomicBool,
    pub(crate) unavailable: AtomicBool,
    /// It answers reads only.
    pub(crate) refuses_writes: AtomicBool,
    /// It commits, but returns an error.
    pub(crate) loses_acks: AtomicBool,
    /// So many of the next writes of shared rate limits find that another node has changed the row.
    pub(crate) rate_conflicts: AtomicU32,
    /// How often the states of all threads were looked through.
    pub(crate) state_scans: AtomicU32,
    /// The next change of this table panics in the watch.
    pub(crate) panics_in_watch: Arc<Mutex<Option<Table>>>,
}

impl FaultyStore {
    /// Yields, or fails as configured.
    async fn inject_fault(&self) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        if self.hangs.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        if self.unavailable.load(Ordering::Acquire) {
            Err(StoreError::Unavailable("scripted failure".into()))
        } else {
            Ok(())
        }
    }
}

impl Backend for FaultyStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move {
            self.inject_fault().await?;
            if self.hangs_on_state_loads.load(Ordering::Acquire) && keys.iter().any(|key| key.table == Table::State) {
                std::future::pending::<()>().await;
            }
            self.memory.load(keys, now).await
        })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            self.inject_fault().await?;
            if self.refuses_writes.load(Ordering::Acquire) {
                return Err(StoreError::Unavailable("writes are refused".into()));
            }
            if let Some(write) = batch.writes.iter().find(|write| write.table == Table::Rates)
                && self
                    .rate_conflicts
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1))
                    .is_ok()
            {
                return Err(StoreError::Conflict { table: write.table, id: write.id.clone(), found: None });
            }
            if self.writes_late.load(Ordering::Acquire) {
                let memory = self.memory.clone();
                let writing = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    memory.commit(batch, now).await
                });
                return writing.await.unwrap();
            }
            let done = self.memory.commit(batch, now).await;
            // The answer is delayed too: the caller may be dropped by then.
            tokio::task::yield_now().await;
            if self.loses_acks.load(Ordering::Acquire) {
                return Err(StoreError::Unknown("the line was cut".into()));
            }
            done
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            self.inject_fault().await?;
            if (scan.table, &scan.scope) == (Table::State, &Scope::All) {
                self.state_scans.fetch_add(1, Ordering::AcqRel);
            }
            self.memory.scan(scan, now).await
        })
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            self.inject_fault().await?;
            self.memory.sweep(most, now).await
        })
    }

    fn watch(&self, table: Table) -> Watcher {
        let panics = self.panics_in_watch.clone();
        Box::pin(self.memory.watch(table).inspect(move |_| {
            let planted = panics.lock().unwrap().take_if(|planted| *planted == table);
            assert_eq!(planted, None, "planted panic");
        }))
    }
}
