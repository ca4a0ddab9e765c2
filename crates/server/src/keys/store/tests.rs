//! The watch of the stored keys: what it notices, also after a panic.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use toolhub_core::{
    BoxFuture,
    backend::{Memory, Page, Row},
    clock::SystemClock,
    testing::{ObservedStore, StoreUse},
};

use super::*;

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
    let panics = Arc::new(AtomicBool::new(false));
    let planted = panics.clone();
    let store = ObservedStore::new(move |used| {
        let is_event = matches!(used, StoreUse::Event(_));
        assert!(!is_event || !planted.swap(false, Ordering::AcqRel), "planted panic");
    });
    let other_node = KeyStore::new(store.memory().clone(), Arc::new(SystemClock));
    let watched = KeyStore::new(Arc::new(store), Arc::new(SystemClock));
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

/// A store whose requests can be made to fail, and whose watches to say nothing.
#[derive(Default)]
struct Remote {
    memory: Arc<Memory>,
    is_down: AtomicBool,
    is_silent: AtomicBool,
    loads: AtomicUsize,
}

impl Remote {
    fn check(&self) -> Result<(), StoreError> {
        let is_down = self.is_down.load(Ordering::Relaxed);
        if is_down { Err(StoreError::Unavailable("planted".into())) } else { Ok(()) }
    }
}

impl Backend for Remote {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            self.check()?;
            self.memory.load(keys, now).await
        })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            self.check()?;
            self.memory.commit(batch, now).await
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            self.check()?;
            self.memory.scan(scan, now).await
        })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        if self.is_silent.load(Ordering::Relaxed) {
            return Box::pin(futures_util::stream::pending());
        }
        self.memory.watch(table)
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        self.memory.count_by_id(table, now)
    }
}

fn key_store(store: Arc<dyn Backend>) -> Arc<KeyStore> {
    KeyStore::new(store, Arc::new(SystemClock))
}

async fn is_known(keys: &Arc<KeyStore>, id: &str) -> Result<bool, StoreError> {
    Ok(keys.find(id).await?.is_some())
}

#[tokio::test(start_paused = true)]
async fn keys_are_believed_a_minute_after_the_store_has_last_answered_and_again_as_soon_as_it_does() {
    let store = Arc::new(Remote::default());
    let keys = key_store(store.clone());
    keys.add(&record("a")).await.unwrap();
    keys.ensure_loaded().await.unwrap();
    for _ in 0..100 {
        assert_eq!(is_known(&keys, "a").await, Ok(true));
    }
    assert_eq!(store.loads.load(Ordering::Relaxed), 0, "a store that has just answered is not asked");
    store.is_down.store(true, Ordering::Relaxed);
    for _ in 0..59 {
        assert_eq!(is_known(&keys, "a").await, Ok(true));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = store.loads.load(Ordering::Relaxed);
    for _ in 0..100 {
        assert!(matches!(is_known(&keys, "a").await, Err(StoreError::Unavailable(_))));
    }
    assert!(store.loads.load(Ordering::Relaxed) <= asked + 1, "not each request asks a store that fails");
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(is_known(&keys, "a").await, Ok(true));
    assert_eq!(is_known(&keys, "none").await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_is_refused_also_if_its_event_is_lost_and_keys_cannot_be_read_at_first() {
    // No event arrives: the use of the key finds out.
    let store = Arc::new(Remote::default());
    let other_node = key_store(store.memory.clone());
    store.is_silent.store(true, Ordering::Relaxed);
    let keys = key_store(store.clone());
    for id in ["a", "b"] {
        other_node.add(&record(id)).await.unwrap();
    }
    keys.ensure_loaded().await.unwrap();
    other_node.remove("a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    is_known(&keys, "a").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((is_known(&keys, "a").await, is_known(&keys, "b").await), (Ok(false), Ok(true)));

    // The event arrives, but the keys cannot be read until the store is back.
    store.is_silent.store(false, Ordering::Relaxed);
    let keys = key_store(store.clone());
    keys.ensure_loaded().await.unwrap();
    store.is_down.store(true, Ordering::Relaxed);
    other_node.remove("b").await.unwrap();
    other_node.add(&record("c")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(is_known(&keys, "c").await.is_err(), "it may be known to others");
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((is_known(&keys, "b").await, is_known(&keys, "c").await), (Ok(false), Ok(true)));
}
