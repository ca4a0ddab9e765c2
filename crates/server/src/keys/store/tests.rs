//! The watch of the stored keys: what it notices, also after a panic.

use std::sync::atomic::{AtomicBool, Ordering};

use toolhub_core::testing::{ObservedStore, StoreUse};

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
    let other_node = KeyStore::new(store.memory().clone());
    let watched = KeyStore::new(Arc::new(store));
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
