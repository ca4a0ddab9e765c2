//! State across hubs, stores and restarts: concurrent writes, export and import, failures.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use toolhub::{
    BusinessStateConfig, ConflictResolution, ContextId, StateChange, StateError,
    StateKind::{Business, Cache, Connection, Session},
    backend::{Backend, Batch, Change, Durability, Expect, Memory, Partition, Scan, Scope, Table, Write},
    clock::Timestamp,
    prelude::*,
    testing::AssertOutcome,
};

use crate::{
    faulty_store::FaultyStore,
    shop_tools::shop_hub,
    state_manager::{assert_kind, cart, data, default_manager, default_tenant, hub_on, manager_with_clock},
};

#[tokio::test]
async fn after_a_restart_no_connection_claims_to_be_active() {
    let store = Arc::new(Memory::new());
    let state = hub_on(store.clone(), BusinessStateConfig::default()).await.state();
    let active = json!({"active": true, "errorCount": 0, "host": "db"});
    assert_eq!(state.set_state(&default_tenant(), &cart(), Connection, active, None).await, Ok(1));
    let patch = json!({"errorCount": 1, "lastError": "reset"});
    assert_eq!(state.update_state(&default_tenant(), &cart(), Connection, patch).await, Ok(2));
    let known: toolhub::ConnectionState = serde_json::from_value(data(&state, Connection).await.unwrap()).unwrap();
    assert_eq!((known.active, known.error_count, known.last_error.as_deref()), (true, 1, Some("reset")));
    assert_kind(
        state.update_state(&default_tenant(), &cart(), Connection, json!({"active": 7})).await,
        ErrorKind::ArgumentsInvalid,
    );
    assert!(state.get_context_info(&default_tenant(), &cart()).await.unwrap().unwrap().kinds.contains_key(&Connection));
    // It is not in the store, so another node and a later process see nothing.
    for table in Table::ALL.into_iter().filter(|table| !matches!(table, Table::Nodes | Table::Events)) {
        let page = store.scan(Scan::new(table, Scope::All), Timestamp::from_millis(0)).await.unwrap();
        assert!(page.rows.is_empty(), "{table}");
    }
    let later = hub_on(store, BusinessStateConfig::default()).await.state();
    assert_eq!(data(&later, Connection).await, None);
    assert_eq!(state.delete_state(&default_tenant(), &cart(), Connection).await, Ok(true));
    assert_eq!(data(&state, Connection).await, None);
}

