//! Approvals that are asked on one node and answered on another.

use std::{sync::Arc, time::Duration};

use toolhub::{
    ApprovalState, BoxFuture,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
    prelude::*,
    testing::{AssertOutcome, scripted},
};

use crate::shared_memory::SharedMemory;

const SECOND: Duration = Duration::from_secs(1);

/// A store whose changes are not reported.
struct SilentStore(Arc<Memory>);

impl Backend for SilentStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
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
    fn watch(&self, _: Table) -> Watcher {
        Box::pin(futures_util::stream::pending())
    }
}

async fn node(store: Arc<dyn Backend>) -> ToolHub {
    ToolHub::builder().shared_store(store).tool(scripted("pay", []).0.confirm()).build().await.unwrap()
}

async fn answer(hub: &ToolHub) {
    let pending = hub.approvals(&Tenant::default(), Some(ApprovalState::Pending)).await.unwrap();
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    hub.resolve_approval(&Tenant::default(), pending[0].id, yes).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_news_was_lost_is_found_within_half_a_minute() {
    let memory: Arc<SharedMemory> = Arc::default();
    let (asking, answering) =
        (node(memory.record(Arc::new(SilentStore(memory.memory.clone())))).await, node(memory.connect()).await);
    let call = asking.call("pay", json!({})).thread("t").start();
    tokio::time::sleep(SECOND).await;
    answer(&answering).await;
    tokio::time::timeout(30 * SECOND, call).await.unwrap().assert_success();
}

#[tokio::test(start_paused = true)]
async fn approvals_are_counted_on_every_node_and_until_they_are_answered_on_any() {
    let memory: Arc<SharedMemory> = Arc::default();
    let nodes = [node(memory.connect()).await, node(memory.connect()).await];
    let counts = || nodes.each_ref().map(|hub| hub.approval_stats().pending);
    let _calls = [0, 1].map(|index| nodes[index].call("pay", json!({"index": index})).thread("t").detached().start());
    tokio::time::sleep(SECOND).await;
    assert_eq!(counts(), [2, 2]);
    answer(&nodes[1]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(counts(), [1, 1]);
    answer(&nodes[0]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(counts(), [0, 0]);
}
