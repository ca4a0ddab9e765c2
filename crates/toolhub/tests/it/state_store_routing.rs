//! State routing: the hub's own store, another one for all states, or another one for one tool's.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    BusinessStateConfig, ConflictResolution, ContextFilter, HistoryEvent, HubBuilder, ManagerType, StateCleanup,
    StateKind::Business,
    StateManagerConfig,
    backend::{Backend, Change, Memory, Scan, Scope, Table},
    clock::Timestamp,
    prelude::*,
    testing::AssertOutcome,
};

use crate::{
    faulty_store::FaultyStore,
    intercepted_store::{CommitAction, InterceptedStore},
    journal::run_and_crash,
    shop_tools::{add_to_cart, show_cart},
    state_manager::default_tenant,
};

#[derive(Default, Serialize, Deserialize)]
struct Notes(Vec<String>);
impl ToolState for Notes {
    const NAME: &'static str = "notes";
}

async fn note(_: NoArguments, mut notes: State<Notes>) -> Result<usize, ToolError> {
    notes.0.push("noted".into());
    Ok(notes.0.len())
}

fn tea() -> Value {
    json!({"sku": "tea", "qty": 1})
}

/// A hub whose persistent manager uses `disk`, and which itself uses `own`.
fn builder<B: Backend>(disk: &Arc<B>, own: &Arc<Memory>) -> HubBuilder {
    let disk: Arc<dyn Backend> = disk.clone();
    ToolHub::builder().shared_store(own.clone()).state_store_factory(move |manager, _: &BusinessStateConfig| {
        assert_eq!(manager.manager_type, Some(ManagerType::Persistent));
        Ok::<_, String>(disk.clone())
    })
}

async fn row_ids(store: &Memory, table: Table) -> Vec<String> {
    let page = store.scan(Scan::new(table, Scope::All).limit(1_000), Timestamp::from_millis(0)).await.unwrap();
    page.rows.into_iter().map(|(key, _)| key.id.into()).collect()
}

#[tokio::test]
async fn a_thread_is_in_the_store_of_the_calls_before_its_state_is_in_another() {
    let (disk, own): (Arc<FaultyStore>, Arc<Memory>) = (Arc::default(), Arc::default());
    let config = StateManagerConfig { manager_type: Some(ManagerType::Persistent), ..Default::default() };
    let hub = builder(&disk, &own).state_manager(config).build().await.unwrap();
    let context = "t1/notes".parse().unwrap();
    let write = async || hub.state().set_state(&default_tenant(), &context, Business, json!({"n": 1}), None).await;
    disk.loses_acks.store(true, Ordering::Relaxed);
    assert!(write().await.is_err());
    assert_eq!(row_ids(&own, Table::Threads).await, ["t1"], "the state may be stored, so its thread is");
    disk.loses_acks.store(false, Ordering::Relaxed);
    write().await.unwrap();
    assert!(hub.delete_thread(&default_tenant(), &ThreadId::new("t1").unwrap()).await.unwrap());
    assert_eq!((row_ids(&own, Table::Threads).await.len(), row_ids(&disk.memory, Table::State).await.len()), (0, 0));
}

/// Intercepts the commits of states: the first one finds that its thread was deleted after it was seen. From then on commits that
/// store the thread's row are answered as given.
fn delete_thread_before_state_commit(
    state_store: &Arc<InterceptedStore>,
    hub: &Arc<OnceLock<ToolHub>>,
    thread_row: fn() -> CommitAction,
) {
    let (hub, is_deleted) = (hub.clone(), Arc::new(AtomicBool::new(false)));
    state_store.before_commits(move |batch| {
        let puts = |table| batch.writes.iter().any(|it| it.table == table && matches!(it.change, Change::Put { .. }));
        let (puts_state, puts_thread) = (puts(Table::State), puts(Table::Threads));
        let (hub, is_deleted) = (hub.clone(), is_deleted.clone());
        Box::pin(async move {
            let Some(hub) = hub.get() else { return CommitAction::Apply };
            if puts_state && !is_deleted.swap(true, Ordering::Relaxed) {
                assert!(hub.delete_thread(&default_tenant(), &ThreadId::new("t1").unwrap()).await.unwrap());
            } else if puts_thread {
                return thread_row();
            }
            CommitAction::Apply
        })
    });
}

