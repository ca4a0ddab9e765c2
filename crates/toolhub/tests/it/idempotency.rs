//! Idempotency keys: the same key has one effect and one outcome.

use std::{sync::Arc, time::Duration};

use toolhub::{
    ToolHub,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::Timestamp,
    ids::Tenant,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, ScriptedTool, TestClock, scripted},
};

async fn hub_on(
    steps: impl IntoIterator<Item = ScriptStep>,
    store: Arc<dyn Backend>,
    clock: TestClock,
) -> (ToolHub, ScriptedTool) {
    let (pay, script) = scripted("pay", steps);
    let (refund, _) = scripted("refund", []);
    let hub =
        ToolHub::builder().shared_store(store).clock(clock).tools([pay.no_retry(), refund]).build().await.unwrap();
    (hub, script)
}

async fn in_memory_hub(steps: impl IntoIterator<Item = ScriptStep>) -> (ToolHub, ScriptedTool) {
    hub_on(steps, Arc::new(Memory::new()), TestClock::new()).await
}

#[tokio::test(start_paused = true)]
async fn a_repeated_key_gets_the_first_answer_and_the_tool_runs_once() {
    let (hub, script) =
        in_memory_hub([ScriptStep::Return(json!("paid")), ScriptStep::Return(json!("paid twice"))]).await;
    let first = hub.call("pay", json!({"sum": 5})).idempotency_key("k1").await;
    assert!(!first.replayed);
    for _ in 0..3 {
        let replayed = hub.call("pay", json!({"sum": 5})).idempotency_key("k1").await;
        assert_eq!(replayed.assert_success(), &json!("paid"));
        assert!(replayed.replayed);
        assert_eq!((replayed.id, replayed.effect), (first.id, Effect::Done));
    }
    assert_eq!(script.recorded_arguments().len(), 1);
    let other = hub.call("pay", json!({"sum": 5})).idempotency_key("k2").await;
    assert_eq!(other.assert_success(), &json!("paid twice"));
}

