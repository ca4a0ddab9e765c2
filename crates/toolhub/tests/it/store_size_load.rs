//! The size limit of a store under load: clients that never wait for the store, large calls, calls with keys, and threads that
//! hold nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toolhub::{
    CallQuery, Sqlite,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::Timestamp,
    prelude::*,
    sqlite::Options,
    testing::{EventRecorder, TestClock, scripted},
};
use toolhub_testkit::TempFolder;

const MIB: u64 = 1 << 20;

/// What the clients saw.
#[derive(Debug, Default)]
struct Seen {
    largest_size: AtomicU64,
    refused: AtomicU64,
    done: AtomicU64,
}

fn sqlite(folder: &TempFolder, limit: u64) -> Arc<dyn Backend> {
    Arc::new(Sqlite::open(folder.join("store.db"), Options::default().max_bytes(limit)).unwrap())
}

async fn hub_on(store: &Arc<dyn Backend>) -> ToolHub {
    let (read, write) = (scripted("read", []).0.read_only(), scripted("write", []).0);
    ToolHub::builder().shared_store(store.clone()).tool(read).tool(write).build().await.unwrap()
}

/// Eight clients make calls of this size, each in a new thread, without a pause.
async fn load(hub: &ToolHub, tool: &'static str, calls: u64, bytes: usize, keyed: bool) -> Arc<Seen> {
    let (seen, next) = (Arc::new(Seen::default()), Arc::new(AtomicU64::new(0)));
    let clients = (0..8).map(|_| {
        let (hub, seen, next) = (hub.clone(), seen.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return;
                }
                let call = hub.call(tool, json!({"number": number, "text": "x".repeat(bytes)}));
                let call = call.thread(format!("{tool}-{number}").as_str());
                let call = if keyed { call.idempotency_key(format!("key-{number}").as_str()) } else { call };
                let outcome = call.await;
                seen.refused.fetch_add(u64::from(!outcome.is_success()), Ordering::Relaxed);
                seen.done.fetch_add(1, Ordering::Relaxed);
                seen.largest_size.fetch_max(hub.store_size().unwrap().bytes, Ordering::Relaxed);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    seen
}

async fn count_rows(store: &dyn Backend, table: Table) -> usize {
    store.scan(Scan::new(table, Scope::All).limit(1_000_000), Timestamp::default()).await.unwrap().rows.len()
}

/// Plain and writing calls, each in its own thread, many times the size of the store.
async fn check_load(store: Arc<dyn Backend>, limit: u64) {
    let hub = hub_on(&store).await;
    for tool in ["read", "write"] {
        let seen = load(&hub, tool, 6_000, 1000, false).await;
        assert!(seen.largest_size.load(Ordering::Relaxed) <= limit, "{seen:?}");
        assert_eq!((seen.refused.load(Ordering::Relaxed), hub.journal_stats().dropped), (0, 0));
        let newest = hub.calls(&Tenant::default(), &CallQuery::default()).await.unwrap().calls;
        assert_eq!(newest.len(), CallQuery::default().limit, "the newest calls stay");
    }
    let (calls, threads) = (count_rows(&*store, Table::Calls).await, count_rows(&*store, Table::Threads).await);
    assert!(calls > 500 && threads < calls + 500, "{threads} threads, {calls} calls");
    hub.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_file_holds_its_limit_under_load_and_loses_and_refuses_nothing() {
    let folder = TempFolder::new();
    check_load(sqlite(&folder, 4 * MIB), 4 * MIB).await;
    assert!(std::fs::metadata(folder.join("store.db")).unwrap().len() <= 4 * MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_holds_its_limit_under_load_and_loses_nothing() {
    check_load(Arc::new(Memory::with_max_bytes(4 * MIB)), 4 * MIB).await;
}

/// No more calls are removed than needed, also if few of them fill the store.
async fn check_large_calls(store: Arc<dyn Backend>) {
    let hub = hub_on(&store).await;
    let seen = load(&hub, "write", 150, 200_000, false).await;
    assert!(seen.largest_size.load(Ordering::Relaxed) <= 16 * MIB, "{seen:?}");
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0);
    // Seven tenths of the limit are 58 calls.
    let left = count_rows(&*store, Table::Calls).await;
    assert!((45..=80).contains(&left), "{left} calls are left");
    hub.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_large_calls_as_many_go_as_needed() {
    let folder = TempFolder::new();
    check_large_calls(sqlite(&folder, 16 * MIB)).await;
    check_large_calls(Arc::new(Memory::with_max_bytes(16 * MIB))).await;
}

/// Calls with a key go when no others are left, oldest first, and their keys with them.
async fn check_keyed_calls(store: Arc<dyn Backend>) {
    let hub = hub_on(&store).await;
    let seen = load(&hub, "write", 500, 20_000, true).await;
    assert!(seen.largest_size.load(Ordering::Relaxed) <= 4 * MIB, "{seen:?}");
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0);
    let (calls, claims) = (count_rows(&*store, Table::Calls).await, count_rows(&*store, Table::Claims).await);
    assert!(calls > 50 && claims < calls + 50, "{calls} calls, {claims} keys");
    let repeat = async |number: u64| {
        let call = hub.call("write", json!({"number": number, "text": "x".repeat(20_000)}));
        call.thread(format!("write-{number}").as_str()).idempotency_key(format!("key-{number}").as_str()).await.replayed
    };
    assert!(repeat(499).await, "a recent key gets its first outcome");
    assert!(!repeat(0).await, "a key that was removed is a new one");
    hub.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_filled_by_calls_with_keys_loses_the_oldest_of_them() {
    let folder = TempFolder::new();
    check_keyed_calls(sqlite(&folder, 4 * MIB)).await;
    check_keyed_calls(Arc::new(Memory::with_max_bytes(4 * MIB))).await;
}

async fn wait_until(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..20_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never {what}");
}

#[tokio::test]
async fn a_store_filled_by_threads_that_hold_nothing_loses_them() {
    let folder = TempFolder::new();
    for store in [sqlite(&folder, MIB), Arc::new(Memory::with_max_bytes(MIB)) as Arc<dyn Backend>] {
        let hub = hub_on(&store).await;
        for number in 0..6_000 {
            let id = ThreadId::new(format!("empty-{number}")).unwrap();
            hub.create_thread(&Tenant::default(), Some(id)).await.unwrap();
        }
        wait_until("below", async || hub.store_size().unwrap().bytes < MIB / 10 * 8).await;
        let last = ThreadId::new("last").unwrap();
        hub.create_thread(&Tenant::default(), Some(last.clone())).await.unwrap();
        assert!(hub.thread(&Tenant::default(), &last).await.unwrap().is_some());
        hub.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn idle_threads_that_hold_nothing_go_before_calls_and_threads_with_evidence_stay() {
    let store: Arc<dyn Backend> = Arc::new(Memory::with_max_bytes(4 * MIB));
    let (clock, tenant) = (TestClock::new(), Tenant::default());
    let (read, base, next) = (scripted("read", []).0.read_only(), scripted("base", []).0, scripted("next", []).0);
    let hub = ToolHub::builder().shared_store(store.clone()).clock(clock.clone());
    let hub = hub.tool(read).tool(base).tool(next.after("base")).build().await.unwrap();
    hub.call("base", json!({})).thread("kept").await;
    for number in 0..8_000 {
        let id = ThreadId::new(format!("empty-{number}")).unwrap();
        hub.create_thread(&tenant, Some(id)).await.unwrap();
    }
    clock.jump(600_000);
    let mut recorder = EventRecorder::new(&hub);
    let first = hub.call("read", json!({})).thread("first").await;
    for number in 0..900 {
        hub.call("read", json!({"text": "x".repeat(1000)})).thread(format!("t{number}").as_str()).await;
    }
    wait_until("trimmed", async || count_rows(&*store, Table::Threads).await < 8_000).await;
    assert_eq!(hub.store_size().unwrap().trimmed_calls, 0);
    assert!(recorder.names().contains(&"thread.swept"));
    assert!(hub.call_record(&tenant, first.id).await.unwrap().is_some());
    for number in 0..6_000 {
        hub.call("read", json!({"text": "x".repeat(1000)})).thread(format!("u{number}").as_str()).await;
    }
    wait_until("trimmed", async || hub.call_record(&tenant, first.id).await.unwrap().is_none()).await;
    let after = hub.call("next", json!({})).thread("kept").await;
    assert!(after.is_success(), "the evidence is kept: {after:?}");
}
