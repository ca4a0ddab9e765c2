//! A store with a size limit: near it, the oldest ended calls are removed, with what belongs to them.

use std::{sync::Arc, time::Duration};

use toolhub::{
    CallQuery, Sqlite, StoreSize,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::Timestamp,
    prelude::*,
    sqlite::Options,
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};
use toolhub_testkit::TempFolder;

const LIMIT: u64 = 1 << 20;

/// A hub with two tools; the first call of `read` returns so much that it becomes an artifact.
async fn hub_on(store: Arc<dyn Backend>) -> ToolHub {
    let long = ScriptStep::Return("x".repeat(500_000).into());
    let (read, write) = (scripted("read", [long]).0.read_only(), scripted("write", []).0);
    ToolHub::builder().shared_store(store).tool(read).tool(write).build().await.unwrap()
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never {what}");
}

fn size(hub: &ToolHub) -> StoreSize {
    hub.store_size().unwrap()
}

/// Makes calls with arguments of 1 KB, each in its own thread, and lets the hub keep up after every hundred.
async fn make_calls(hub: &ToolHub, calls: u64) {
    for number in 0..calls {
        let arguments = json!({"number": number, "text": "x".repeat(1000)});
        hub.call("read", arguments).thread(format!("t{number}").as_str()).await.assert_success();
        if number % 100 == 99 {
            wait_until("written", || hub.journal_stats().written > number).await;
            wait_until("below its limit", || size(hub).bytes < size(hub).limit / 10 * 8).await;
        }
    }
}

async fn count_rows(store: &dyn Backend, table: Table) -> usize {
    store.scan(Scan::new(table, Scope::All).limit(100_000), Timestamp::default()).await.unwrap().rows.len()
}

/// Fills the store several times over. The newest calls stay; the oldest go, with their threads.
async fn check_oldest_go(store: Arc<dyn Backend>) {
    let hub = hub_on(store.clone()).await;
    let tenant = Tenant::default();
    let keyed = hub.call("write", json!({})).thread("keyed").idempotency_key("k").await;
    let plain = hub.call("write", json!({})).thread("plain").await;
    make_calls(&hub, 2_000).await;
    let last = hub.call("write", json!({})).thread("last").await;
    let (size, stats) = (size(&hub), hub.journal_stats());
    assert_eq!((size.limit, stats.dropped), (LIMIT, 0));
    assert!(size.bytes < LIMIT && size.trimmed_calls > 500, "{size:?}");
    assert!(hub.call_record(&tenant, plain.id).await.unwrap().is_none(), "the oldest went first");
    for kept in [&keyed, &last] {
        assert!(hub.call_record(&tenant, kept.id).await.unwrap().is_some());
    }
    let repeated = hub.call("write", json!({})).thread("keyed").idempotency_key("k").await;
    assert!(repeated.replayed, "a key gets its first outcome");
    let newest = hub.calls(&tenant, &CallQuery::default()).await.unwrap().calls;
    assert_eq!(newest.first().map(|call| call.id), Some(last.id));
    // The threads of the last removed calls may just be going.
    let mut surplus = usize::MAX;
    for _ in 0..20_000 {
        let calls = count_rows(&*store, Table::Calls).await;
        surplus = count_rows(&*store, Table::Threads).await.saturating_sub(calls);
        if surplus < 100 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(surplus < 100, "{surplus} threads without a call stay");
    hub.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn in_memory_the_oldest_calls_go_with_their_threads_before_the_limit() {
    check_oldest_go(Arc::new(Memory::with_max_bytes(LIMIT))).await;
}

#[tokio::test]
async fn a_database_file_near_its_limit_loses_its_oldest_calls_and_refuses_nothing() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    check_oldest_go(Arc::new(Sqlite::open(&path, Options::default().max_bytes(LIMIT)).unwrap())).await;
    assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT);
}

#[tokio::test]
async fn a_thread_with_state_stays_and_the_artifacts_of_a_removed_call_go() {
    let store = Arc::new(Memory::with_max_bytes(LIMIT));
    let hub = hub_on(store.clone()).await;
    let (tenant, context) = (Tenant::default(), "kept/notes".parse().unwrap());
    hub.state().set_state(&tenant, &context, StateKind::Business, json!({"n": 1}), None).await.unwrap();
    hub.call("read", json!({})).thread("kept").await.assert_success();
    assert_eq!(count_rows(&*store, Table::Artifacts).await, 1);
    make_calls(&hub, 2_000).await;
    assert_eq!(count_rows(&*store, Table::Artifacts).await, 0);
    assert!(hub.thread(&tenant, &ThreadId::new("kept").unwrap()).await.unwrap().is_some());
    assert!(hub.state().get_state(&tenant, &context, StateKind::Business).await.unwrap().is_some());
    assert!(hub.thread(&tenant, &ThreadId::new("t0").unwrap()).await.unwrap().is_none(), "it held nothing else");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ran_for_hours_takes_no_artifacts_of_younger_calls_along() {
    let (store, tenant) = (Arc::new(Memory::with_max_bytes(8 * LIMIT)), Tenant::default());
    let hour = Duration::from_secs(3600);
    let slow = scripted("slow", [ScriptStep::Wait(2 * hour)]).0.timeout(3 * hour);
    let report = scripted("report", [ScriptStep::Return("x".repeat(2_000_000).into())]).0;
    let hub = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new()).call_retention(24 * hour);
    let hub = hub.tool(slow).tool(report).tool(scripted("fill", []).0).build().await.unwrap();
    let running = hub.call("slow", json!({"text": "x".repeat(950_000)})).thread("slow").start();
    tokio::time::sleep(hour).await;
    let report = hub.call("report", json!({})).thread("report").await;
    running.await.assert_success();
    assert_eq!(count_rows(&*store, Table::Artifacts).await, 1);
    // The call that came first is as large as a tenth of the store, and so much room is made.
    while size(&hub).trimmed_calls == 0 {
        hub.call("fill", json!({"text": "x".repeat(50_000)})).thread("fill").await.assert_success();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(count_rows(&*store, Table::Artifacts).await, 1);
    assert!(hub.call_record(&tenant, report.id).await.unwrap().is_some());
    hub.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_file_full_of_state_cannot_write_until_there_is_room() {
    let (folder, tenant) = (TempFolder::new(), Tenant::default());
    let store = Sqlite::open(folder.join("store.db"), Options::default().max_bytes(LIMIT)).unwrap();
    let hub = hub_on(Arc::new(store)).await;
    let mut stored = 0;
    loop {
        assert!(hub.store_errors().is_empty(), "it accepted the last state");
        let (context, text) = (format!("t{stored}/notes").parse().unwrap(), "x".repeat(20_000));
        let state = json!({"text": text});
        if hub.state().set_state(&tenant, &context, StateKind::Business, state, None).await.is_err() {
            break;
        }
        stored += 1;
    }
    assert!(!hub.store_errors().is_empty() && size(&hub).is_full, "{:?} after {stored}", size(&hub));
    for number in 0..stored / 2 {
        hub.delete_thread(&tenant, &ThreadId::new(format!("t{number}")).unwrap()).await.unwrap();
    }
    assert!(hub.store_errors().is_empty() && !size(&hub).is_full, "{:?}", size(&hub));
}
