//! The watch of the stored keys: what it notices, also after a panic.

use std::sync::atomic::{AtomicBool, Ordering};

use toolhub_core::{
    BoxFuture,
    backend::{Memory, Page, Row, RowKey},
};

use super::*;

/// A memory store whose watch panics at the next change once `panics` is set.
#[derive(Default)]
struct PanickingWatchStore {
    memory: Arc<Memory>,
    panics: Arc<AtomicBool>,
}

impl Backend for PanickingWatchStore {
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
        let panics = self.panics.clone();
        Box::pin(
            self.memory.watch(table).inspect(move |_| assert!(!panics.swap(false, Ordering::AcqRel), "planted panic")),
        )
    }
}

fn record(id: &str) -> Record {
    let created_by = Caller::default();
    Record {
        id: id.into(),
        name: created_by.clone(),
        tenant: Tenant::default(),
        hash: format!("sha256:{}", "0".repeat(64)),
        scopes: vec![Scope::Admin],
        created_at: Timestamp::default(),
        created_by,
        expires_at: None,
        last_used_at: None,
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_the_watch_notices_a_key_that_was_revoked_meanwhile() {
    let store = PanickingWatchStore::default();
    let (memory, panics) = (store.memory.clone(), store.panics.clone());
    let (watched, other_node) = (KeyStore::new(Arc::new(store)), KeyStore::new(memory));
    let ids = || watched.all().iter().map(|key| key.record.id.clone()).collect::<Vec<_>>();
    // Shorter than the delay of a restart.
    let settle = || tokio::time::sleep(Duration::from_millis(100));
    other_node.add(&record("a")).await.unwrap();
    other_node.add(&record("b")).await.unwrap();
    watched.ensure_loaded().await.unwrap();
    assert_eq!(ids(), ["a", "b"]);

    panics.store(true, Ordering::Release);
    other_node.remove("a").await.unwrap();
    settle().await;
    assert!(!panics.load(Ordering::Acquire), "the watch has panicked");
    other_node.remove("b").await.unwrap();
    settle().await;
    assert_eq!(ids(), ["a", "b"], "no watch runs before the restart");

    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(ids().is_empty(), "the restarted watch reads all keys");
    other_node.add(&record("c")).await.unwrap();
    settle().await;
    assert_eq!(ids(), ["c"], "the restarted watch goes on");
}
