//! Sessions: the state of a thread's tools expires some time after its last use.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    ContextFilter, ContextId, HistoryEvent, HubBuilder, ManagerType, StateCleanup, StateError,
    StateKind::{Business, Cache, Connection, Session},
    StateManager, StateManagerConfig, StateStats,
    backend::{Backend, Memory, Partition, Scan, Scope, Table},
    clock::Clock,
    events::EventKind,
    legacy_stateful,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, TestClock},
};

use crate::{
    faulty_store::FaultyStore,
    state_manager::{assert_kind, cart, data, default_tenant},
};

const MINUTE: Duration = Duration::from_secs(60);

fn session_config() -> StateManagerConfig {
    StateManagerConfig { manager_type: Some(ManagerType::Session), ..Default::default() }
}

fn builder(store: Arc<dyn Backend>, clock: &TestClock) -> HubBuilder {
    ToolHub::builder().clock(clock.clone()).shared_store(store).state_manager(session_config())
}

async fn hub_on(store: Arc<dyn Backend>, clock: &TestClock) -> ToolHub {
    builder(store, clock).build().await.unwrap()
}

fn context(text: &str) -> ContextId {
    text.parse().unwrap()
}

/// How many rows of states, snapshots and history the store has for a thread, expired ones included.
async fn count_rows(store: &Memory, thread: &str, clock: &TestClock) -> usize {
    let partition = Partition::for_thread(default_tenant(), ThreadId::new(thread).unwrap());
    let mut found = 0;
    for table in [Table::State, Table::Versions, Table::History] {
        let scan = Scan::new(table, Scope::Partition(partition.clone())).limit(10_000);
        found += store.scan(scan, clock.now()).await.unwrap().rows.len();
    }
    found
}

/// A cart with all kinds of state, and a history.
async fn fill_cart(state: &StateManager) {
    state.set_state(&default_tenant(), &cart(), Business, json!({"tea": 1}), None).await.unwrap();
    state.update_state(&default_tenant(), &cart(), Business, json!({"cake": 2})).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Session, json!({"calls": 7}), None).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Cache, json!({"price": 3}), Some(600 * MINUTE)).await.unwrap();
    state.set_state(&default_tenant(), &cart(), Connection, json!({"active": true}), None).await.unwrap();
}

