//! The records of plain read-only calls: written afterwards, in batches, and bounded in number.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use toolhub::{
    BoxFuture, CallQuery, ReadOnlyCalls, Sqlite, Status,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, Scope, StoreError, Table, Watcher},
    clock::Timestamp,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};
use toolhub_testkit::TempFolder;

use crate::{faulty_store::FaultyStore, log_capture};

/// A memory store that counts the call rows in each batch.
#[derive(Default)]
struct BatchCountingStore {
    memory: Memory,
    batches: Mutex<Vec<usize>>,
    /// The next batch with call rows panics.
    panics: AtomicBool,
    /// Batches with call rows are never answered.
    stalls: AtomicBool,
}

impl BatchCountingStore {
    /// How many call rows each batch had so far, sorted by size.
    fn batches(&self) -> Vec<usize> {
        let mut batches = self.batches.lock().unwrap().clone();
        batches.sort_unstable();
        batches
    }
}

impl Backend for BatchCountingStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.memory.load(keys, now)
    }
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        let calls = batch.writes.iter().filter(|write| write.table == Table::Calls).count();
        if calls > 0 {
            assert!(!self.panics.swap(false, Ordering::Relaxed), "a bug in the store");
            if self.stalls.load(Ordering::Relaxed) {
                return Box::pin(std::future::pending());
            }
            self.batches.lock().unwrap().push(calls);
        }
        self.memory.commit(batch, now)
    }
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.memory.scan(scan, now)
    }
    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(most, now)
    }
    fn watch(&self, table: Table) -> Watcher {
        self.memory.watch(table)
    }
}

async fn read_only_hub(steps: impl IntoIterator<Item = ScriptStep>) -> (ToolHub, Arc<BatchCountingStore>) {
    let store: Arc<BatchCountingStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new());
    let tool = scripted("read", steps).0.read_only();
    (hub.tool(tool).build().await.unwrap(), store)
}

async fn count_call_rows(store: &dyn Backend) -> usize {
    let scan = Scan::new(Table::Calls, Scope::All).limit(100_000);
    store.scan(scan, Timestamp::default()).await.unwrap().rows.len()
}

fn default_tenant() -> Tenant {
    Tenant::default()
}