#[tokio::test]
async fn a_state_in_another_store_brings_back_the_thread_that_was_deleted_while_it_was_written() {
    let (disk, own): (Arc<InterceptedStore>, Arc<Memory>) = (Arc::default(), Arc::default());
    let config = StateManagerConfig { manager_type: Some(ManagerType::Persistent), ..Default::default() };
    let hub = builder(&disk, &own).state_manager(config).build().await.unwrap();
    let write = async |context: &str| {
        let context = context.parse().unwrap();
        hub.state().set_state(&default_tenant(), &context, Business, json!({"n": 1}), None).await
    };
    write("t1/cart").await.unwrap();
    let cell = Arc::new(OnceLock::new());
    cell.set(hub.clone()).unwrap();
    delete_thread_before_state_commit(&disk, &cell, || CommitAction::Apply);
    write("t1/notes").await.unwrap();
    assert_eq!(row_ids(&disk.memory, Table::State).await, ["notes/business"]);
    assert_eq!(row_ids(&own, Table::Threads).await, ["t1"], "no state without its thread");
}

#[tokio::test]
async fn a_state_that_was_committed_is_no_error_because_the_row_of_its_thread_cannot_be_stored_again() {
    let own: Arc<InterceptedStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(own.clone()).build().await.unwrap();
    let write = async |context: &str| {
        let context = context.parse().unwrap();
        hub.state().set_state(&default_tenant(), &context, Business, json!({"n": 1}), None).await
    };
    write("t1/cart").await.unwrap();
    let cell = Arc::new(OnceLock::new());
    cell.set(hub.clone()).unwrap();
    delete_thread_before_state_commit(&own, &cell, || CommitAction::Unavailable);
    let written = write("t1/notes").await;
    assert_eq!(row_ids(&own.memory, Table::State).await, ["notes/business"]);
    assert!(written.is_ok(), "{written:?}");
    own.before_commits(|_| Box::pin(async { CommitAction::Apply }));
    write("t1/notes").await.unwrap();
    assert_eq!(row_ids(&own.memory, Table::Threads).await, ["t1"], "the next write stores it");
}

#[tokio::test]
async fn all_states_may_lie_in_another_store_than_the_calls() {
    let (disk, own): (Arc<Memory>, _) = (Arc::default(), Arc::default());
    let config = StateManagerConfig { manager_type: Some(ManagerType::Persistent), ..Default::default() };
    let hub = || builder(&disk, &own).state_manager(config.clone()).tool(tool("note", note));
    let first = hub().build().await.unwrap();
    for count in 1..=3 {
        assert_eq!(first.call("note", json!({})).thread("t").await.assert_success(), &json!(count));
    }
    assert_eq!(row_ids(&disk, Table::State).await, ["notes/business", "notes/session"]);
    assert_eq!(row_ids(&own, Table::State).await, [""; 0]);
    assert_eq!((row_ids(&own, Table::Calls).await.len(), row_ids(&disk, Table::Calls).await.len()), (3, 0));
    drop(first);
    let second = hub().build().await.unwrap();
    assert_eq!(second.call("note", json!({})).thread("t").await.assert_success(), &json!(4));
    let history = second.state().history(&default_tenant(), &"t/notes".parse().unwrap(), 99).await.unwrap();
    assert_eq!(history.len(), 12, "it is complete: a start, a write and a success for each call");
}

