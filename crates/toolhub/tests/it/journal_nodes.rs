//! Hubs that share a store: a live hub closes the calls of a dead one, once, and no others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use toolhub::{
    BoxFuture, CallHandle,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, Scope, StoreError, Table, Watcher},
    clock::Timestamp,
    ids::CallId,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

use crate::{faulty_store::FaultyStore, journal::run_and_crash};

const SECOND: Duration = Duration::from_secs(1);

fn default_tenant() -> Tenant {
    Tenant::default()
}

async fn outcome(hub: &ToolHub, call: CallId) -> Option<Outcome> {
    hub.call_record(&default_tenant(), call).await.unwrap().and_then(|record| record.outcome)
}

/// Two calls that a dead hub left open in this store.
fn leave_calls_open(store: &Arc<Memory>) -> Vec<CallId> {
    let ((pay, paying), store) = (scripted("pay", [ScriptStep::Hang, ScriptStep::Hang]), store.clone());
    run_and_crash(
        async move || ToolHub::builder().shared_store(store).tool(pay).build().await.unwrap(),
        |hub| {
            let calls = vec![
                hub.call("pay", json!({})).thread("t").idempotency_key("k").start(),
                hub.call("pay", json!({})).start(),
            ];
            let ids: Vec<CallId> = calls.iter().map(CallHandle::id).collect();
            (calls, ids)
        },
        move || paying.recorded_arguments().len() == 2,
    )
}