#[tokio::test]
async fn a_read_that_others_wait_for_leaves_a_record_each_time() {
    let ((read, _), (report, _)) = (scripted("read", []), scripted("report", []));
    let hub = ToolHub::builder().store(Memory::new()).tool(read.read_only()).tool(report.after("read"));
    let hub = hub.build().await.unwrap();
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(hub.call("read", json!({"n": n})).thread("t").await.id);
    }
    // Ids of the same millisecond have no order.
    ids.sort();
    let page = hub.calls(&default_tenant(), &CallQuery::default()).await.unwrap();
    assert_eq!(page.calls.iter().rev().map(|call| call.id).collect::<Vec<_>>(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_plain_read_leaves_one_record_within_fifty_milliseconds() {
    let steps = [ScriptStep::Return(json!({"large": "output"})), ScriptStep::Fail(ToolError::new("no"))];
    let (hub, store) = read_only_hub(steps).await;
    let good = hub.call("read", json!({"n": 1})).thread("t").caller(Caller::new("ann").unwrap()).model_call("m").await;
    let bad = hub.call("read", json!({"n": 2})).await;
    assert_eq!(count_call_rows(&*store).await, 0, "no call waits for the store");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(count_call_rows(&*store).await, 2);
    let record = hub.call_record(&default_tenant(), good.id).await.unwrap().unwrap();
    assert_eq!((record.caller.as_str(), &record.arguments, record.status), ("ann", &json!({"n": 1}), Status::Success));
    let mut without_output = good.clone();
    without_output.output = Value::Null;
    assert_eq!(record.outcome, Some(without_output), "all but the output, which can be computed again");
    let record = hub.call_record(&default_tenant(), bad.id).await.unwrap().unwrap();
    assert_eq!(record.outcome.unwrap(), bad);
    assert_eq!((hub.journal_stats().written, hub.journal_stats().dropped), (2, 0));
    assert_eq!(hub.call_record(&Tenant::new("other").unwrap(), bad.id).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn only_the_chosen_plain_reads_are_recorded() {
    for (recorded, expected) in [(ReadOnlyCalls::All, 3), (ReadOnlyCalls::Failed, 1), (ReadOnlyCalls::None, 0)] {
        let store: Arc<BatchCountingStore> = Arc::default();
        let steps =
            [ScriptStep::Fail(ToolError::new("no")), ScriptStep::Return(json!(1)), ScriptStep::Return(json!(2))];
        let (read, write) = (scripted("read", steps).0.read_only(), scripted("write", []).0);
        let hub = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new()).read_only_calls(recorded);
        let hub = hub.tools([read, write]).build().await.unwrap();
        for _ in 0..3 {
            hub.call("read", json!({})).thread("t").await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(count_call_rows(&*store).await, expected, "{recorded:?}");
        let written = hub.call("write", json!({})).thread("t").await;
        let keyed = hub.call("read", json!({})).thread("t").idempotency_key("k").await;
        for call in [written, keyed] {
            assert!(hub.call_record(&default_tenant(), call.id).await.unwrap().is_some(), "{recorded:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_read_that_its_caller_drops_leaves_a_cancelled_record() {
    let store: Arc<BatchCountingStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new());
    let endless = dynamic("endless", json!({"type": "object"}), |_: Value, _: CallContext| async {
        std::future::pending::<Result<Value, ToolError>>().await
    });
    let hub = hub.tool(endless.read_only()).build().await.unwrap();
    let call = async { hub.call("endless", json!({"n": 1})).timeout(Duration::from_secs(60)).await };
    assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
    tokio::time::sleep(Duration::from_millis(50)).await;
    let page = hub.calls(&default_tenant(), &CallQuery::default()).await.unwrap();
    let [record] = &page.calls[..] else { panic!("{page:?}") };
    assert_eq!((record.status, &record.arguments), (Status::Cancelled, &json!({"n": 1})));
    assert_eq!(record.outcome.as_ref().unwrap().attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_of_the_store_later_records_are_written() {
    let (hub, store) = read_only_hub([]).await;
    store.panics.store(true, Ordering::Relaxed);
    hub.call("read", json!({"n": 1})).thread("t").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!store.panics.load(Ordering::Relaxed), "the writer panicked");
    hub.call("read", json!({"n": 2})).thread("t").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(count_call_rows(&*store).await, 1, "the restarted writer writes");
    assert_eq!((hub.journal_stats().written, hub.journal_stats().dropped), (1, 1), "lost records are counted");
}

#[tokio::test(start_paused = true)]
async fn all_dropped_records_are_logged_although_a_line_is_written_once_a_minute() {
    let lines = log_capture::start();
    let store: Arc<FaultyStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new());
    let hub = hub.tool(scripted("read", []).0.read_only()).build().await.unwrap();
    store.unavailable.store(true, Ordering::Release);
    let dropped = || {
        let is_drop = |line: &String| line.contains("records of read-only calls were dropped");
        let count = |line: String| line.split_once("dropped=")?.1.split(' ').next()?.parse::<u64>().ok();
        lines().into_iter().filter(is_drop).filter_map(count).collect::<Vec<u64>>()
    };
    for _ in 0..4 {
        hub.call("read", json!({})).await.assert_success();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!((dropped(), hub.journal_stats().dropped), (vec![1], 4));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(dropped(), [3], "the remainder is logged although no more are dropped");
}

#[tokio::test(start_paused = true)]
async fn records_of_one_thread_are_written_together() {
    let (hub, store) = read_only_hub([]).await;
    for _ in 0..450 {
        hub.call("read", json!({})).thread("busy").await.assert_success();
    }
    for _ in 0..3 {
        hub.call("read", json!({})).thread("calm").await.assert_success();
        hub.call("read", json!({})).await.assert_success();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(store.batches(), [1, 1, 1, 3, 50, 200, 200]);
}

/// Calls with arguments of 1 MiB, of which the buffer holds 63.
async fn call_with_large_arguments(hub: &ToolHub, calls: u64) {
    let text = "x".repeat(1 << 20);
    for _ in 0..calls {
        hub.call("read", json!({"text": text})).thread("t").await.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn calls_wait_while_the_buffer_is_full_and_no_record_is_dropped() {
    let (hub, store) = read_only_hub([]).await;
    call_with_large_arguments(&hub, 100).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stats = hub.journal_stats();
    assert_eq!((count_call_rows(&*store).await, stats.written, stats.dropped), (100, 100, 0));
}

/// Faster than any HTTP client: without waits in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_reads_on_sqlite_loses_no_record() {
    let folder = TempFolder::new();
    let store = Arc::new(Sqlite::open(folder.join("store.db"), Default::default()).unwrap());
    let tool = scripted("read", []).0.read_only();
    let hub = ToolHub::builder().shared_store(store.clone()).tool(tool).build().await.unwrap();
    let callers = (0..16).map(|_| {
        let hub = hub.clone();
        tokio::spawn(async move {
            for _ in 0..1_000 {
                hub.call("read", json!({})).await.assert_success();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    hub.shutdown(Duration::from_secs(60)).await;
    assert_eq!((hub.journal_stats().written, hub.journal_stats().dropped), (16_000, 0));
    assert_eq!(count_call_rows(&*store).await, 16_000);
}

#[tokio::test(start_paused = true)]
async fn records_that_a_stalled_store_does_not_take_are_counted_and_dropped() {
    let (hub, store) = read_only_hub([]).await;
    store.stalls.store(true, Ordering::Relaxed);
    call_with_large_arguments(&hub, 66).await;
    assert_eq!(hub.journal_stats().dropped, 3, "the calls themselves succeed");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((hub.journal_stats().written, hub.journal_stats().dropped), (0, 66));
    // The buffer has room again.
    store.stalls.store(false, Ordering::Relaxed);
    call_with_large_arguments(&hub, 5).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((count_call_rows(&*store).await, hub.journal_stats().dropped), (5, 66));
}

#[tokio::test(start_paused = true)]
async fn what_is_noted_is_written_when_the_hub_goes() {
    let (hub, store) = read_only_hub([]).await;
    hub.call("read", json!({})).await.assert_success();
    hub.shutdown(Duration::ZERO).await;
    assert_eq!(count_call_rows(&*store).await, 1);
    let (hub, store) = read_only_hub([]).await;
    hub.call("read", json!({})).await.assert_success();
    drop(hub);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(count_call_rows(&*store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_thread_leaves_no_record_of_reads_behind() {
    let (hub, store) = read_only_hub([]).await;
    hub.call("read", json!({})).thread("t").await.assert_success();
    assert!(hub.delete_thread(&default_tenant(), &ThreadId::new("t").unwrap()).await.unwrap());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(count_call_rows(&*store).await, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_recorded_of_reads_where_no_store_was_handed_in_nor_of_calls_that_were_refused() {
    let hub = ToolHub::builder().tool(scripted("read", []).0.read_only()).build().await.unwrap();
    let read = hub.call("read", json!({})).await;
    assert_eq!(hub.call_record(&default_tenant(), read.id).await.unwrap(), None);
    assert!(hub.calls(&default_tenant(), &CallQuery::default()).await.unwrap().calls.is_empty());

    let (hub, store) = read_only_hub([]).await;
    hub.call("raed", json!({})).thread("t").await.assert_error(ErrorKind::ToolNotFound);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(count_call_rows(&*store).await, 0);
}
