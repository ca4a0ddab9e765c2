//! State through the public API: every operation of the manager.

use std::{sync::Arc, time::Duration};

use toolhub::{
    BusinessStateConfig, ContextFilter, ContextId, HistoryEvent, ManagerType, StateError, StateKind, StateManager,
    StateManagerConfig,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::{Clock, Timestamp},
    ids::StateName,
    prelude::*,
    testing::TestClock,
};

use StateKind::{Business, Cache, Connection, Session};

pub(crate) fn default_tenant() -> Tenant {
    Tenant::default()
}

pub(crate) fn cart() -> ContextId {
    "t1/cart".parse().unwrap()
}

pub(crate) async fn hub_on(store: Arc<dyn Backend>, config: BusinessStateConfig) -> ToolHub {
    ToolHub::builder().shared_store(store).business_state(config).build().await.unwrap()
}

async fn manager_with(config: BusinessStateConfig) -> StateManager {
    hub_on(Arc::new(Memory::new()), config).await.state()
}

pub(crate) async fn default_manager() -> StateManager {
    manager_with(BusinessStateConfig::default()).await
}

/// A manager with a stopped clock.
pub(crate) async fn manager_with_clock() -> (StateManager, TestClock) {
    let clock = TestClock::new();
    let hub = ToolHub::builder().clock(clock.clone()).build().await.unwrap();
    (hub.state(), clock)
}

pub(crate) async fn data(state: &StateManager, kind: StateKind) -> Option<Value> {
    state.get_state(&default_tenant(), &cart(), kind).await.unwrap().map(|entry| entry.data)
}

#[track_caller]
pub(crate) fn assert_kind<T: std::fmt::Debug>(got: Result<T, StateError>, kind: ErrorKind) {
    assert_eq!(CallError::from(got.unwrap_err()).kind, kind);
}

