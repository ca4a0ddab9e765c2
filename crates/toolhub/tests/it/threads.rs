//! Threads: created, listed, swept and deleted.

use std::{sync::Arc, time::Duration};

use toolhub::{
    HubBuilder, StatusScope, ThreadError,
    backend::{Backend, Batch, Change, Durability, Expect, Memory, Partition, Scan, Scope, Table, Write},
    clock::{Clock, Timestamp},
    events::EventKind,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

use crate::{
    faulty_store::FaultyStore,
    intercepted_store::{CommitAction, InterceptedStore},
    shop_tools::{add, add_to_cart},
};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn shop_builder(store: &Arc<Memory>) -> HubBuilder {
    ToolHub::builder()
        .clock(TestClock::new())
        .shared_store(store.clone())
        // Weeks pass in these tests.
        .node_timeout(DAY)
        .tool(tool("add", add).read_only())
        .tool(tool("add_to_cart", add_to_cart))
}

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn id(thread: &str) -> ThreadId {
    ThreadId::new(thread).unwrap()
}

async fn thread_exists(hub: &ToolHub, thread: &str) -> bool {
    hub.thread(&default_tenant(), &id(thread)).await.unwrap().is_some()
}

async fn buy(hub: &ToolHub, thread: &str) -> Value {
    let bought = hub.call("add_to_cart", json!({"sku": "tea", "qty": 1})).thread(thread).await;
    bought.assert_success().clone()
}

/// How many rows the store has in a thread.
async fn count_rows(store: &Memory, thread: &str) -> usize {
    let partition = Partition::for_thread(default_tenant(), id(thread));
    let mut rows = 0;
    for table in Table::ALL {
        let scan = Scan::new(table, Scope::Partition(partition.clone()));
        rows += store.scan(scan, Timestamp::default()).await.unwrap().rows.len();
    }
    rows
}

/// Writes a row into a thread.
async fn put_row(store: &Memory, thread: &str, table: Table, row: &str) {
    let change = Change::Put { value: b"{}".as_slice().into(), schema: 1, expires: None };
    let (expect, durability) = (Expect::Absent, Durability::KillSafe);
    let write = Write { table, id: row.into(), expect, change, durability };
    let batch = Batch::new(Partition::for_thread(default_tenant(), id(thread))).with(write);
    store.commit(batch, TestClock::new().now()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_made_by_whatever_names_it_even_by_a_refused_call() {
    let hub = shop_builder(&Arc::default()).build().await.unwrap();
    assert!(!thread_exists(&hub, "never").await);
    hub.call("add", json!({"a": 1, "b": 2})).thread("plain").await.assert_success();
    hub.call("add", json!({"a": "x"})).thread("invalid").await.assert_error(ErrorKind::ArgumentsInvalid);
    hub.call("nothing", json!({})).thread("refused").await.assert_error(ErrorKind::ToolNotFound);
    hub.batch([hub.call("add", json!({"a": 1, "b": 2})).thread("batch")]).await;
    for thread in ["plain", "invalid", "refused", "batch"] {
        assert!(thread_exists(&hub, thread).await, "{thread}");
    }
    let minted = hub.call("add_to_cart", json!({"sku": "tea", "qty": 1})).await;
    let minted = minted.thread.expect("a tool with state has a thread");
    assert!(thread_exists(&hub, minted.as_str()).await);
    let created = hub.create_thread(&default_tenant(), None).await.unwrap();
    assert!(thread_exists(&hub, created.id.as_str()).await);
    let wrong = hub.call("add", json!({"a": 1, "b": 2})).thread("not a thread").await;
    wrong.assert_error(ErrorKind::ArgumentsInvalid);
    let all = hub.threads(&default_tenant(), None).await.unwrap();
    assert_eq!(all.threads.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_thread_knows_since_when_it_is_when_it_was_active_and_how_many_calls_named_it() {
    let store = Arc::default();
    let hub = shop_builder(&store).build().await.unwrap();
    let noon = TestClock::new().now();
    for _ in 0..3 {
        buy(&hub, "t1").await;
        tokio::time::sleep(MINUTE / 2).await;
    }
    let info = hub.thread(&default_tenant(), &id("t1")).await.unwrap().unwrap();
    assert_eq!((info.created, info.last_active, info.calls), (noon, noon + MINUTE, 3));
    let found = hub.create_thread(&default_tenant(), Some(id("t1"))).await.unwrap();
    assert_eq!(found, info, "creating it again finds it");

    // Recent use is written at shutdown, and the next process continues from there.
    hub.shutdown(Duration::ZERO).await;
    let next = shop_builder(&store).build().await.unwrap();
    assert_eq!(next.thread(&default_tenant(), &id("t1")).await.unwrap(), Some(info.clone()));
    buy(&next, "t1").await;
    let later = next.thread(&default_tenant(), &id("t1")).await.unwrap().unwrap();
    assert_eq!((later.created, later.calls), (info.created, 4));
    assert_eq!(next.threads(&default_tenant(), None).await.unwrap().threads, [later]);
}

#[tokio::test(start_paused = true)]
async fn another_hub_knows_a_thread_with_its_first_record_and_nobody_of_another_tenants() {
    let store = Arc::default();
    let (first, second) = (shop_builder(&store).build().await.unwrap(), shop_builder(&store).build().await.unwrap());
    buy(&first, "t1").await;
    assert!(thread_exists(&second, "t1").await);
    // A refused call leaves no record; its thread is written in the background.
    first.call("ad", json!({})).thread("t2").await.assert_error(ErrorKind::ToolNotFound);
    assert!(!thread_exists(&second, "t2").await);
    tokio::time::sleep(MINUTE / 6).await;
    assert!(thread_exists(&second, "t2").await);
    let stranger = Tenant::new("stranger").unwrap();
    assert_eq!(first.thread(&stranger, &id("t1")).await.unwrap(), None);
    assert!(first.threads(&stranger, None).await.unwrap().threads.is_empty());
    let foreign = first.call("add_to_cart", json!({"sku": "tea", "qty": 1})).thread("t1").tenant(stranger.clone());
    assert_eq!(foreign.await.assert_success(), &json!(1), "its cart is a different one");
    assert!(first.delete_thread(&stranger, &id("t1")).await.unwrap());
    assert!(thread_exists(&first, "t1").await);
    assert_eq!(buy(&first, "t1").await, json!(2));
}

#[tokio::test(start_paused = true)]
async fn many_threads_are_listed_by_id_a_page_at_a_time() {
    let hub = shop_builder(&Arc::default()).build().await.unwrap();
    for n in 0..250 {
        hub.call("add", json!({"a": 1, "b": 2})).thread(format!("t{n:03}")).await.assert_success();
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = hub.threads(&default_tenant(), cursor.take()).await.unwrap();
        seen.extend(page.threads.into_iter().map(|thread| thread.id.to_string()));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, (0..250).map(|n| format!("t{n:03}")).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_idle_thread_is_swept_with_all_it_holds_and_an_active_one_is_not() {
    let store: Arc<Memory> = Arc::default();
    let hub = shop_builder(&store).build().await.unwrap();
    buy(&hub, "idle").await;
    buy(&hub, "active").await;
    tokio::time::sleep(13 * DAY).await;
    buy(&hub, "active").await;
    assert!(thread_exists(&hub, "idle").await);
    let mut recorder = EventRecorder::new(&hub);
    tokio::time::sleep(2 * DAY).await;
    assert!(!thread_exists(&hub, "idle").await);
    assert_eq!(count_rows(&store, "idle").await, 0);
    let swept: Vec<_> = recorder.events().iter().filter(|event| event.name() == "thread.swept").cloned().collect();
    assert_eq!(swept.len(), 1);
    assert_eq!(swept[0].thread, Some(id("idle")));
    assert!(matches!(swept[0].kind, EventKind::ThreadSwept { reason: "it was idle", rows } if rows >= 2), "{swept:?}");
    assert_eq!(buy(&hub, "active").await, json!(3));
    assert_eq!(buy(&hub, "idle").await, json!(1), "it begins with a new state");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_swept_that_waits_runs_or_is_not_ended_and_nothing_at_all_if_so_wished() {
    let store: Arc<Memory> = Arc::default();
    let (slow, script) = scripted("slow", [ScriptStep::Hang]);
    let hub = shop_builder(&store)
        .idle_thread_retention(DAY)
        .tool(slow.timeout(10 * DAY))
        .tool(tool("ask", add).approval_timeout(10 * DAY))
        .rule(Rule::ask("ask"))
        .build()
        .await
        .unwrap();
    let outcome = hub.call("ask", json!({"a": 1, "b": 2})).thread("asks").no_wait().await;
    outcome.assert_error(ErrorKind::ApprovalRequired);
    let running = hub.call("slow", json!({})).thread("runs").start();
    buy(&hub, "ended").await;
    buy(&hub, "crashed").await;
    // A call that another node has opened, and not closed.
    put_row(&store, "crashed", Table::OpenCalls, "call_open").await;
    // An agent's run that has not ended, and one that has, with its messages.
    for thread in ["agent", "answered"] {
        buy(&hub, thread).await;
        put_row(&store, thread, Table::Messages, "0001").await;
        put_row(&store, thread, Table::Runs, "run_1").await;
    }
    put_row(&store, "agent", Table::Runs, Table::OPEN_RUN).await;
    tokio::time::sleep(4 * DAY).await;
    for (thread, second) in
        [("asks", true), ("runs", true), ("crashed", true), ("agent", true), ("ended", false), ("answered", false)]
    {
        assert_eq!(thread_exists(&hub, thread).await, second, "{thread}");
    }
    assert_eq!(script.recorded_arguments().len(), 1);
    assert_eq!(count_rows(&store, "answered").await, 0);
    assert!(hub.delete_thread(&default_tenant(), &id("agent")).await.unwrap(), "deleting it ends the run too");
    assert_eq!(count_rows(&store, "agent").await, 0);
    running.cancel();
    running.await.assert_error(ErrorKind::Cancelled);
    // The approval times out; then nothing is pending any more.
    tokio::time::sleep(8 * DAY).await;
    assert!(!thread_exists(&hub, "asks").await && !thread_exists(&hub, "runs").await);

    let hub = shop_builder(&Arc::default()).idle_thread_retention(None).build().await.unwrap();
    buy(&hub, "t1").await;
    tokio::time::sleep(100 * DAY).await;
    assert!(thread_exists(&hub, "t1").await);
}

#[tokio::test(start_paused = true)]
async fn activity_on_another_hub_keeps_a_thread() {
    let store: Arc<Memory> = Arc::default();
    let (first, second) = (shop_builder(&store).build().await.unwrap(), shop_builder(&store).build().await.unwrap());
    buy(&first, "t1").await;
    tokio::time::sleep(13 * DAY).await;
    buy(&second, "t1").await;
    tokio::time::sleep(13 * DAY).await;
    assert!(thread_exists(&first, "t1").await);
    tokio::time::sleep(2 * DAY).await;
    assert!(!thread_exists(&first, "t1").await && !thread_exists(&second, "t1").await);
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_deleted_at_once_but_not_under_running_calls() {
    let store: Arc<Memory> = Arc::default();
    let fails = || ScriptStep::Fail(ToolError::new("no"));
    let (flaky, _) = scripted("flaky", [fails(), fails(), fails(), ScriptStep::Hang, ScriptStep::Return(json!(1))]);
    let hub = shop_builder(&store).tool(flaky).build().await.unwrap();
    let elsewhere = shop_builder(&store).tool(scripted("flaky", []).0).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    assert!(!hub.delete_thread(&default_tenant(), &id("t1")).await.unwrap(), "there is none");
    for _ in 0..250 {
        buy(&hub, "t1").await;
    }
    for _ in 0..3 {
        hub.call("flaky", json!({})).thread("t1").await.assert_error(ErrorKind::ToolError);
    }
    hub.call("flaky", json!({})).thread("t1").await.assert_error(ErrorKind::ToolFailedStatus);
    let running = hub.call("flaky", json!({})).thread("t2").start();
    tokio::time::sleep(MINUTE / 60).await;
    let busy = hub.delete_thread(&default_tenant(), &id("t2")).await;
    assert_eq!(busy, Err(ThreadError::Busy(id("t2"))));
    drop(running);
    tokio::time::sleep(MINUTE / 60).await;
    assert!(hub.delete_thread(&default_tenant(), &id("t2")).await.unwrap());

    assert!(count_rows(&store, "t1").await > 100);
    assert!(hub.delete_thread(&default_tenant(), &id("t1")).await.unwrap());
    assert_eq!(count_rows(&store, "t1").await, 0);
    assert!(!thread_exists(&hub, "t1").await);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(count_rows(&store, "t1").await, 0, "nothing is written after the deletion");
    assert_eq!(recorder.names().iter().filter(|name| **name == "thread.swept").count(), 2);
    assert_eq!(buy(&hub, "t1").await, json!(1));
    let status = hub.tool_status("flaky", StatusScope::Thread(&default_tenant(), &id("t1"))).await.unwrap();
    assert_eq!(status.consecutive_failures, 0, "the tool's status in the thread is deleted");
    let status = elsewhere.tool_status("flaky", StatusScope::Thread(&default_tenant(), &id("t1"))).await.unwrap();
    assert_eq!(status.consecutive_failures, 0, "on every hub");
    hub.call("flaky", json!({})).thread("t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_learns_of_the_threads_later() {
    let store = Arc::new(FaultyStore::default());
    let hub = || {
        let builder = ToolHub::builder().clock(TestClock::new()).shared_store(store.clone());
        builder.tool(tool("add", add).read_only()).build()
    };
    let first = hub().await.unwrap();
    store.unavailable.store(true, std::sync::atomic::Ordering::Release);
    first.call("add", json!({"a": 1, "b": 2})).thread("t1").await.assert_success();
    tokio::time::sleep(MINUTE).await;
    assert!(first.thread(&default_tenant(), &id("t1")).await.is_err());
    store.unavailable.store(false, std::sync::atomic::Ordering::Release);
    tokio::time::sleep(MINUTE).await;
    assert!(thread_exists(&hub().await.unwrap(), "t1").await);
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_not_deleted_under_a_call_that_runs_on_another_hub() {
    let store: Arc<Memory> = Arc::default();
    let first = shop_builder(&store).build().await.unwrap();
    let (slow, script) = scripted("slow", [ScriptStep::Wait(MINUTE), ScriptStep::Return(json!("done"))]);
    let second = shop_builder(&store).tool(slow.timeout(10 * MINUTE)).build().await.unwrap();
    let running = second.call("slow", json!({})).thread("t1").start();
    tokio::time::sleep(MINUTE / 6).await;
    assert_eq!(script.recorded_arguments().len(), 1);
    assert_eq!(first.delete_thread(&default_tenant(), &id("t1")).await, Err(ThreadError::Busy(id("t1"))));
    let ended = running.await;
    ended.assert_success();
    assert!(second.call_record(&default_tenant(), ended.id).await.unwrap().is_some(), "it has its record");
    assert!(first.delete_thread(&default_tenant(), &id("t1")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_list_after_a_burst_of_new_threads_waits_for_its_own_page_only() {
    let store = Arc::new(InterceptedStore::default());
    let hub = ToolHub::builder().clock(TestClock::new()).shared_store(store.clone()).tool(tool("add", add).read_only());
    let hub = hub.build().await.unwrap();
    store.before_commits(|_| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            CommitAction::Apply
        })
    });
    for number in 0..3_000 {
        hub.call("add", json!({"a": 1, "b": 2})).thread(format!("t{number:05}")).await.assert_success();
    }
    // The background flush is under way.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (began, mut after, mut found) = (tokio::time::Instant::now(), None, Vec::new());
    for _ in 0..3 {
        let page = hub.threads(&default_tenant(), after).await.unwrap();
        found.extend(page.threads.into_iter().map(|thread| thread.id));
        after = page.next;
    }
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    let expected: Vec<ThreadId> = (0..found.len()).map(|number| id(&format!("t{number:05}"))).collect();
    assert_eq!(found, expected);
    assert!(found.len() >= 200, "{}", found.len());
}
