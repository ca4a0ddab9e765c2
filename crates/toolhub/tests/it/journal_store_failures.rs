//! The journal while its store fails: what could not be written is written later, as the caller saw it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use toolhub::{
    backend::{Backend, Batch, Change, Durability, Expect, Memory, Partition, Scan, Scope, Table, Write},
    clock::Clock,
    ids::CallId,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

use crate::{
    faulty_store::FaultyStore,
    intercepted_store::{CommitAction, InterceptedStore},
    journal::run_and_crash,
};

const SECOND: Duration = Duration::from_secs(1);

async fn outcome(hub: &ToolHub, call: CallId) -> Option<Outcome> {
    hub.call_record(&Tenant::default(), call).await.unwrap().and_then(|record| record.outcome)
}

/// Whether a commit writes a row of this table.
fn writes_table(batch: &Batch, table: Table) -> bool {
    batch.writes.iter().any(|write| write.table == table)
}

/// A call with the key `k` that a dead hub left open in this store.
fn leave_call_open(store: &Arc<Memory>) -> CallId {
    let ((pay, paying), store) = (scripted("pay", [ScriptStep::Hang]), store.clone());
    run_and_crash(
        async move || ToolHub::builder().shared_store(store).tool(pay).build().await.unwrap(),
        |hub| {
            let call = hub.call("pay", json!({})).idempotency_key("k").start();
            let id = call.id();
            (vec![call], id)
        },
        move || paying.recorded_arguments().len() == 1,
    )
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_that_failed_is_written_when_the_store_is_back() {
    let store = Arc::new(FaultyStore::default());
    let failing = store.clone();
    let pay = move |_: NoArguments| {
        failing.unavailable.store(true, Ordering::Release);
        async { Err::<(), _>(ToolError::new("no money")) }
    };
    let hub = ToolHub::builder().shared_store(store.clone()).tool(tool("pay", pay)).build().await.unwrap();
    let first = hub.call("pay", json!({})).idempotency_key("k").await;
    first.assert_error(ErrorKind::ToolError);
    store.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(outcome(&hub, first.id).await, Some(first), "the outcome its caller got");
    let repeated = hub.call("pay", json!({})).idempotency_key("k").await;
    assert!(repeated.replayed, "{repeated:?}");
    repeated.assert_error(ErrorKind::ToolError);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_that_was_run_again_is_written_when_the_store_is_back() {
    let store: Arc<InterceptedStore> = Arc::default();
    let id = leave_call_open(&store.memory);
    let unavailable = Arc::new(AtomicBool::new(false));
    let (failing, is_unavailable) = (unavailable.clone(), unavailable.clone());
    store.before_commits(move |_| {
        let action =
            if is_unavailable.load(Ordering::Acquire) { CommitAction::Unavailable } else { CommitAction::Apply };
        Box::pin(async { action })
    });
    let pay = tool("pay", move |_: NoArguments| {
        failing.store(true, Ordering::Release);
        async { Ok::<_, ToolError>("paid") }
    });
    let hub = ToolHub::builder().shared_store(store).tool(pay.idempotent().rerun_interrupted()).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    tokio::time::sleep(30 * SECOND).await;
    assert!(unavailable.load(Ordering::Acquire), "it was rerun");
    assert_eq!(outcome(&hub, id).await, None, "and the outcome could not be written");
    unavailable.store(false, Ordering::Release);
    tokio::time::sleep(30 * SECOND).await;
    let ended = outcome(&hub, id).await.expect("it has an outcome");
    assert_eq!((ended.effect, ended.output), (Effect::Done, json!("paid")));
    assert_eq!(recorder.end_count(id), 1);
    assert!(hub.call("pay", json!({})).idempotency_key("k").await.replayed);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_takeover_was_not_acknowledged_is_closed_soon() {
    let store: Arc<InterceptedStore> = Arc::default();
    let id = leave_call_open(&store.memory);
    let unheard = AtomicUsize::new(0);
    store.before_commits(move |batch| {
        let first = writes_table(batch, Table::OpenCalls) && unheard.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move { if first { CommitAction::LoseAck } else { CommitAction::Apply } })
    });
    let (pay, paying) = scripted("pay", []);
    let hub = ToolHub::builder().shared_store(store).tool(pay.idempotent().rerun_interrupted()).build().await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    let closed = outcome(&hub, id).await.expect("it has an outcome");
    closed.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
    assert_eq!(paying.recorded_arguments().len(), 0, "not here, but the dead hub had started it");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_nothing_is_not_asked_without_a_pause() {
    let store: Arc<InterceptedStore> = Arc::default();
    let id = leave_call_open(&store.memory);
    let (attempts, full) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (counter, is_full) = (attempts.clone(), full.clone());
    store.before_commits(move |batch| {
        // The hub is there as a node.
        let refused = is_full.load(Ordering::Acquire) && !writes_table(batch, Table::Nodes);
        let attempts =
            counter.fetch_add(usize::from(refused && writes_table(batch, Table::OpenCalls)), Ordering::Relaxed);
        Box::pin(async move {
            if attempts > 100 {
                // Otherwise time would never advance, and the test never end.
                tokio::time::sleep(SECOND).await;
            }
            if refused { CommitAction::Unavailable } else { CommitAction::Apply }
        })
    });
    let (pay, paying) = scripted("pay", [ScriptStep::Return(json!("paid"))]);
    let hub = ToolHub::builder().shared_store(store).tool(pay.idempotent().rerun_interrupted()).build().await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert!(attempts.load(Ordering::Relaxed) < 100, "it is retried in a loop");
    full.store(false, Ordering::Release);
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(outcome(&hub, id).await.expect("it has an outcome").output, json!("paid"));
    assert_eq!(paying.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_refused_while_it_was_opened_is_closed_as_one_that_changed_nothing() {
    // Whose answer is lost: that of the opening, or that of the claim and of its withdrawal.
    for lost in [Table::OpenCalls, Table::Claims] {
        let store: Arc<InterceptedStore> = Arc::default();
        let lose = Arc::new(AtomicBool::new(true));
        let loses = lose.clone();
        store.before_commits(move |batch| {
            let removes = batch.writes.iter().any(|write| matches!(write.change, toolhub::backend::Change::Remove));
            let action = match loses.load(Ordering::Acquire) {
                true if lost == Table::Claims && removes => CommitAction::Unavailable,
                true if writes_table(batch, lost) => CommitAction::LoseAck,
                _ => CommitAction::Apply,
            };
            Box::pin(async { action })
        });
        let (pay, paying) = scripted("pay", [ScriptStep::Return(json!("paid"))]);
        let hub = ToolHub::builder().shared_store(store).tool(pay).build().await.unwrap();
        let refused = hub.call("pay", json!({})).idempotency_key("k").await;
        refused.assert_effect(Effect::None).assert_error(ErrorKind::StoreUnavailable);
        lose.store(false, Ordering::Release);
        tokio::time::sleep(20 * SECOND).await;
        let closed = outcome(&hub, refused.id).await.expect("it has an outcome");
        closed.assert_effect(Effect::None).assert_error(ErrorKind::Interrupted);
        let repeated = hub.call("pay", json!({})).idempotency_key("k").await;
        assert_eq!(repeated.assert_success(), &json!("paid"), "nothing had happened, so it is executed now");
        assert_eq!(paying.recorded_arguments().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_opening_arrives_late_is_closed_as_its_caller_was_told() {
    let (store, late): (Arc<InterceptedStore>, Arc<Mutex<Option<Batch>>>) = Default::default();
    let sent = late.clone();
    store.before_commits(move |batch| {
        let is_opening = writes_table(batch, Table::OpenCalls) && sent.lock().unwrap().is_none();
        if is_opening {
            *sent.lock().unwrap() = Some(batch.clone());
        }
        Box::pin(async move { if is_opening { CommitAction::LoseRequest } else { CommitAction::Apply } })
    });
    let clock = TestClock::new();
    let builder = || ToolHub::builder().shared_store(store.clone()).clock(clock.clone());
    // The first node does the maintenance; the call is made on another one.
    let first = builder().build().await.unwrap();
    let (pay, paying) = scripted("pay", []);
    let hub = builder().tool(pay).build().await.unwrap();
    let refused = hub.call("pay", json!({})).thread("t").await;
    refused.assert_effect(Effect::None).assert_error(ErrorKind::StoreUnavailable);
    // Whatever the nodes look at now, the call is not there.
    tokio::time::sleep(60 * SECOND).await;
    let batch = late.lock().unwrap().clone().unwrap();
    let _ = store.memory.commit(batch, clock.now()).await;
    tokio::time::sleep(1_300 * SECOND).await;
    let open = store.memory.scan(Scan::new(Table::OpenCalls, Scope::All), clock.now()).await.unwrap();
    assert!(open.rows.is_empty(), "it does not stay open");
    let closed = outcome(&first, refused.id).await.expect("it has an outcome");
    closed.assert_effect(Effect::None).assert_error(ErrorKind::Interrupted);
    assert_eq!(paying.recorded_arguments().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_opening_is_lost_during_the_closing_of_another_one_is_closed_too() {
    let (store, lose_ends): (Arc<InterceptedStore>, Arc<AtomicBool>) = Default::default();
    let (loses, closing, closed) = (lose_ends.clone(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (reached, go_on) = (closing.clone(), closed.clone());
    store.before_commits(move |batch| {
        let ends = batch.writes.iter().any(|write| write.table == Table::Calls && write.change != Change::Keep);
        let (loses, reached, go_on) = (loses.load(Ordering::Acquire), reached.clone(), go_on.clone());
        Box::pin(async move {
            match (ends, loses) {
                (true, true) => return CommitAction::LoseRequest,
                // The opening of the second call.
                (false, false) => return CommitAction::LoseRequest,
                (false, true) => {}
                (true, false) => {
                    reached.notify_one();
                    go_on.notified().await;
                }
            }
            CommitAction::Apply
        })
    });
    lose_ends.store(true, Ordering::Release);
    let (pay, _) = scripted("pay", [ScriptStep::Return(json!("paid"))]);
    let hub = ToolHub::builder().store(store).tool(pay).build().await.unwrap();
    let unwritten = hub.call("pay", json!({})).await;
    unwritten.assert_error(ErrorKind::StoreUnavailable);
    lose_ends.store(false, Ordering::Release);
    closing.notified().await;
    // The search for open calls has taken the outcomes that were not written so far.
    let refused = hub.call("pay", json!({})).await;
    refused.assert_error(ErrorKind::StoreUnavailable);
    closed.notify_one();
    tokio::time::timeout(60 * SECOND, closing.notified()).await.expect("the second call is closed, too");
    closed.notify_one();
    tokio::time::sleep(SECOND).await;
    outcome(&hub, unwritten.id).await.expect("it has an outcome");
    outcome(&hub, refused.id).await.expect("it has an outcome").assert_effect(Effect::None);
}

#[tokio::test(start_paused = true)]
async fn the_caller_of_a_call_that_another_node_may_resume_is_not_told_that_nothing_happened() {
    let store: Arc<InterceptedStore> = Arc::default();
    let lost = AtomicUsize::new(0);
    store.before_commits(move |batch| {
        let is_opening = writes_table(batch, Table::OpenCalls) && lost.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move { if is_opening { CommitAction::LoseAck } else { CommitAction::Apply } })
    });
    let pay = scripted("pay", []).0.idempotent().rerun_interrupted();
    let hub = ToolHub::builder().shared_store(store).tool(pay).build().await.unwrap();
    let refused = hub.call("pay", json!({})).thread("t").await;
    refused.assert_effect(Effect::Unknown).assert_error(ErrorKind::StoreUnavailable);
    assert!(!refused.error.unwrap().retryable);
}

/// Whether a commit writes a record that is longer than this.
fn has_long_record(batch: &Batch) -> bool {
    batch.writes.iter().any(|write| matches!(&write.change, Change::Put { value, .. } if value.len() > 5_000))
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_store_will_never_take_becomes_one_that_says_less() {
    let store: Arc<InterceptedStore> = Arc::default();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = attempts.clone();
    store.before_commits(move |batch| {
        let long = has_long_record(batch);
        counter.fetch_add(usize::from(long), Ordering::Relaxed);
        Box::pin(async move { if long { CommitAction::Reject } else { CommitAction::Apply } })
    });
    let (pay, paying) = scripted("pay", [ScriptStep::Return(json!({"receipt": "x".repeat(10_000)}))]);
    let hub = ToolHub::builder().shared_store(store.clone()).tool(pay).build().await.unwrap();
    let first = hub.call("pay", json!({})).thread("t").idempotency_key("k").await;
    first.assert_effect(Effect::Done);
    tokio::time::sleep(3_600 * SECOND).await;
    let ended = outcome(&hub, first.id).await.expect("it has an outcome");
    ended.assert_effect(Effect::Done).assert_error(ErrorKind::Interrupted);
    assert!(attempts.load(Ordering::Relaxed) < 10, "it is retried in a loop: {}", attempts.load(Ordering::Relaxed));
    let repeated = hub.call("pay", json!({})).thread("t").idempotency_key("k").await;
    assert!(repeated.replayed, "{repeated:?}");
    assert_eq!(paying.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_takes_any_end_is_asked_now_and_then() {
    let store: Arc<InterceptedStore> = Arc::default();
    let id = leave_call_open(&store.memory);
    let (attempts, takes_none) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (count, never) = (attempts.clone(), takes_none.clone());
    store.before_commits(move |batch| {
        let refused = never.load(Ordering::Acquire) && writes_table(batch, Table::Calls);
        count.fetch_add(usize::from(refused), Ordering::Relaxed);
        Box::pin(async move { if refused { CommitAction::Reject } else { CommitAction::Apply } })
    });
    let hub = ToolHub::builder().shared_store(store).tool(scripted("pay", []).0).build().await.unwrap();
    tokio::time::sleep(3_600 * SECOND).await;
    let times = attempts.load(Ordering::Relaxed);
    assert!((2..40).contains(&times), "{times} times in an hour");
    takes_none.store(false, Ordering::Release);
    tokio::time::sleep(1_200 * SECOND).await;
    outcome(&hub, id).await.expect("it has an outcome").assert_error(ErrorKind::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn an_open_call_that_nobody_can_read_holds_its_thread_for_as_long_as_records_are_kept() {
    let (store, clock) = (Arc::new(Memory::new()), TestClock::new());
    let thread = ThreadId::new("t").unwrap();
    let partition = Partition::for_thread(Tenant::default(), thread.clone());
    let change = Change::Put { value: b"{ nonsense".as_slice().into(), schema: 1, expires: None };
    let (id, expect, durability) = ("call_x".into(), Expect::Any, Durability::KillSafe);
    let damaged = Write { table: Table::OpenCalls, id, expect, change, durability };
    store.commit(Batch::new(partition).with(damaged), clock.now()).await.unwrap();
    let hub = ToolHub::builder().store(store.clone()).clock(clock.clone()).call_retention(48 * 3_600 * SECOND);
    let hub = hub.tool(scripted("look", []).0).build().await.unwrap();
    let open = async || store.scan(Scan::new(Table::OpenCalls, Scope::All), clock.now()).await.unwrap().rows.len();
    for (hours, left) in [(0, 1), (40, 1), (12, 0)] {
        tokio::time::sleep(hours * 3_600 * SECOND).await;
        assert_eq!(open().await, left, "after {hours} hours more");
    }
    hub.call("look", json!({})).thread("t").await.assert_success();
}