#[tokio::test]
async fn a_watcher_hears_of_its_own_context_only_and_from_every_hub() {
    let store = Arc::new(Memory::new());
    let one = hub_on(store.clone(), BusinessStateConfig::default()).await.state();
    let two = hub_on(store, BusinessStateConfig::default()).await.state();
    let mut changes = one.watch(&default_tenant(), &cart());
    two.set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    two.set_state(&Tenant::new("other").unwrap(), &cart(), Business, json!({}), None).await.unwrap();
    two.set_state(&default_tenant(), &"t1/cart2".parse().unwrap(), Business, json!({}), None).await.unwrap();
    one.set_state(&default_tenant(), &cart(), Session, json!({}), None).await.unwrap();
    two.delete_state(&default_tenant(), &cart(), Business).await.unwrap();
    let expected = [
        StateChange::Written { kind: Business, version: 1 },
        StateChange::Written { kind: Session, version: 1 },
        StateChange::Deleted { kind: Business },
    ];
    for change in expected {
        assert_eq!(changes.next().now_or_never(), Some(Some(change)));
    }
    assert_eq!(changes.next().now_or_never(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_hubs_increments_by_compare_and_set_are_exact() {
    const TASKS: usize = 64;
    const INCREMENTS_PER_TASK: u64 = 200;
    let store = Arc::new(Memory::new());
    let config = || BusinessStateConfig { max_history_size: 16, ..Default::default() };
    let hubs = [hub_on(store.clone(), config()).await.state(), hub_on(store, config()).await.state()];
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let state = hubs[task % 2].clone();
            tokio::spawn(async move {
                let mut versions = Vec::new();
                while versions.len() < INCREMENTS_PER_TASK as usize {
                    let entry = state.get_state(&default_tenant(), &cart(), Business).await.unwrap();
                    let (count, version) =
                        entry.map_or((0, 0), |entry| (entry.data["count"].as_u64().unwrap(), entry.version));
                    match state
                        .compare_and_set(&default_tenant(), &cart(), Business, json!({"count": count + 1}), version)
                        .await
                    {
                        Ok(version) => versions.push(version),
                        Err(StateError::Conflict { .. }) => tokio::task::yield_now().await,
                        Err(other) => panic!("{other}"),
                    }
                }
                versions
            })
        })
        .collect();
    let mut versions = Vec::new();
    for task in tasks {
        versions.extend(task.await.unwrap());
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=TASKS as u64 * INCREMENTS_PER_TASK).collect::<Vec<_>>());
    assert_eq!(data(&hubs[0], Business).await, Some(json!({"count": TASKS as u64 * INCREMENTS_PER_TASK})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_update_that_succeeds_has_a_version_of_its_own_and_none_is_lost() {
    let store = Arc::new(FaultyStore::default());
    let hubs = [
        hub_on(store.clone(), BusinessStateConfig::default()).await.state(),
        hub_on(store, BusinessStateConfig::default()).await.state(),
    ];
    hubs[0].set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let state = hubs[task % 2].clone();
            tokio::spawn(async move {
                let mut versions = Vec::new();
                for n in 0..20 {
                    let patch = json!({format!("{task}-{n}"): true});
                    versions.push(state.update_state(&default_tenant(), &cart(), Business, patch).await.unwrap());
                }
                versions
            })
        })
        .collect();
    let mut versions = Vec::new();
    for task in tasks {
        versions.extend(task.await.unwrap());
    }
    versions.sort_unstable();
    assert_eq!(versions, (2..=321).collect::<Vec<_>>());
    assert_eq!(data(&hubs[0], Business).await.unwrap().as_object().unwrap().len(), 320);
}

#[tokio::test]
async fn with_reject_a_write_that_came_second_is_told_so() {
    let store = Arc::new(FaultyStore::default());
    let config = BusinessStateConfig { conflict_resolution: Some(ConflictResolution::Reject), ..Default::default() };
    let state = hub_on(store, config).await.state();
    state.set_state(&default_tenant(), &cart(), Business, json!({"n": 0}), None).await.unwrap();
    // The store pauses between reading and writing, so both have read before one writes.
    let (tenant, context) = (default_tenant(), cart());
    let set = state.set_state(&tenant, &context, Business, json!({"n": 1}), None);
    let update = state.update_state(&tenant, &context, Business, json!({"m": 1}));
    let (set, update) = futures_util::join!(set, update);
    assert_eq!([&set, &update].iter().filter(|result| **result == &Ok(2)).count(), 1);
    assert_kind(if set.is_ok() { update } else { set }, ErrorKind::StateConflict);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_or_hangs_is_told_as_such_and_nothing_is_half_done() {
    let store = Arc::new(FaultyStore::default());
    let state = hub_on(store.clone(), BusinessStateConfig::default()).await.state();
    state.set_state(&default_tenant(), &cart(), Business, json!({"n": 1}), None).await.unwrap();
    let saved = state.export(&default_tenant(), None).await.unwrap();
    for trouble in [&store.unavailable, &store.hangs] {
        trouble.store(true, Ordering::Release);
        let set = state.set_state(&default_tenant(), &cart(), Business, json!({"n": 2}), None).await;
        assert_kind(set, ErrorKind::StoreUnavailable);
        assert_kind(state.get_state(&default_tenant(), &cart(), Business).await, ErrorKind::StoreUnavailable);
        assert_kind(state.rollback(&default_tenant(), &cart(), 1).await, ErrorKind::StoreUnavailable);
        assert_kind(state.import(&default_tenant(), &saved).await, ErrorKind::StoreUnavailable);
        assert_kind(state.cleanup_context(&default_tenant(), &cart()).await, ErrorKind::StoreUnavailable);
        trouble.store(false, Ordering::Release);
    }
    assert_eq!(data(&state, Business).await, Some(json!({"n": 1})));
    assert_eq!(state.history(&default_tenant(), &cart(), 9).await.unwrap().len(), 1);
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_there_whole_and_its_version_is_not_given_again() {
    let store = Arc::new(FaultyStore::default());
    let state = hub_on(store.clone(), BusinessStateConfig::default()).await.state();
    state.set_state(&default_tenant(), &cart(), Business, json!({"n": 1}), None).await.unwrap();
    store.loses_acks.store(true, Ordering::Release);
    let lost = state.update_state(&default_tenant(), &cart(), Business, json!({"n": 2})).await;
    assert_kind(lost, ErrorKind::StoreUnavailable);
    store.loses_acks.store(false, Ordering::Release);
    assert_eq!(data(&state, Business).await, Some(json!({"n": 2})));
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap().len(), 2);
    assert_eq!(state.history(&default_tenant(), &cart(), 9).await.unwrap().len(), 2);
    assert_eq!(state.update_state(&default_tenant(), &cart(), Business, json!({"m": 1})).await, Ok(3));
}

#[tokio::test]
async fn what_a_typed_tool_remembers_is_seen_and_changed_in_the_same_place() {
    let hub = shop_hub().await;
    hub.call("add_to_cart", json!({"sku": "tea", "qty": 1})).thread("t1").await.assert_success();
    let state = hub.state();
    assert_eq!(data(&state, Business).await, Some(json!({"lines": [["tea", 1]]})));
    assert_eq!(state.set_state(&default_tenant(), &cart(), Business, json!({"lines": []}), None).await, Ok(2));
    assert_eq!(hub.call("show_cart", json!({})).thread("t1").await.assert_success(), &json!([]));
}

#[tokio::test]
async fn the_layout_of_a_typed_state_is_kept_and_what_is_no_object_is_not_patched() {
    let store = Arc::new(Memory::new());
    let put = async |id: &str, value: &str| {
        let partition = Partition::for_thread(default_tenant(), ThreadId::new("t1").unwrap());
        let write = Write {
            table: Table::State,
            id: id.into(),
            expect: Expect::Any,
            change: Change::Put { value: value.as_bytes().into(), schema: 7, expires: None },
            durability: Durability::KillSafe,
        };
        store.commit(Batch::new(partition).with(write), Timestamp::from_millis(0)).await.unwrap();
    };
    put("cart/business", r#"{"n":1}"#).await;
    put("count/business", "5").await;
    put("broken/business", "{").await;
    let state = hub_on(store.clone(), BusinessStateConfig::default()).await.state();
    state.update_state(&default_tenant(), &cart(), Business, json!({"n": 2})).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Business, json!({"n": 3}), None).await.unwrap();
    let keys = store.scan(Scan::new(Table::State, Scope::All).prefix("cart/"), Timestamp::from_millis(0)).await;
    assert_eq!(keys.unwrap().rows[0].1.schema, 7);
    let context = |text: &str| text.parse::<ContextId>().unwrap();
    let count = state.get_state(&default_tenant(), &context("t1/count"), Business).await.unwrap().unwrap();
    assert_eq!(count.data, json!(5));
    let patched = state.update_state(&default_tenant(), &context("t1/count"), Business, json!({"a": 1})).await;
    assert_kind(patched, ErrorKind::ArgumentsInvalid);
    let broken = state.get_state(&default_tenant(), &context("t1/broken"), Business).await;
    assert_kind(broken, ErrorKind::StateUnreadable);
}

#[tokio::test(start_paused = true)]
async fn an_export_is_taken_in_elsewhere_with_versions_and_history() {
    let (state, clock) = manager_with_clock().await;
    let minute = Some(Duration::from_secs(60));
    for n in 1..=12 {
        state.set_state(&default_tenant(), &cart(), Business, json!({"n": n, "f": 0.1}), None).await.unwrap();
    }
    state.set_state(&default_tenant(), &cart(), Session, json!({"calls": 3}), None).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Cache, json!({"gone": 1}), minute).await.unwrap();
    let short: ContextId = "t2/short".parse().unwrap();
    state.set_state(&default_tenant(), &short, Business, json!({"n": 1}), minute).await.unwrap();
    let text = state.export(&default_tenant(), None).await.unwrap();
    assert_eq!(text.lines().count(), 2);
    assert_eq!(state.export(&default_tenant(), Some(&ThreadId::new("t2").unwrap())).await.unwrap().lines().count(), 1);

    clock.advance(Duration::from_secs(60)).await;
    let hub = ToolHub::builder().clock(clock.clone()).build().await.unwrap();
    let (target, other) = (hub.state(), Tenant::new("other").unwrap());
    // Expired entries are not imported, and neither is their history, which lived as long.
    assert_eq!(target.import(&other, &text).await, Ok(1));
    let entry = target.get_state(&other, &cart(), Business).await.unwrap().unwrap();
    assert_eq!((entry.version, entry.data), (12, json!({"n": 12, "f": 0.1})));
    let session = target.get_state(&other, &cart(), Session).await.unwrap().unwrap();
    assert_eq!(session.data, json!({"calls": 3}));
    assert_eq!(target.get_state(&other, &cart(), Cache).await.unwrap(), None);
    let numbers = |versions: Vec<toolhub::StateVersion>| versions.iter().map(|it| it.version).collect::<Vec<_>>();
    assert_eq!(numbers(target.versions(&other, &cart()).await.unwrap()), (3..=12).collect::<Vec<_>>());
    assert_eq!(
        target.history(&other, &cart(), 99).await.unwrap(),
        state.history(&default_tenant(), &cart(), 99).await.unwrap()
    );
    assert_eq!(target.rollback(&other, &cart(), 5).await, Ok(13));
    // Importing over existing state never reuses a version.
    assert_eq!(target.import(&other, &text).await, Ok(1));
    let entry = target.get_state(&other, &cart(), Business).await.unwrap().unwrap();
    assert_eq!((entry.version, &entry.data["n"]), (14, &json!(12)));
    assert_eq!(numbers(target.versions(&other, &cart()).await.unwrap()), [5, 6, 7, 8, 9, 10, 11, 12, 14]);
    assert_eq!(target.history(&other, &cart(), 99).await.unwrap().len(), 12);
}

#[tokio::test]
async fn a_damaged_line_is_named_and_nothing_is_taken_in() {
    let state = default_manager().await;
    for context in ["t1/cart", "t2/cart", "t3/cart"] {
        state.set_state(&default_tenant(), &context.parse().unwrap(), Business, json!({"n": 1}), None).await.unwrap();
    }
    let text = state.export(&default_tenant(), None).await.unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (one, two, three) = (lines[0], lines[1], lines[2]);
    let changed = two.replace("\"n\":1", "\"n\":2");
    let unknown = r#"{"context":"t2/cart","more":1}"#;
    let no_context = r#"{"context":"t2","business":{"version":1,"schema":1,"data":{}}}"#;
    let no_version = r#"{"context":"t2/cart","business":{"version":0,"schema":1,"data":{}}}"#;
    let beyond = r#"{"context":"t2/cart","versions":[{"version":1,"schema":1,"data":{}}]}"#;
    let half = &two[..two.len() / 2];
    for damaged in [changed.as_str(), unknown, no_context, no_version, beyond, half, "null", one] {
        let target = default_manager().await;
        let refused = target.import(&default_tenant(), &format!("{one}\n\n{damaged}\n{three}\n")).await;
        assert!(matches!(refused, Err(StateError::InvalidLine { line: 3, .. })), "{refused:?} for {damaged}");
        assert_eq!(target.stats(&default_tenant()).await.unwrap().contexts, 0);
    }
    let by_hand = r#"{"context":"t2/cart","business":{"version":4,"schema":1,"data":{"n":9}}}"#;
    assert_eq!(state.import(&default_tenant(), by_hand).await, Ok(1));
    let entry = state.get_state(&default_tenant(), &"t2/cart".parse().unwrap(), Business).await.unwrap().unwrap();
    assert_eq!((entry.version, entry.data), (4, json!({"n": 9})));
}