#[tokio::test]
async fn a_context_is_made_once_and_always_found_again() {
    let state = default_manager().await;
    let (name, thread) = (StateName::new("cart").unwrap(), ThreadId::new("t1").unwrap());
    let created = state.create_context(&default_tenant(), &name, &thread).await.unwrap();
    assert_eq!(created.to_string(), "t1/cart");
    state.update_state(&default_tenant(), &created, Session, json!({"calls": 3})).await.unwrap();
    assert_eq!(state.create_context(&default_tenant(), &name, &thread).await.unwrap(), created);
    let session = state.get_state(&default_tenant(), &created, Session).await.unwrap().unwrap();
    assert_eq!((session.version, &session.data["calls"]), (2, &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn set_replaces_and_update_merges_and_each_is_a_version() {
    let (state, clock) = manager_with_clock().await;
    let created = clock.now();
    assert_eq!(state.set_state(&default_tenant(), &cart(), Business, json!({"tea": 1, "cake": 2}), None).await, Ok(1));
    clock.advance(Duration::from_secs(5)).await;
    let patch = json!({"tea": null, "cake": 3, "box": {"size": 1}});
    assert_eq!(state.update_state(&default_tenant(), &cart(), Business, patch).await, Ok(2));
    let entry = state.get_state(&default_tenant(), &cart(), Business).await.unwrap().unwrap();
    let tag = entry.tag.expect("a business state has a tag").to_string();
    assert_eq!(
        serde_json::to_value(&entry).unwrap(),
        json!({
            "etag": tag, "stateId": "t1/cart/business", "contextId": "t1/cart", "kind": "business", "version": 2,
            "data": {"cake": 3, "box": {"size": 1}}, "createdAt": created, "updatedAt": created + Duration::from_secs(5),
        })
    );
    assert_eq!(state.set_state(&default_tenant(), &cart(), Business, json!({"only": true}), None).await, Ok(3));
    assert_eq!(data(&state, Business).await, Some(json!({"only": true})));
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_gone_at_once_for_every_reader() {
    let (state, clock) = manager_with_clock().await;
    let second = Some(Duration::from_secs(1));
    state.set_state(&default_tenant(), &cart(), Business, json!({"a": 1}), None).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Business, json!({"a": 2}), second).await.unwrap();
    clock.advance(Duration::from_millis(999)).await;
    // The remaining time is kept, not restarted.
    assert_eq!(state.update_state(&default_tenant(), &cart(), Business, json!({"b": 1})).await, Ok(3));
    clock.advance(Duration::from_millis(1)).await;
    assert_eq!(data(&state, Business).await, None);
    assert_kind(state.update_state(&default_tenant(), &cart(), Business, json!({})).await, ErrorKind::StateNotFound);
    assert_kind(state.rollback(&default_tenant(), &cart(), 1).await, ErrorKind::StateNotFound);
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap(), []);
    assert_eq!(state.get_context_info(&default_tenant(), &cart()).await.unwrap(), None);
    assert_eq!(state.list_contexts(&default_tenant(), &ContextFilter::default(), None).await.unwrap().contexts, []);
    assert_eq!(state.stats(&default_tenant()).await.unwrap(), toolhub::StateStats::default());
    assert_eq!(state.delete_state(&default_tenant(), &cart(), Business).await, Ok(false));
    // A recreated state begins at 1, and has none of the old snapshots.
    assert_eq!(state.compare_and_set(&default_tenant(), &cart(), Business, json!({"new": 1}), 0).await, Ok(1));
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap().len(), 1);
    state.update_state(&default_tenant(), &cart(), Business, json!({"new": 2})).await.unwrap();
    assert_eq!(state.rollback(&default_tenant(), &cart(), 1).await, Ok(3));
    assert_eq!(data(&state, Business).await, Some(json!({"new": 1})));
}

#[tokio::test]
async fn compare_and_set_writes_only_over_the_expected_version() {
    let state = default_manager().await;
    assert_eq!(state.compare_and_set(&default_tenant(), &cart(), Business, json!({"n": 1}), 0).await, Ok(1));
    let refused = state.compare_and_set(&default_tenant(), &cart(), Business, json!({"n": 9}), 0).await;
    assert_eq!(refused, Err(StateError::Conflict { state: "t1/cart/business".into(), found: 1, expected: Some(0) }));
    assert_kind(refused, ErrorKind::StateConflict);
    assert_eq!(state.compare_and_set(&default_tenant(), &cart(), Business, json!({"n": 2}), 1).await, Ok(2));
    assert_kind(
        state.compare_and_set(&default_tenant(), &"t2/cart".parse().unwrap(), Business, json!({}), 1).await,
        ErrorKind::StateConflict,
    );
    assert_eq!(data(&state, Business).await, Some(json!({"n": 2})));
}

#[tokio::test]
async fn a_rollback_is_a_new_version_with_the_old_data() {
    let state = default_manager().await;
    for n in 1..=12 {
        assert_eq!(state.set_state(&default_tenant(), &cart(), Business, json!({"n": n}), None).await, Ok(n));
    }
    let versions: Vec<u64> =
        state.versions(&default_tenant(), &cart()).await.unwrap().iter().map(|old| old.version).collect();
    assert_eq!(versions, (3..=12).collect::<Vec<_>>());
    assert_eq!(state.rollback(&default_tenant(), &cart(), 4).await, Ok(13));
    assert_eq!(data(&state, Business).await, Some(json!({"n": 4})));
    for gone in [0, 3, 14] {
        assert_kind(state.rollback(&default_tenant(), &cart(), gone).await, ErrorKind::StateNotFound);
    }
}

#[tokio::test]
async fn without_versioning_numbers_stay_and_there_is_nothing_to_go_back_to() {
    let state = manager_with(BusinessStateConfig { versioning: false, ..Default::default() }).await;
    for n in 1..=3 {
        assert_eq!(state.set_state(&default_tenant(), &cart(), Business, json!({"n": n}), None).await, Ok(n));
    }
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap(), []);
    assert_kind(state.rollback(&default_tenant(), &cart(), 2).await, ErrorKind::ArgumentsInvalid);
}

