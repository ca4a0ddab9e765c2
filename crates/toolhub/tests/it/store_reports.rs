//! What a store reports of itself: its clock, the memory of its server, warnings.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use toolhub::{
    BoxFuture, CallQuery, WriteDurability,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::{Clock, Timestamp},
    prelude::*,
    testing::{TestClock, scripted},
};

/// A memory store with a clock of its own, whose server may be nearly full or lack replicas.
#[derive(Default)]
struct ServerStore {
    memory: Memory,
    is_nearly_full: AtomicBool,
    lacks_replicas: AtomicBool,
}

/// A time that no machine has.
const SERVER_TIME: Timestamp = Timestamp::from_millis(86_400_000);

struct ServerClock;

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        SERVER_TIME
    }
}

impl Backend for ServerStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.memory.load(keys, now)
    }
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        self.memory.commit(batch, now)
    }
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.memory.scan(scan, now)
    }
    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(most, now)
    }
    fn watch(&self, table: Table) -> Watcher {
        self.memory.watch(table)
    }
    fn warnings(&self) -> Vec<String> {
        vec!["syncs are slow".into()]
    }
    fn memory_pressure(&self) -> Option<f64> {
        Some(if self.is_nearly_full.load(Ordering::Relaxed) { 0.9 } else { 0.89 })
    }
    fn lacks_replicas(&self, _: u64) -> bool {
        self.lacks_replicas.load(Ordering::Relaxed)
    }
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        Some(Arc::new(ServerClock))
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_without_a_clock_of_its_own_has_that_of_its_store() {
    let hub = ToolHub::builder().shared_store(Arc::new(ServerStore::default())).build().await.unwrap();
    assert_eq!(hub.now(), SERVER_TIME);
    let own = TestClock::new();
    let builder = ToolHub::builder().shared_store(Arc::new(ServerStore::default())).clock(own.clone());
    assert_eq!(builder.build().await.unwrap().now(), own.now());
}

#[tokio::test]
async fn while_the_memory_of_the_stores_server_is_short_plain_reads_are_not_recorded() {
    let store: Arc<ServerStore> = Arc::default();
    let builder = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new());
    let builder = builder.tool(scripted("read", []).0.read_only()).tool(scripted("write", []).0);
    let hub = builder.build().await.unwrap();
    assert_eq!(hub.store_warnings(), ["syncs are slow"]);
    store.is_nearly_full.store(true, Ordering::Relaxed);
    assert!(hub.call("read", json!({})).await.error.is_none());
    assert!(hub.call("write", json!({})).await.error.is_none());
    let warnings = hub.store_warnings();
    assert!(warnings.len() == 2 && warnings[1].contains("plain read-only calls are not recorded"), "{warnings:?}");
    assert_eq!(hub.journal_stats().dropped, 1);
    store.is_nearly_full.store(false, Ordering::Relaxed);
    assert!(hub.call("read", json!({})).await.error.is_none());
    let page = hub.calls(&Tenant::default(), &CallQuery::default()).await.unwrap();
    let tools: Vec<&str> = page.calls.iter().rev().map(|call| call.tool.as_str()).collect();
    assert_eq!(tools, ["write", "read"]);
}

#[tokio::test]
async fn the_outcome_says_when_too_few_replicas_had_the_end_of_the_call() {
    let store: Arc<ServerStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new());
    let hub = hub.tools([scripted("read", []).0.read_only(), scripted("write", []).0]).build().await.unwrap();
    for (is_short, expected) in [(false, WriteDurability::Durable), (true, WriteDurability::Unreplicated)] {
        store.lacks_replicas.store(is_short, Ordering::Relaxed);
        assert_eq!(hub.call("write", json!({})).await.durability, expected);
        // Nothing is committed before it ends.
        assert_eq!(hub.call("read", json!({})).await.durability, WriteDurability::Durable);
    }
}
