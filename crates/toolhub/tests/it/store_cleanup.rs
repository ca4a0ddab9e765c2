//! Cleanup by the hub: how often it sweeps its store, and what is left if it does not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    ContextId, StateKind, StateManagerConfig,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::{Clock, Timestamp},
    prelude::*,
    testing::{ObservedStore, StoreUse, TestClock},
};

/// A store, and how often it was swept.
struct SweptStore {
    memory: Arc<Memory>,
    sweeps: Arc<AtomicUsize>,
    /// The next sweep panics.
    panics: Arc<AtomicBool>,
}

impl SweptStore {
    fn sweeps(&self) -> usize {
        self.sweeps.load(Ordering::Relaxed)
    }

    /// How many rows there are, expired ones included, besides those of threads and nodes, which stay.
    async fn count_rows(&self, long_ago: Timestamp) -> usize {
        let mut rows = 0;
        for table in
            Table::ALL.into_iter().filter(|table| !matches!(table, Table::Threads | Table::Nodes | Table::Events))
        {
            rows += self.memory.scan(Scan::new(table, Scope::All), long_ago).await.unwrap().rows.len();
        }
        rows
    }
}

/// A hub with this config, its store, and a state that lives for ten seconds.
async fn hub_with(config: StateManagerConfig) -> (ToolHub, SweptStore, TestClock) {
    let (sweeps, panics) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, planted) = (sweeps.clone(), panics.clone());
    let store = ObservedStore::new(move |used| {
        if matches!(used, StoreUse::Sweep) {
            assert!(!planted.swap(false, Ordering::Relaxed), "a bug in the store");
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (memory, clock) = (store.memory().clone(), TestClock::new());
    let hub = ToolHub::builder().store(store).clock(clock.clone()).state_manager(config);
    let store = SweptStore { memory, sweeps, panics };
    let hub = hub.build().await.unwrap();
    let ttl = Some(Duration::from_secs(10));
    hub.state().set_state(&Tenant::default(), &cart(), StateKind::Business, json!({"tea": 1}), ttl).await.unwrap();
    (hub, store, clock)
}

fn cart() -> ContextId {
    "t1/cart".parse().unwrap()
}

/// Lets this much time pass, and all due tasks run.
async fn advance(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_leaves_the_store_as_often_as_the_owner_says() {
    let every = Duration::from_secs(60);
    let config = StateManagerConfig { cleanup_interval: every, ..StateManagerConfig::default() };
    let (hub, store, clock) = hub_with(config).await;
    let noon = clock.now();
    advance(Duration::from_secs(59)).await;
    assert_eq!(
        (store.sweeps(), store.count_rows(noon).await),
        (0, 3),
        "the state, its snapshot and its entry still exist"
    );
    advance(Duration::from_secs(2)).await;
    assert_eq!((store.sweeps(), store.count_rows(noon).await), (1, 0));
    advance(10 * every).await;
    assert_eq!(store.sweeps(), 11);
    drop(hub);
    advance(10 * every).await;
    assert_eq!(store.sweeps(), 11, "it ends with the hub");
}

#[tokio::test(start_paused = true)]
async fn the_store_is_cleaned_every_five_minutes_by_default() {
    let (_hub, store, clock) = hub_with(StateManagerConfig::default()).await;
    advance(Duration::from_secs(299)).await;
    assert_eq!(store.sweeps(), 0);
    advance(Duration::from_secs(2)).await;
    assert_eq!((store.sweeps(), store.count_rows(clock.now() - Duration::from_secs(300)).await), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn without_auto_cleanup_nothing_is_removed_and_nobody_sees_what_has_expired() {
    let config = StateManagerConfig { auto_cleanup: false, ..StateManagerConfig::default() };
    let (hub, store, clock) = hub_with(config).await;
    let noon = clock.now();
    advance(Duration::from_secs(24 * 3600)).await;
    assert_eq!((store.sweeps(), store.count_rows(noon).await), (0, 3));
    let state = hub.state().get_state(&Tenant::default(), &cart(), StateKind::Business).await.unwrap();
    assert_eq!(state, None);
}

#[tokio::test(start_paused = true)]
async fn more_than_is_removed_at_a_time_goes_in_one_cleaning() {
    let config = StateManagerConfig { cleanup_interval: Duration::from_secs(60), ..StateManagerConfig::default() };
    let (hub, store, clock) = hub_with(config).await;
    let (noon, ttl) = (clock.now(), Some(Duration::from_secs(10)));
    for n in 0..1_500 {
        let cart = format!("t{n}/cart").parse().unwrap();
        hub.state().set_state(&Tenant::default(), &cart, StateKind::Cache, json!({}), ttl).await.unwrap();
    }
    advance(Duration::from_secs(61)).await;
    assert_eq!((store.sweeps(), store.count_rows(noon).await), (2, 0), "a thousand at a time, until nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_background_task_that_panics_is_started_again() {
    let config = StateManagerConfig { cleanup_interval: Duration::from_secs(60), ..StateManagerConfig::default() };
    let (_hub, store, clock) = hub_with(config).await;
    store.panics.store(true, Ordering::Relaxed);
    advance(Duration::from_secs(61)).await;
    assert_eq!((store.sweeps(), store.panics.load(Ordering::Relaxed)), (0, false), "the first one panicked");
    advance(Duration::from_secs(62)).await;
    assert_eq!((store.sweeps(), store.count_rows(clock.now()).await), (1, 0), "the next one did its work");
}

#[tokio::test]
async fn an_interval_of_no_time_is_refused_when_the_hub_is_built() {
    let config = StateManagerConfig { cleanup_interval: Duration::ZERO, ..StateManagerConfig::default() };
    let refused = ToolHub::builder().state_manager(config).build().await.unwrap_err().to_string();
    assert!(refused.contains("cleanup_interval") && refused.contains("at least a millisecond"), "{refused}");
}