#[tokio::test]
async fn one_tool_may_keep_its_state_elsewhere_and_all_that_share_it_find_it_there() {
    let (disk, own): (Arc<Memory>, _) = (Arc::default(), Arc::default());
    let hub = builder(&disk, &own)
        .tool(tool("add_to_cart", add_to_cart).manager_type(ManagerType::Persistent))
        .tool(tool("show_cart", show_cart).read_only())
        .tool(tool("note", note))
        .build()
        .await
        .unwrap();
    for thread in ["a", "b", "c"] {
        hub.call("add_to_cart", tea()).thread(thread).await.assert_success();
        hub.call("note", json!({})).thread(thread).await.assert_success();
        assert_eq!(hub.call("show_cart", json!({})).thread(thread).await.assert_success(), &json!([["tea", 1]]));
    }
    assert!(row_ids(&disk, Table::State).await.iter().all(|id| id.starts_with("cart/")));
    assert!(row_ids(&own, Table::State).await.iter().all(|id| id.starts_with("notes/")));

    let state = hub.state();
    for limit in 1..10 {
        let (mut found, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let filter = ContextFilter { limit, ..Default::default() };
            let page = state.list_contexts(&default_tenant(), &filter, cursor.as_deref()).await.unwrap();
            found.extend(page.contexts.into_iter().map(|info| info.id.to_string()));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, ["a/cart", "b/cart", "c/cart", "a/notes", "b/notes", "c/notes"], "pages of {limit}");
    }
    assert_eq!(state.stats(&default_tenant()).await.unwrap().contexts, 6);
    let text = state.export(&default_tenant(), None).await.unwrap();
    assert_eq!(text.lines().count(), 6);

    // Imported into a hub with a single store, and back.
    let plain = ToolHub::builder().build().await.unwrap();
    assert_eq!(plain.state().import(&default_tenant(), &text).await, Ok(6));
    assert_eq!(plain.state().export(&default_tenant(), None).await.unwrap(), text);
    assert_eq!(state.import(&default_tenant(), &text).await, Ok(6));
    let cart = "b/cart".parse().unwrap();
    assert_eq!(state.get_state(&default_tenant(), &cart, Business).await.unwrap().unwrap().version, 2);
    assert!(row_ids(&own, Table::State).await.iter().all(|id| id.starts_with("notes/")));
}

#[tokio::test]
async fn a_thread_takes_its_states_along_from_every_store_but_those_that_outlive_it() {
    let (disk, own): (Arc<Memory>, _) = (Arc::default(), Arc::default());
    let cart = tool("add_to_cart", add_to_cart).manager_type(ManagerType::Persistent);
    let notes = tool("note", note).manager_type(ManagerType::Persistent).state_cleanup(StateCleanup::Never);
    let hub = builder(&disk, &own).tool(cart).tool(notes).build().await.unwrap();
    for thread in ["a", "b"] {
        hub.call("add_to_cart", tea()).thread(thread).await.assert_success();
        hub.call("note", json!({})).thread(thread).await.assert_success();
    }
    assert!(hub.delete_thread(&default_tenant(), &ThreadId::new("a").unwrap()).await.unwrap());
    let state = hub.state();
    let is_there = async |context: &str| {
        state.get_state(&default_tenant(), &context.parse().unwrap(), Business).await.unwrap().is_some()
    };
    assert!(!is_there("a/cart").await && is_there("a/notes").await && is_there("b/cart").await);
    let left = row_ids(&disk, Table::History).await;
    assert_eq!(left.iter().filter(|id| id.starts_with("cart/")).count(), 3, "the history of the other thread stays");
}