async fn hub_on_shared_store(
    store: &Arc<Memory>,
    clock: &TestClock,
    steps: impl IntoIterator<Item = ScriptStep>,
) -> ToolHub {
    let tool = scripted("pay", steps).0.timeout(1000 * SECOND);
    ToolHub::builder().shared_store(store.clone()).clock(clock.clone()).tool(tool).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_hubs_close_each_call_of_the_dead_once_and_leave_the_living_alone() {
    let (store, clock): (Arc<Memory>, _) = (Arc::default(), TestClock::new());
    let calls = leave_calls_open(&store);
    let first =
        hub_on_shared_store(&store, &clock, [ScriptStep::Wait(100 * SECOND), ScriptStep::Return(json!("paid"))]).await;
    let second = hub_on_shared_store(&store, &clock, []).await;
    let mut recorders = [EventRecorder::new(&first), EventRecorder::new(&second)];
    let alive = first.call("pay", json!({})).thread("t").start();
    tokio::time::sleep(10 * SECOND).await;
    for call in &calls {
        assert_eq!(outcome(&second, *call).await, None, "its node may only be slow");
    }
    let early = second.call("pay", json!({})).thread("t").idempotency_key("k").await;
    early.assert_error(ErrorKind::IdempotencyInProgress);
    tokio::time::sleep(20 * SECOND).await;
    for call in &calls {
        outcome(&second, *call).await.unwrap().assert_error(ErrorKind::Interrupted);
        let ends: usize = recorders.iter_mut().map(|recorder| recorder.end_count(*call)).sum();
        assert_eq!(ends, 1);
    }
    assert!(second.call("pay", json!({})).thread("t").idempotency_key("k").await.replayed);
    // The system clock jumps by a day, and back: no node is declared dead.
    for turned in [24 * 3600 * 1000, -24 * 3600 * 1000] {
        clock.jump(turned);
        tokio::time::sleep(20 * SECOND).await;
    }
    assert_eq!(alive.await.assert_success(), &json!("paid"));
    for recorder in &mut recorders {
        assert!(calls.iter().all(|call| recorder.end_count(*call) <= 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_comes_after_the_dead_closes_their_calls_without_a_call_of_its_own() {
    let (store, clock): (Arc<Memory>, _) = (Arc::default(), TestClock::new());
    let calls = leave_calls_open(&store);
    let hub = hub_on_shared_store(&store, &clock, []).await;
    tokio::time::sleep(30 * SECOND).await;
    outcome(&hub, calls[0]).await.unwrap().assert_error(ErrorKind::Interrupted);
    let open = Scan::new(Table::OpenCalls, Scope::All);
    assert!(store.scan(open, Timestamp::default()).await.unwrap().rows.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_goes_down_in_good_order_takes_its_name_away() {
    let (store, clock): (Arc<Memory>, _) = (Arc::default(), TestClock::new());
    let hub = hub_on_shared_store(&store, &clock, []).await;
    let nodes =
        async || store.scan(Scan::new(Table::Nodes, Scope::All), Timestamp::default()).await.unwrap().rows.len();
    assert_eq!(nodes().await, 2, "its own row, and that of the maintenance");
    drop(hub);
    tokio::time::sleep(SECOND).await;
    assert_eq!(nodes().await, 0);
}

/// A store that refuses the heartbeats of nodes while it is `deaf`.
struct HeartbeatFailingStore {
    memory: Arc<Memory>,
    rejects_heartbeats: AtomicBool,
}

impl Backend for HeartbeatFailingStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.memory.load(keys, now)
    }
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        let of_nodes = batch.writes.iter().any(|write| write.table == Table::Nodes);
        if of_nodes && self.rejects_heartbeats.load(Ordering::Acquire) {
            return Box::pin(async { Err(StoreError::Unavailable("heartbeats are refused".into())) });
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

#[derive(Default, Serialize, Deserialize)]
struct Count(u32);
impl ToolState for Count {
    const NAME: &'static str = "count";
}

async fn count(_: NoArguments, mut count: State<Count>) -> Result<u32, ToolError> {
    count.0 += 1;
    tokio::time::sleep(1_500 * SECOND).await;
    Ok(count.0)
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_was_taken_for_dead_writes_nothing_more_of_its_call() {
    let (memory, clock): (Arc<Memory>, _) = (Arc::default(), TestClock::new());
    let deaf = Arc::new(HeartbeatFailingStore { memory: memory.clone(), rejects_heartbeats: AtomicBool::default() });
    let slow = tool("count", count).timeout(10_000 * SECOND);
    let unheard = ToolHub::builder().shared_store(deaf.clone()).clock(clock.clone()).tool(slow).build().await.unwrap();
    deaf.rejects_heartbeats.store(true, Ordering::Release);
    let other = hub_on_shared_store(&memory, &clock, []).await;
    let mut recorder = EventRecorder::new(&unheard);
    let running = unheard.call("count", json!({})).thread("t").start();
    let id = running.id();
    // Its open calls are noticed late, because its heartbeats are refused.
    tokio::time::sleep(700 * SECOND).await;
    assert!(outcome(&other, id).await.is_some());
    let ended = running.await;
    ended.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
    assert_eq!(outcome(&other, id).await, Some(ended), "there is one outcome, and all hubs agree");
    assert_eq!(recorder.end_count(id), 1);
    let states = Scan::new(Table::State, Scope::All).prefix("count/business");
    assert!(memory.scan(states, Timestamp::default()).await.unwrap().rows.is_empty(), "its state was not committed");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_could_not_be_written_down_is_written_when_the_store_is_back() {
    let store = Arc::new(FaultyStore::default());
    let failing_store = store.clone();
    let pay = move |_: NoArguments| {
        failing_store.unavailable.store(true, Ordering::Release);
        async { Ok::<_, ToolError>("paid") }
    };
    let hub = ToolHub::builder().shared_store(store.clone()).tool(tool("pay", pay)).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let first = hub.call("pay", json!({})).idempotency_key("k").await;
    first.assert_effect(Effect::Done).assert_error(ErrorKind::StoreUnavailable);
    tokio::time::sleep(60 * SECOND).await;
    store.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(outcome(&hub, first.id).await, Some(first.clone()), "the outcome its caller got");
    assert_eq!(recorder.end_count(first.id), 1, "its end was published once");
    let replayed = hub.call("pay", json!({})).idempotency_key("k").await;
    assert!(replayed.replayed && replayed.output == "paid", "it was paid once");
}