async fn assert_no_state(state: &StateManager) {
    for kind in [Business, Session, Cache, Connection] {
        assert_eq!(data(state, kind).await, None, "{kind}");
    }
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap(), []);
    assert_eq!(state.history(&default_tenant(), &cart(), 99).await.unwrap(), []);
    assert_eq!(state.get_context_info(&default_tenant(), &cart()).await.unwrap(), None);
    assert_eq!(state.list_contexts(&default_tenant(), &ContextFilter::default(), None).await.unwrap().contexts, []);
    assert_eq!(state.stats(&default_tenant()).await.unwrap(), StateStats::default());
    assert_eq!(state.export(&default_tenant(), None).await.unwrap(), "");
    assert_kind(state.update_state(&default_tenant(), &cart(), Business, json!({})).await, ErrorKind::StateNotFound);
    assert_kind(state.update_state(&default_tenant(), &cart(), Connection, json!({})).await, ErrorKind::StateNotFound);
    assert_kind(state.rollback(&default_tenant(), &cart(), 1).await, ErrorKind::StateNotFound);
    assert_eq!(state.delete_state(&default_tenant(), &cart(), Business).await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_uses_is_gone_at_once_for_every_reader_and_the_next_one_begins_anew() {
    let (clock, store) = (TestClock::new(), Arc::new(Memory::new()));
    let hubs = [hub_on(store.clone(), &clock).await, hub_on(store.clone(), &clock).await];
    let [one, two] = [hubs[0].state(), hubs[1].state()];
    fill_cart(&one).await;
    // The wall clock jumps, so that no cleanup could run in between.
    clock.jump(3_599_999);
    assert_eq!(two.get_context_info(&default_tenant(), &cart()).await.unwrap().unwrap().kinds.len(), 3);
    clock.jump(1);
    assert_no_state(&one).await;
    assert_no_state(&two).await;
    assert!(count_rows(&store, "t1", &clock).await > 3, "it has expired although no cleanup ran");

    assert_eq!(two.set_state(&default_tenant(), &cart(), Business, json!({"pie": 1}), None).await, Ok(1));
    for state in [&one, &two] {
        assert_eq!(data(state, Business).await, Some(json!({"pie": 1})));
        for kind in [Session, Cache, Connection] {
            assert_eq!(data(state, kind).await, None, "{kind} belongs to the previous session");
        }
        assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap().len(), 1);
        assert_eq!(state.history(&default_tenant(), &cart(), 99).await.unwrap().len(), 1);
    }
    assert_eq!(one.delete_state(&default_tenant(), &cart(), Connection).await, Ok(false));
    fill_cart(&one).await;
    clock.jump(3_600_000);
    assert_eq!(one.cleanup_context(&default_tenant(), &cart()).await, Ok(false));
    assert_eq!(one.set_state(&default_tenant(), &cart(), Connection, json!({"active": false}), None).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn whatever_touches_a_state_of_the_thread_keeps_the_whole_session() {
    let (clock, store) = (TestClock::new(), Arc::new(Memory::new()));
    let hubs = [hub_on(store.clone(), &clock).await, hub_on(store, &clock).await];
    let [one, two] = [hubs[0].state(), hubs[1].state()];
    fill_cart(&one).await;
    let notes = context("t1/notes");
    for round in 0..8 {
        clock.jump(3_599_999);
        let (tenant, state) = (default_tenant(), if round % 2 == 0 { &one } else { &two });
        match round {
            0 => drop(state.get_state(&tenant, &cart(), Session).await.unwrap().unwrap()),
            1 => drop(state.set_state(&tenant, &notes, Business, json!({}), None).await.unwrap()),
            2 => drop(state.get_state(&tenant, &notes, Cache).await.unwrap()),
            3 => drop(state.history(&tenant, &notes, 1).await.unwrap()),
            4 => drop(state.versions(&tenant, &notes).await.unwrap()),
            5 => drop(state.delete_state(&tenant, &notes, Business).await.unwrap()),
            6 => drop(state.get_state(&tenant, &notes, Connection).await.unwrap()),
            _ => {
                let name = StateName::new("cart").unwrap();
                state.create_context(&tenant, &name, &ThreadId::new("t1").unwrap()).await.unwrap();
            }
        }
    }
    assert_eq!(data(&two, Business).await, Some(json!({"tea": 1, "cake": 2})));
    assert_eq!(data(&one, Connection).await, Some(json!({"active": true})));
    // Maintenance does not count as use: counting and exporting must not keep all sessions alive.
    clock.jump(3_599_999);
    one.stats(&default_tenant()).await.unwrap();
    one.get_context_info(&default_tenant(), &cart()).await.unwrap().unwrap();
    assert_eq!(one.export(&default_tenant(), None).await.unwrap().lines().count(), 2);
    clock.jump(1);
    assert_no_state(&one).await;
}

#[tokio::test(start_paused = true)]
async fn one_state_more_than_a_session_may_have_is_refused_and_changes_nothing() {
    let (clock, store) = (TestClock::new(), Arc::new(Memory::new()));
    let config = StateManagerConfig { max_states_per_session: 3, ..session_config() };
    let hub = builder(store.clone(), &clock).state_manager(config).build().await.unwrap();
    let state = hub.state();
    let set = async |text: &str, kind| {
        state.set_state(&default_tenant(), &context(text), kind, json!({}), Some(MINUTE)).await
    };
    for name in ["t1/a", "t1/b", "t1/c"] {
        set(name, Business).await.unwrap();
    }
    let before = count_rows(&store, "t1", &clock).await;
    let refused = set("t1/d", Business).await;
    assert_eq!(refused, Err(StateError::Limit { limit: 3 }));
    assert_kind(refused, ErrorKind::StateLimit);
    assert_kind(set("t1/d", Cache).await, ErrorKind::StateLimit);
    let (name, thread) = (StateName::new("d").unwrap(), ThreadId::new("t1").unwrap());
    assert_kind(state.create_context(&default_tenant(), &name, &thread).await, ErrorKind::StateLimit);
    let line = r#"{"context":"t1/d","business":{"version":1,"schema":1,"data":{}}}"#;
    assert_kind(state.import(&default_tenant(), line).await, ErrorKind::StateLimit);
    assert_eq!(count_rows(&store, "t1", &clock).await, before);
    // Existing states may grow; and another thread has its own session.
    set("t1/a", Cache).await.unwrap();
    set("t1/b", Business).await.unwrap();
    set("t2/d", Business).await.unwrap();
    // Deleted and expired states free their place.
    state.cleanup_context(&default_tenant(), &context("t1/c")).await.unwrap();
    set("t1/d", Business).await.unwrap();
    assert_kind(set("t1/e", Business).await, ErrorKind::StateLimit);
    clock.jump(60_000);
    set("t1/e", Business).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_write_at_once_a_session_never_has_more_states_than_it_may() {
    let store = Arc::new(FaultyStore::default());
    let hub = || ToolHub::builder().shared_store(store.clone()).state_manager(session_config()).build();
    let hubs = [hub().await.unwrap().state(), hub().await.unwrap().state()];
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let state = hubs[n % 2].clone();
            let context = context(&format!("t1/state{}", n % 20));
            tokio::spawn(
                async move { state.set_state(&default_tenant(), &context, Business, json!({"n": n}), None).await },
            )
        })
        .collect();
    let (mut written, mut refused) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => written += 1,
            Err(StateError::Limit { limit: 10 }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(hubs[0].stats(&default_tenant()).await.unwrap().contexts, 10);
    assert_eq!((written, refused), (20, 20));
}

#[tokio::test(start_paused = true)]
async fn while_sessions_end_and_begin_under_their_hands_nobody_fails_and_nothing_old_is_seen() {
    const TASKS: u64 = 12;
    let (clock, store) = (TestClock::new(), Arc::new(FaultyStore::default()));
    let hubs = [hub_on(store.clone(), &clock).await, hub_on(store.clone(), &clock).await];
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (state, clock) = (hubs[task as usize % 2].state(), clock.clone());
            tokio::spawn(async move {
                for step in 0..120_u64 {
                    let at = context(["t1/a", "t1/b", "t1/c"][(step % 3) as usize]);
                    let (tenant, now) = (default_tenant(), clock.now());
                    let done = match (step * 7 + task * 5) % 11 {
                        0 | 1 => state.set_state(&tenant, &at, Business, json!({"at": now}), None).await.map(drop),
                        2 => state.update_state(&tenant, &at, Business, json!({"at": now})).await.map(drop),
                        3 => state.set_state(&tenant, &at, Cache, json!({"at": now}), Some(MINUTE)).await.map(drop),
                        4 => state.add_history(&tenant, &at, HistoryEvent::Note { what: json!(now) }).await,
                        5 => state.set_state(&tenant, &at, Connection, json!({"at": now}), None).await.map(drop),
                        6 => state.delete_state(&tenant, &at, Business).await.map(drop),
                        7 => state.versions(&tenant, &at).await.map(drop),
                        8 => state.export(&tenant, None).await.map(drop),
                        9 if task == 0 => {
                            clock.jump(3_600_000);
                            Ok(())
                        }
                        _ => state.get_state(&tenant, &at, Business).await.map(|entry| {
                            // A call that read the clock just before it was advanced writes an hour too early.
                            let old = entry.filter(|entry| entry.created + 120 * MINUTE <= entry.updated);
                            assert_eq!(old, None, "it belongs to another session");
                        }),
                    };
                    assert!(matches!(done, Ok(()) | Err(StateError::NotFound(_))), "step {step}: {done:?}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    clock.jump(3_600_000);
    assert_no_state(&hubs[0].state()).await;
    assert_eq!(hubs[1].state().set_state(&default_tenant(), &cart(), Business, json!({}), None).await, Ok(1));
    assert_eq!(hubs[0].state().stats(&default_tenant()).await.unwrap().contexts, 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_session_leaves_is_cleaned_up_and_other_records_of_the_thread_stay() {
    let (clock, store) = (TestClock::new(), Arc::new(Memory::new()));
    let hub = builder(store.clone(), &clock).tool(tool("add", crate::shop_tools::add)).build().await.unwrap();
    let call = hub.call("add", json!({"a": 1, "b": 2})).thread("t1").await;
    call.assert_success();
    let state = hub.state();
    for n in 0..150 {
        state.set_state(&default_tenant(), &cart(), Business, json!({"n": n}), None).await.unwrap();
    }
    state
        .add_history(&default_tenant(), &context("t2/only"), HistoryEvent::Note { what: json!("a word") })
        .await
        .unwrap();
    let left = async || count_rows(&store, "t1", &clock).await + count_rows(&store, "t2", &clock).await;
    assert!(left().await > 150);
    tokio::time::sleep(59 * MINUTE).await;
    assert!(left().await > 150);
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(left().await, 0);
    assert!(hub.call_record(&default_tenant(), call.id).await.unwrap().is_some());

    // What a stopped node has left behind is cleaned up by another one.
    state.set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    drop((hub, state));
    let next = hub_on(store.clone(), &clock).await;
    tokio::time::sleep(59 * MINUTE).await;
    assert!(left().await > 0);
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(left().await, 0);
    drop(next);
}

/// A connection that counts how often it was closed.
struct CloseCountingInstance(Arc<AtomicUsize>);

impl Instance for CloseCountingInstance {
    type Arguments = NoArguments;
    type Output = ();

    async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
        Ok(())
    }

    async fn close(self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn the_instances_of_a_session_are_closed_when_it_is_over() {
    let (clock, closed) = (TestClock::new(), Arc::new(AtomicUsize::new(0)));
    let line = {
        let closed = closed.clone();
        instance("line", move |_: CallContext| std::future::ready(Ok(CloseCountingInstance(closed.clone()))))
    };
    let hub = builder(Arc::new(Memory::new()), &clock)
        .instance_idle_timeout(24 * 60 * MINUTE)
        .tool(line)
        .build()
        .await
        .unwrap();
    let (state, mut recorder) = (hub.state(), EventRecorder::new(&hub));
    let dial = async |thread: &str| {
        hub.call("line", json!({})).thread(thread).await.assert_success();
    };
    state.set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    dial("t1").await;
    dial("t2").await;
    tokio::time::sleep(59 * MINUTE).await;
    state.get_state(&default_tenant(), &cart(), Business).await.unwrap();
    tokio::time::sleep(59 * MINUTE).await;
    assert_eq!(closed.load(Ordering::SeqCst), 0);
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(closed.load(Ordering::SeqCst), 1, "the thread without a session keeps its instance");
    let reason =
        |news: &EventKind| if let EventKind::ExecutorCleaned { reason, .. } = news { Some(*reason) } else { None };
    let reasons: Vec<_> = recorder.events().iter().filter_map(|event| reason(&event.kind)).collect();
    assert_eq!(reasons, ["its session expired"]);

    // A session that begins before the cleanup does not inherit the instance either.
    dial("t1").await;
    state.set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    clock.jump(3_600_000);
    state.set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    tokio::time::sleep(MINUTE / 60).await;
    assert_eq!(closed.load(Ordering::SeqCst), 2);
    dial("t1").await;
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(closed.load(Ordering::SeqCst), 2, "the instance of the new session stays");
}

#[tokio::test(start_paused = true)]
async fn lists_and_their_cursors_pass_over_the_rows_of_sessions() {
    let clock = TestClock::new();
    let state = hub_on(Arc::new(Memory::new()), &clock).await.state();
    for n in 0..9 {
        let context = context(&format!("t{}/s{n}", n % 3));
        state.set_state(&default_tenant(), &context, Business, json!({}), None).await.unwrap();
    }
    for limit in [1, 2, 5] {
        let filter = ContextFilter { limit, ..Default::default() };
        let (mut found, mut cursor) = (0, None);
        loop {
            let page = state.list_contexts(&default_tenant(), &filter, cursor.as_deref()).await.unwrap();
            found += page.contexts.len();
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, 9);
    }
    let text = state.export(&default_tenant(), None).await.unwrap();
    assert_eq!(text.lines().count(), 9);
    let target = hub_on(Arc::new(Memory::new()), &clock).await.state();
    assert_eq!(target.import(&default_tenant(), &text).await, Ok(9));
    clock.jump(3_600_000);
    assert_eq!(target.stats(&default_tenant()).await.unwrap().contexts, 0, "imported states belong to a session too");
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_session_is_the_owners_word() {
    let (clock, store) = (TestClock::new(), Arc::new(Memory::new()));
    let config = StateManagerConfig { session_timeout: 5 * MINUTE, ..session_config() };
    let hub = builder(store.clone(), &clock).state_manager(config).build().await.unwrap();
    hub.state().set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    tokio::time::sleep(5 * MINUTE - Duration::from_millis(1)).await;
    assert_eq!(data(&hub.state(), Business).await, Some(json!({})));
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(data(&hub.state(), Business).await, None);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(count_rows(&store, "t1", &clock).await, 0);
    // A manager of another type has no sessions, whatever the other fields say.
    let config =
        StateManagerConfig { manager_type: Some(ManagerType::Memory), session_timeout: MINUTE, ..session_config() };
    let hub = builder(store, &clock).state_manager(config).build().await.unwrap();
    hub.state().set_state(&default_tenant(), &cart(), Business, json!({}), None).await.unwrap();
    tokio::time::sleep(600 * MINUTE).await;
    assert_eq!(data(&hub.state(), Business).await, Some(json!({})));
}

#[tokio::test]
async fn sessions_that_make_no_sense_are_refused_with_the_reason() {
    for (config, field) in [
        (StateManagerConfig { session_isolation: false, ..session_config() }, "session_isolation"),
        (StateManagerConfig { session_timeout: Duration::ZERO, ..session_config() }, "session_timeout"),
        (StateManagerConfig { max_states_per_session: 0, ..session_config() }, "max_states_per_session"),
    ] {
        let refused = ToolHub::builder().state_manager(config).build().await.unwrap_err().to_string();
        assert!(refused.contains(field), "{refused}");
    }
}

#[tokio::test]
async fn the_state_of_a_tool_is_a_part_of_the_session_of_its_thread() {
    use crate::shop_tools::{add_to_cart, show_cart};
    let clock = TestClock::new();
    let config = StateManagerConfig { max_states_per_session: 1, ..session_config() };
    let hub = ToolHub::builder()
        .clock(clock.clone())
        .state_manager(config)
        .tool(tool("add_to_cart", add_to_cart))
        .tool(tool("show_cart", show_cart).read_only())
        .tool(legacy_stateful("other", |_, _| json!({"state": {"n": 1}})))
        .build()
        .await
        .unwrap();
    let item = json!({"sku": "tea", "qty": 1});
    let shown = async || hub.call("show_cart", json!({})).thread("t1").await.assert_success().clone();
    hub.call("add_to_cart", item.clone()).thread("t1").await.assert_success();
    // Reading extends the session, too.
    for _ in 0..3 {
        clock.jump(40 * 60_000);
        assert_eq!(shown().await, json!([["tea", 1]]));
    }
    // One state too many is refused before the tool runs.
    let outcome = hub.call("other", json!({})).thread("t1").await;
    outcome.assert_effect(Effect::None).assert_error(ErrorKind::StateLimit);
    clock.jump(60 * 60_000);
    assert_eq!(shown().await, json!([]));
    hub.call("other", json!({})).thread("t1").await.assert_success();
    hub.call("add_to_cart", item).thread("t1").await.assert_error(ErrorKind::StateLimit);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_takes_a_state_that_outlives_its_thread_too() {
    let (clock, store) = (TestClock::new(), Arc::new(Memory::new()));
    let add = |arguments: Value, mut state: Value| {
        state["kept"] = arguments;
        json!({"state": state})
    };
    let tool = legacy_stateful("cart", add).state_cleanup(StateCleanup::Never);
    let hub = builder(store.clone(), &clock).tool(tool).build().await.unwrap();
    hub.call("cart", json!({"tea": 1})).thread("t1").await.assert_success();
    assert_eq!(data(&hub.state(), Business).await, Some(json!({"kept": {"tea": 1}})));
    clock.jump(3_600_000);
    assert_no_state(&hub.state()).await;
}

#[tokio::test(start_paused = true)]
async fn one_of_several_nodes_looks_for_expired_sessions_and_each_ends_its_own() {
    let (memory, clock) = (Arc::new(Memory::new()), TestClock::new());
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let store = Arc::new(FaultyStore { memory: memory.clone(), ..FaultyStore::default() });
        nodes.push((hub_on(store.clone(), &clock).await, store));
    }
    fill_cart(&nodes[1].0.state()).await;
    let counts = || nodes.iter().map(|(_, store)| store.state_scans.load(Ordering::Acquire)).collect::<Vec<_>>();
    tokio::time::sleep(MINUTE).await;
    let before = counts();
    tokio::time::sleep(100 * MINUTE).await;
    let is_scanning: Vec<_> = counts().iter().zip(before).map(|(now, before)| *now > before).collect();
    let is_maintainer: Vec<_> = nodes.iter().map(|(hub, _)| hub.is_maintainer()).collect();
    assert_eq!(is_scanning, is_maintainer);
    assert_eq!(count_rows(&memory, "t", &clock).await, 0);
}