#[tokio::test]
async fn a_failed_call_leaves_a_state_elsewhere_as_it_was_and_a_conflict_there_is_told() {
    async fn fail(_: NoArguments, mut notes: State<Notes>) -> Result<(), ToolError> {
        notes.0.clear();
        Err(ToolError::new("no ink"))
    }
    let (disk, own): (Arc<Memory>, _) = (Arc::default(), Arc::default());
    let other = builder(&disk, &own).tool(tool("note", note).manager_type(ManagerType::Persistent)).build().await;
    let other = other.unwrap();
    let slow = {
        let other = other.clone();
        move |_: NoArguments, mut notes: State<Notes>| {
            let other = other.clone();
            async move {
                other.call("note", json!({})).thread("t").await.assert_success();
                notes.0.push("late".into());
                Ok::<_, ToolError>(())
            }
        }
    };
    let tools = [tool("fail", fail), tool("slow", slow).manager_type(ManagerType::Persistent)];
    let hub = builder(&disk, &own).tools(tools).build().await.unwrap();
    other.call("note", json!({})).thread("t").await.assert_success();
    hub.call("fail", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    let refused = hub.call("slow", json!({})).thread("t").await;
    refused.assert_effect(Effect::Done).assert_error(ErrorKind::StateConflict);
    let entry = hub.state().get_state(&default_tenant(), &"t/notes".parse().unwrap(), Business).await.unwrap().unwrap();
    assert_eq!(entry.data, json!(["noted", "noted"]));
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_way_out() {
    let (disk, own): (Arc<Memory>, _) = (Arc::default(), Arc::default());
    let persistent = || tool("note", note).manager_type(ManagerType::Persistent);
    let nothing_opens = ToolHub::builder().tool(persistent()).build().await.unwrap_err().to_string();
    assert!(nothing_opens.contains(".state_store_factory("), "{nothing_opens}");

    let hub = builder(&disk, &own).tool(persistent()).build().await.unwrap();
    let other = tool("other", note).manager_type(ManagerType::Memory);
    let refused = hub.register(other).unwrap_err().to_string();
    assert!(refused.contains("`notes`") && refused.contains("manager_type"), "{refused}");
    let session = hub.register(tool("other", add_to_cart).manager_type(ManagerType::Session)).unwrap_err().to_string();
    assert!(session.contains("whole threads"), "{session}");

    let sessions = StateManagerConfig { manager_type: Some(ManagerType::Session), ..Default::default() };
    let refused =
        builder(&disk, &own).state_manager(sessions).tool(persistent()).build().await.unwrap_err().to_string();
    assert!(refused.contains("manager_type = session"), "{refused}");
    let stateless = tool("x", async |_: NoArguments| Ok::<_, ToolError>(())).manager_type(ManagerType::Memory);
    assert!(hub.register(stateless).unwrap_err().to_string().contains("it has no state"));
}

#[tokio::test(start_paused = true)]
async fn the_history_of_a_state_elsewhere_is_told_of_a_call_that_was_interrupted() {
    async fn note_and_hang(
        _: NoArguments,
        mut notes: State<Notes>,
        started: Shared<Arc<AtomicUsize>>,
    ) -> Result<(), ToolError> {
        notes.0.push("lost".into());
        started.fetch_add(1, Ordering::Release);
        std::future::pending().await
    }
    // In another store, and shared by all threads.
    for shared in [false, true] {
        let (disk, own): (Arc<Memory>, Arc<Memory>) = (Arc::default(), Arc::default());
        let isolated = StateManagerConfig { session_isolation: !shared, ..Default::default() };
        let hub = builder(&disk, &own).state_manager(isolated.clone());
        let started = Arc::new(AtomicUsize::new(0));
        let hangs = tool("note", note_and_hang).manager_type(ManagerType::Persistent);
        let hub = hub.resource(started.clone()).tool(hangs);
        run_and_crash(
            async move || hub.build().await.unwrap(),
            |hub| (vec![hub.call("note", json!({})).thread("t").start()], ()),
            move || started.load(Ordering::Acquire) == 1,
        );
        let notes = tool("note", note).manager_type(ManagerType::Persistent);
        let hub = builder(&disk, &own).state_manager(isolated).tool(notes).build().await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        let context = if shared { "~/notes" } else { "t/notes" }.parse().unwrap();
        let history = hub.state().history(&default_tenant(), &context, 10).await.unwrap();
        let last = history.last().map(|entry| entry.event.clone());
        assert!(matches!(&last, Some(HistoryEvent::ExecutionError { error_type, .. }) if error_type == "interrupted"));
        assert_eq!(row_ids(&own, Table::History).await, [""; 0], "no orphaned rows are left");
        assert_eq!(hub.call("note", json!({})).thread("t").await.assert_success(), &json!(1), "nothing was committed");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_while_an_idle_thread_is_swept_is_not_lost() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    for elsewhere in [true, false] {
        let (store, calls): (Arc<InterceptedStore>, Arc<Memory>) = (Arc::default(), Arc::default());
        let hub = if elsewhere {
            builder(&store, &calls).tool(tool("note", note).manager_type(ManagerType::Persistent))
        } else {
            ToolHub::builder().shared_store(store.clone()).tool(tool("note", note))
        };
        let hub = hub.clock(toolhub::testing::TestClock::new()).idle_thread_retention(DAY).build().await.unwrap();
        let noted = async |hub: &ToolHub| hub.call("note", json!({})).thread("t").await.assert_success().clone();
        assert_eq!(noted(&hub).await, 1);
        let (hub_slot, once) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
        let (awake, swept) = (hub_slot.clone(), once.clone());
        store.before_commits(move |batch| {
            let states = [Table::History, Table::Versions, Table::State];
            let removes = batch.writes.iter().any(|it| it.change == Change::Remove && states.contains(&it.table));
            let hub: Option<ToolHub> =
                (removes && !swept.swap(true, Ordering::AcqRel)).then(|| awake.get().cloned()).flatten();
            Box::pin(async move {
                if let Some(hub) = hub {
                    hub.call("note", json!({})).thread("t").await.assert_success();
                }
                CommitAction::Apply
            })
        });
        assert!(hub_slot.set(hub.clone()).is_ok());
        tokio::time::sleep(DAY + DAY / 4).await;
        assert!(once.load(Ordering::Acquire), "it was about to be swept");
        assert_eq!(noted(&hub).await, 3);
        store.before_commits(|_| Box::pin(async { CommitAction::Apply }));
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Tally {
    count: u32,
}
impl ToolState for Tally {
    const NAME: &'static str = "tally";
}

#[tokio::test]
async fn a_tool_is_not_run_once_more_after_a_state_of_it_was_committed_elsewhere() {
    let (disk, own): (Arc<Memory>, Arc<Memory>) = (Arc::default(), Arc::default());
    let other = builder(&disk, &own).build().await.unwrap();
    let both = move |_: NoArguments, mut notes: State<Notes>, mut tally: State<Tally>| {
        let other = other.state();
        async move {
            notes.0.push("noted".into());
            tally.count += 1;
            // A concurrent write, the first time.
            let tally = "t/tally".parse().unwrap();
            if other.get_state(&default_tenant(), &tally, Business).await.unwrap().is_none() {
                other.set_state(&default_tenant(), &tally, Business, json!({"count": 10}), None).await.unwrap();
            }
            Ok::<_, ToolError>(())
        }
    };
    let both = tool("both", both).on_conflict(ConflictResolution::Retry).rerunnable();
    let note = tool("note", note).manager_type(ManagerType::Persistent);
    let hub = builder(&disk, &own).tool(note).tool(both).build().await.unwrap();
    let outcome = hub.call("both", json!({})).thread("t").await;
    let notes = hub.state().get_state(&default_tenant(), &"t/notes".parse().unwrap(), Business).await.unwrap().unwrap();
    assert_eq!(notes.data, json!(["noted"]), "one call, one note");
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::StateConflict);
}

#[tokio::test]
async fn a_state_manager_is_opened_once_for_all_tools_and_calls() {
    let (opened, disk): (Arc<AtomicUsize>, Arc<Memory>) = Default::default();
    let counter = opened.clone();
    let config = StateManagerConfig { manager_type: Some(ManagerType::Persistent), ..Default::default() };
    let hub = ToolHub::builder()
        .state_store_factory(move |_, _: &BusinessStateConfig| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<Arc<dyn Backend>, String>(disk.clone())
        })
        .state_manager(config)
        .tool(tool("note", note))
        .tool(tool("add_to_cart", add_to_cart))
        .build()
        .await
        .unwrap();
    let registered = hub.get("note").unwrap();
    for count in 1..=3 {
        assert_eq!(hub.call("note", json!({})).thread("t1").await.assert_success(), &json!(count));
        hub.call("add_to_cart", tea()).thread("t1").await.assert_success();
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    assert!(Arc::ptr_eq(&registered, &hub.get("note").unwrap()), "calls build no tool");
}