#[tokio::test]
async fn what_is_no_object_or_too_large_is_refused_and_changes_nothing() {
    let state = manager_with(BusinessStateConfig { max_state_size: 100, ..Default::default() }).await;
    state.set_state(&default_tenant(), &cart(), Business, json!({"a": 1}), None).await.unwrap();
    let large = || json!({"b": "x".repeat(90)});
    for wrong in [json!([1]), json!(null), json!("text")] {
        assert_kind(
            state.set_state(&default_tenant(), &cart(), Business, wrong.clone(), None).await,
            ErrorKind::ArgumentsInvalid,
        );
        assert_kind(state.update_state(&default_tenant(), &cart(), Business, wrong).await, ErrorKind::ArgumentsInvalid);
    }
    assert_eq!(state.set_state(&default_tenant(), &"t2/cart".parse().unwrap(), Business, large(), None).await, Ok(1));
    // Each alone is small enough; together they are not.
    assert_kind(state.update_state(&default_tenant(), &cart(), Business, large()).await, ErrorKind::StateTooLarge);
    let entry = state.get_state(&default_tenant(), &cart(), Business).await.unwrap().unwrap();
    assert_eq!((entry.version, entry.data), (1, json!({"a": 1})));
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap().len(), 1);
    assert_eq!(state.history(&default_tenant(), &cart(), 100).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_may_lose_must_have_an_end_and_counts_no_versions() {
    let (state, clock) = manager_with_clock().await;
    let forever = state.set_state(&default_tenant(), &cart(), Cache, json!({"a": 1}), None).await;
    assert_kind(forever, ErrorKind::ArgumentsInvalid);
    let minute = Some(Duration::from_secs(60));
    assert_eq!(state.set_state(&default_tenant(), &cart(), Cache, json!({"a": 1}), minute).await, Ok(0));
    assert_eq!(state.update_state(&default_tenant(), &cart(), Cache, json!({"b": 1})).await, Ok(0));
    assert_kind(
        state.compare_and_set(&default_tenant(), &cart(), Cache, json!({}), 0).await,
        ErrorKind::ArgumentsInvalid,
    );
    assert_eq!(data(&state, Cache).await, Some(json!({"a": 1, "b": 1})));
    assert!(state.history(&default_tenant(), &cart(), 9).await.unwrap().is_empty());
    clock.advance(Duration::from_secs(60)).await;
    assert_eq!(data(&state, Cache).await, None);
}

#[tokio::test]
async fn tenants_with_the_same_thread_id_never_meet() {
    let state = default_manager().await;
    let other = Tenant::new("other").unwrap();
    for (tenant, n) in [(&default_tenant(), 1), (&other, 2)] {
        for kind in [Business, Connection, Session] {
            assert_eq!(state.set_state(tenant, &cart(), kind, json!({"n": n}), None).await, Ok(1));
        }
    }
    for kind in [Business, Connection, Session] {
        assert_eq!(data(&state, kind).await, Some(json!({"n": 1})));
    }
    assert_eq!(state.history(&default_tenant(), &cart(), 9).await.unwrap().len(), 1);
    assert_eq!(state.stats(&other).await.unwrap().contexts, 1);
    assert!(!state.export(&default_tenant(), None).await.unwrap().contains("\"n\":2"));
    state.cleanup_context(&default_tenant(), &cart()).await.unwrap();
    for kind in [Business, Connection, Session] {
        let theirs = state.get_state(&other, &cart(), kind).await.unwrap().unwrap();
        assert_eq!(theirs.data, json!({"n": 2}));
    }
}

#[tokio::test]
async fn threads_may_share_a_context_when_the_owner_says_so() {
    let config = StateManagerConfig { session_isolation: false, ..Default::default() };
    let hub = ToolHub::builder().state_manager(config).build().await.unwrap();
    let (state, name) = (hub.state(), StateName::new("prices").unwrap());
    let one = state.create_context(&default_tenant(), &name, &ThreadId::new("t1").unwrap()).await.unwrap();
    let two = state.create_context(&default_tenant(), &name, &ThreadId::new("t2").unwrap()).await.unwrap();
    assert_eq!((one.to_string().as_str(), &one), ("~/prices", &two));
    state.set_state(&default_tenant(), &one, Business, json!({"tea": 3}), None).await.unwrap();
    let info = state.get_context_info(&default_tenant(), &two).await.unwrap().unwrap();
    assert_eq!((info.thread, info.kinds.len()), (None, 2));
    assert_eq!(state.rollback(&default_tenant(), &one, 1).await, Ok(2));
    assert_eq!(
        state.list_contexts(&default_tenant(), &ContextFilter::default(), None).await.unwrap().contexts.len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn the_managers_own_time_to_live_is_the_default() {
    let clock = TestClock::new();
    let config = StateManagerConfig { ttl: Some(Duration::from_secs(10)), ..Default::default() };
    let hub = ToolHub::builder().clock(clock.clone()).state_manager(config).build().await.unwrap();
    let state = hub.state();
    state.set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Cache, json!({}), Some(Duration::from_secs(20))).await.unwrap();
    clock.advance(Duration::from_secs(10)).await;
    assert_eq!((data(&state, Business).await, data(&state, Cache).await), (None, Some(json!({}))));
    let never = state.set_state(&default_tenant(), &cart(), Business, json!({}), Some(Duration::ZERO)).await;
    assert_kind(never, ErrorKind::ArgumentsInvalid);
}

#[tokio::test]
async fn history_tells_what_happened_without_secrets_and_within_its_limit() {
    let state = manager_with(BusinessStateConfig { max_history_size: 4, ..Default::default() }).await;
    let parameters = json!({"city": "Ulm", "auth": {"Api_Key": "hush"}, "list": [{"accessToken": "hush"}]});
    state.add_history(&default_tenant(), &cart(), HistoryEvent::ExecutionStart { parameters }).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Business, json!({"password": "hush", "n": 1}), None).await.unwrap();
    state.update_state(&default_tenant(), &cart(), Business, json!({"n": 2})).await.unwrap();
    let end = HistoryEvent::ExecutionSuccess { result_type: "object".into() };
    state.add_history(&default_tenant(), &cart(), end.clone()).await.unwrap();
    let history = serde_json::to_value(state.history(&default_tenant(), &cart(), 100).await.unwrap()).unwrap();
    assert!(!history.to_string().contains("hush"), "{history}");
    assert_eq!(history[0]["type"], "execution_start");
    assert_eq!(history[0]["parameters"]["city"], "Ulm");
    assert_eq!((&history[1]["type"], &history[1]["version"]), (&json!("update"), &json!(1)));
    assert_eq!((&history[2]["updates"], &history[2]["version"]), (&json!({"n": 2}), &json!(2)));
    assert_eq!(history[3]["resultType"], "object");
    assert!(history[3]["timestamp"].is_string());
    // The state itself is not redacted.
    assert_eq!(data(&state, Business).await, Some(json!({"password": "hush", "n": 2})));
    for n in 0..20 {
        let error = HistoryEvent::ExecutionError { error: n.to_string(), error_type: "tool_error".into() };
        state.add_history(&default_tenant(), &cart(), error).await.unwrap();
    }
    let last = state.history(&default_tenant(), &cart(), 2).await.unwrap();
    let error = |n: &str| HistoryEvent::ExecutionError { error: n.into(), error_type: "tool_error".into() };
    assert_eq!(last.iter().map(|entry| &entry.event).collect::<Vec<_>>(), [&error("18"), &error("19")]);
    assert_eq!(state.history(&default_tenant(), &cart(), 100).await.unwrap().len(), 4);
}

#[tokio::test]
async fn old_entries_and_snapshots_do_not_pile_up_in_the_store() {
    let store = Arc::new(Memory::new());
    let config = BusinessStateConfig { max_history_size: 80, ..Default::default() };
    let state = hub_on(store.clone(), config).await.state();
    for n in 0..1_000 {
        state.set_state(&default_tenant(), &cart(), Business, json!({"n": n}), None).await.unwrap();
    }
    let count = async |table| {
        let scan = Scan::new(table, Scope::All).limit(10_000);
        store.scan(scan, Timestamp::from_millis(0)).await.unwrap().rows.len()
    };
    assert_eq!(count(Table::Versions).await, 10);
    // Trimmed at random: two hundred writes without any trimming are practically impossible.
    assert!((80..280).contains(&count(Table::History).await), "{}", count(Table::History).await);
}

#[tokio::test]
async fn deleting_takes_the_snapshots_along_and_cleaning_up_takes_everything() {
    let store = Arc::new(Memory::new());
    let state = hub_on(store.clone(), BusinessStateConfig::default()).await.state();
    let left = async || {
        let mut left = Vec::new();
        // The thread's own row stays.
        for table in
            Table::ALL.into_iter().filter(|table| !matches!(table, Table::Threads | Table::Nodes | Table::Events))
        {
            let scan = Scan::new(table, Scope::All).limit(10_000);
            let rows = store.scan(scan, Timestamp::from_millis(0)).await.unwrap().rows;
            left.extend(rows.into_iter().map(|(key, _)| key));
        }
        left
    };
    for _ in 0..300 {
        state.set_state(&default_tenant(), &cart(), Business, json!({"n": 1}), None).await.unwrap();
    }
    state.set_state(&default_tenant(), &cart(), Session, json!({}), None).await.unwrap();
    assert_eq!(state.delete_state(&default_tenant(), &cart(), Business).await, Ok(true));
    assert_eq!(state.delete_state(&default_tenant(), &cart(), Business).await, Ok(false));
    assert!(left().await.iter().all(|key| key.table != Table::Versions));
    assert_eq!(state.history(&default_tenant(), &cart(), 1_000).await.unwrap().len(), 300);
    assert_eq!(data(&state, Session).await, Some(json!({})));
    state.set_state(&default_tenant(), &cart(), Connection, json!({}), None).await.unwrap();
    state.set_state(&default_tenant(), &"t1/cart2".parse().unwrap(), Session, json!({}), None).await.unwrap();
    assert_eq!(state.cleanup_context(&default_tenant(), &cart()).await, Ok(true));
    assert_eq!(state.cleanup_context(&default_tenant(), &cart()).await, Ok(false));
    assert_eq!(data(&state, Connection).await, None);
    assert_eq!(left().await.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), ["cart2/session"]);
}