#[tokio::test(start_paused = true)]
async fn failures_are_answered_alike_too() {
    let refused = ToolError::refused("not today").retryable(Some(Duration::from_secs(2)));
    let (hub, script) =
        in_memory_hub([ScriptStep::Fail(ToolError::new("declined")), ScriptStep::Fail(refused), ScriptStep::Hang])
            .await;
    for key in ["declined", "refused"] {
        let first = hub.call("pay", json!({})).idempotency_key(key).await;
        let replayed = hub.call("pay", json!({})).idempotency_key(key).await;
        assert_eq!((replayed.error, replayed.replayed), (first.error, true));
    }
    let late = hub.call("pay", json!({})).idempotency_key("slow").await;
    late.assert_error(ErrorKind::Timeout);
    hub.call("pay", json!({})).idempotency_key("slow").await.assert_error(ErrorKind::Timeout);
    assert_eq!(script.recorded_arguments().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_the_end_of_the_call_that_asked_for_it() {
    let (hub, _) = in_memory_hub([]).await;
    let mut recorder = EventRecorder::new(&hub);
    let call = |model: &'static str| hub.call("pay", json!({})).idempotency_key("k").model_call(model);
    let (first, second) = (call("m1"), call("m2"));
    let (first_id, second_id) = (first.id(), second.id());
    first.await.assert_success();
    let replayed = second.await;
    assert_eq!((replayed.id, replayed.model_call.as_deref()), (first_id, Some("m2")));
    assert_eq!((recorder.end_count(first_id), recorder.end_count(second_id)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_the_journal_still_holds_its_key() {
    let (pay, script) = scripted("pay", [ScriptStep::Wait(Duration::from_secs(10))]);
    let builder = ToolHub::builder().clock(TestClock::new()).tool(pay).call_retention(Duration::from_secs(1));
    let hub = builder.build().await.unwrap();
    let slow = hub.call("pay", json!({})).idempotency_key("k").start();
    tokio::time::sleep(Duration::from_secs(5)).await;
    hub.call("pay", json!({})).idempotency_key("k").await.assert_error(ErrorKind::IdempotencyInProgress);
    slow.await.assert_success();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(hub.call("pay", json!({})).idempotency_key("k").await.replayed);
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_other_arguments_is_refused_and_one_that_was_refused_is_still_free() {
    let (hub, script) = in_memory_hub([]).await;
    hub.call("pay", json!("not an object")).idempotency_key("k").await.assert_error(ErrorKind::ArgumentsInvalid);
    hub.call("pay", json!({"sum": 5, "to": "ann"})).idempotency_key("k").await.assert_success();
    hub.call("pay", json!({"sum": 6, "to": "ann"}))
        .idempotency_key("k")
        .await
        .assert_error(ErrorKind::IdempotencyKeyReused);
    let reordered: Value = serde_json::from_str(r#"{"to": "ann", "sum": 5}"#).unwrap();
    assert!(hub.call("pay", reordered).idempotency_key("k").await.replayed);
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_arguments_are_the_same_however_they_are_written() {
    let (hub, script) = in_memory_hub([]).await;
    hub.call("pay", Value::Null).idempotency_key("k").await.assert_success();
    assert!(hub.call("pay", Value::Null).idempotency_key("k").await.replayed);
    assert!(hub.call("pay", json!({})).idempotency_key("k").await.replayed);
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_belongs_to_a_tool_and_a_tenant() {
    let (hub, _) = in_memory_hub([]).await;
    hub.call("pay", json!({})).idempotency_key("k").await.assert_success();
    assert!(!hub.call("refund", json!({})).idempotency_key("k").await.replayed);
    let foreign = Tenant::new("other").unwrap();
    assert!(!hub.call("pay", json!({})).idempotency_key("k").tenant(foreign).await.replayed);
}

#[tokio::test(start_paused = true)]
async fn the_same_key_in_another_thread_is_another_request() {
    let (hub, script) = in_memory_hub([]).await;
    let call = |key: &'static str| hub.call("pay", json!({})).idempotency_key(key);
    call("k").thread("a").await.assert_success();
    assert!(call("k").thread("a").await.replayed);
    for foreign in [call("k").thread("b"), call("k")] {
        foreign.await.assert_effect(Effect::None).assert_error(ErrorKind::IdempotencyKeyReused);
    }
    call("none").await.assert_success();
    call("none").thread("a").await.assert_error(ErrorKind::IdempotencyKeyReused);
    assert!(call("none").await.replayed);
    assert_eq!(script.recorded_arguments().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_thread_is_repeated_although_the_hub_mints_a_thread_for_each() {
    let (pay, script) = scripted("pay", []);
    let (ask, _) = scripted("ask", []);
    let hub = ToolHub::builder().clock(TestClock::new()).tools([pay.after("ask"), ask]).build().await.unwrap();
    hub.call("ask", json!({})).thread("a").await.assert_success();
    hub.call("pay", json!({})).thread("a").idempotency_key("named").await.assert_success();
    hub.call("pay", json!({})).idempotency_key("named").await.assert_error(ErrorKind::IdempotencyKeyReused);
    let batch = || {
        hub.batch([hub.call("ask", json!({})).idempotency_key("b1"), hub.call("pay", json!({})).idempotency_key("b2")])
    };
    for outcome in batch().await {
        assert!(!outcome.replayed);
        outcome.assert_success();
    }
    assert!(batch().await.iter().all(|outcome| outcome.replayed));
    assert_eq!(script.recorded_arguments().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_many_callers_with_one_key_one_runs() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let (hub, script) = hub_on([ScriptStep::Wait(Duration::from_secs(1))], store.clone(), TestClock::new()).await;
    let calls: Vec<_> = (0..50).map(|_| hub.call("pay", json!({})).idempotency_key("k").start()).collect();
    let mut done = 0;
    for call in calls {
        let outcome = call.await;
        match outcome.error_kind() {
            None => done += 1,
            Some(kind) => assert_eq!(kind, ErrorKind::IdempotencyInProgress),
        }
    }
    assert_eq!((done, script.recorded_arguments().len()), (1, 1));
    assert!(hub.call("pay", json!({})).idempotency_key("k").await.replayed);
    let calls = Scan::new(Table::Calls, Scope::All);
    let rows = store.scan(calls, Timestamp::default()).await.unwrap().rows;
    assert_eq!(rows.len(), 1, "a call that did not get the key leaves no record");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_remembered_by_the_store_for_a_day() {
    let (store, clock): (Arc<dyn Backend>, _) = (Arc::new(Memory::new()), TestClock::new());
    let (first, _) = hub_on([], store.clone(), clock.clone()).await;
    first.call("pay", json!({})).idempotency_key("k").await.assert_success();
    drop(first);
    let (second, script) = hub_on([], store, clock.clone()).await;
    assert!(second.call("pay", json!({})).idempotency_key("k").await.replayed);
    clock.advance(Duration::from_secs(25 * 3600)).await;
    assert!(!second.call("pay", json!({})).idempotency_key("k").await.replayed);
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_and_comes_back_makes_no_keyed_call_run_twice_and_nothing_expire() {
    let (hour, year) = (3_600_000, 365 * 24 * 3_600_000);
    let (clock, minute) = (TestClock::new(), Duration::from_secs(60));
    let (tool, script) = scripted("pay", []);
    let hub = ToolHub::builder().clock(clock.without_jumps()).tool(tool).build().await.unwrap();
    let first = hub.call("pay", json!({})).idempotency_key("k").await;
    for jump in [hour, -hour, year, -year] {
        clock.jump(jump);
        for _ in 0..6 {
            tokio::time::sleep(minute / 6).await;
            let repeated = hub.call("pay", json!({})).idempotency_key("k").await;
            assert!(repeated.replayed && repeated.id == first.id, "after a jump of {jump} ms");
        }
        let record = hub.call_record(&toolhub::ids::Tenant::default(), first.id).await.unwrap();
        assert!(record.is_some(), "after a jump of {jump} ms");
        clock.jump(-jump);
        tokio::time::sleep(minute).await;
        assert!(hub.call("pay", json!({})).idempotency_key("k").await.replayed);
    }
    assert_eq!(script.recorded_arguments().len(), 1);
}