#[tokio::test]
async fn contexts_are_listed_once_each_page_by_page() {
    let state = default_manager().await;
    let mut all = Vec::new();
    for n in 0..30 {
        let context: ContextId = format!("t{}/{}", n % 7, ["cart", "cart2", "notes"][n % 3]).parse().unwrap();
        for (at, kind) in [Business, Session, Cache].into_iter().enumerate() {
            if n % (at + 2) == 0 {
                let ttl = Some(Duration::from_secs(60));
                state.set_state(&default_tenant(), &context, kind, json!({}), ttl).await.unwrap();
                all.push(context.clone());
            }
        }
    }
    all.sort();
    all.dedup();
    let check = async |filter: ContextFilter| {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = state.list_contexts(&default_tenant(), &filter, cursor.as_deref()).await.unwrap();
            found.extend(page.contexts.into_iter().map(|context| context.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        found.sort();
        let of_state = |id: &&ContextId| filter.tool_type.as_ref().is_none_or(|state| id.state() == state);
        let of_thread = |id: &&ContextId| filter.thread.is_none() || id.thread() == filter.thread.as_ref();
        let expected: Vec<ContextId> = all.iter().filter(of_state).filter(of_thread).cloned().collect();
        assert_eq!(found, expected, "{filter:?}");
    };
    let (state_name, thread) = (StateName::new("cart").ok(), ThreadId::new("t3").ok());
    for limit in [1, 4, 100] {
        for tool_type in [None, state_name.clone()] {
            for thread in [None, thread.clone()] {
                check(ContextFilter { tool_type: tool_type.clone(), thread, limit }).await;
            }
        }
    }
    let stats = state.stats(&default_tenant()).await.unwrap();
    assert_eq!(stats.contexts, all.len());
    assert!(stats.bytes >= 2 * all.len());
    let only = ContextFilter { tool_type: state_name, ..Default::default() };
    for wrong in ["", "t1", "t1/notes/business", "t1/cart", "t 1/cart/business", "t1/cart/x", "t1/cart/\u{10ffff}"] {
        assert_kind(state.list_contexts(&default_tenant(), &only, Some(wrong)).await, ErrorKind::ArgumentsInvalid);
    }
    let only = ContextFilter { thread, ..Default::default() };
    let beyond = state.list_contexts(&default_tenant(), &only, Some("t3/\u{10ffff}/business")).await;
    assert_kind(beyond, ErrorKind::ArgumentsInvalid);
}

#[tokio::test(start_paused = true)]
async fn a_context_tells_what_it_holds() {
    let (state, clock) = manager_with_clock().await;
    let noon = clock.now();
    state.set_state(&default_tenant(), &cart(), Business, json!({"a": 1}), None).await.unwrap();
    clock.advance(Duration::from_secs(1)).await;
    state.set_state(&default_tenant(), &cart(), Cache, json!({}), Some(Duration::from_secs(9))).await.unwrap();
    let info = state.get_context_info(&default_tenant(), &cart()).await.unwrap().unwrap();
    let later = noon + Duration::from_secs(1);
    let expected = json!({
        "id": "t1/cart", "toolType": "cart", "threadId": "t1", "createdAt": noon, "updatedAt": later,
        "kinds": {
            "business": {"version": 1, "bytes": 7},
            "cache": {"version": 0, "bytes": 2, "expiresAt": noon + Duration::from_secs(10)},
        },
    });
    assert_eq!(serde_json::to_value(info).unwrap(), expected);
}

#[test]
fn the_defaults_of_both_configs_are_as_documented() {
    let expected = json!({
        "max_history_size": 1000, "max_state_size": 1_048_576, "state_compression": false, "versioning": true,
        "max_versions": 10, "auto_save": true, "sync_interval": 60_000, "sync_on_change": true,
        "conflict_resolution": null, "backup_enabled": false, "backup_interval": 3_600_000,
        "backup_retention": 604_800_000,
    });
    assert_eq!(serde_json::to_value(BusinessStateConfig::default()).unwrap(), expected);
    let expected = json!({
        "manager_type": null, "ttl": null, "auto_cleanup": true, "cleanup_interval": 300_000,
        "persistence_path": "./state_storage", "persistence_format": "sqlite", "compression": false,
        "redis_url": null, "redis_prefix": "tool_state", "redis_db": 0, "session_isolation": true,
        "max_states_per_session": 10, "session_timeout": 3_600_000,
    });
    assert_eq!(serde_json::to_value(StateManagerConfig::default()).unwrap(), expected);
}

#[tokio::test]
async fn a_setting_that_nothing_can_honour_yet_is_refused_when_the_hub_is_built() {
    let business =
        BusinessStateConfig { sync_on_change: false, backup_enabled: true, ..BusinessStateConfig::default() };
    let manager = StateManagerConfig {
        redis_url: Some("redis://127.0.0.1".into()),
        redis_db: 3,
        ..StateManagerConfig::default()
    };
    let refused = ToolHub::builder().business_state(business).state_manager(manager).build().await.unwrap_err();
    let text = refused.to_string();
    for field in ["sync_on_change", "backup_enabled", "redis_url", "redis_db"] {
        assert!(text.contains(field), "{field} is missing in {text}");
    }
    let memory = StateManagerConfig { manager_type: Some(ManagerType::Memory), ..StateManagerConfig::default() };
    ToolHub::builder().state_manager(memory).build().await.unwrap();
}
