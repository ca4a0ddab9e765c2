//! Calls that continue without their caller: accepted when an approval is pending, or as soon as they are recorded.
//! Other clients look them up and cancel them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    ApprovalOutcome, ApprovalState, CallQuery, CallReceipt, Cancellation, Status,
    backend::Memory,
    ids::Tenant,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

use crate::{
    accepted_calls::{expect_waiting, record, resolve, wait_for_end},
    faulty_store::FaultyStore,
    gated_tool::{GatedTool, wait_until},
};

const MINUTE: Duration = Duration::from_secs(60);

async fn hub(tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().shared_store(Arc::new(Memory::new())).clock(TestClock::new()).tools(tools).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_nobody_is_answered_with_its_end() {
    let (read, write) = (scripted("read", []).0.read_only(), scripted("write", []).0);
    let hub = hub([read, write, scripted("ask", []).0.confirm()]).await;
    for tool in ["read", "write"] {
        hub.call(tool, json!({})).until_approval().await.into_outcome().unwrap().assert_success();
    }
    let nobody = hub.call("nobody", json!({})).until_approval().await.into_outcome().unwrap();
    nobody.assert_error(ErrorKind::ToolNotFound);
    let cannot = hub.call("ask", json!({})).no_wait().until_approval().await.into_outcome().unwrap();
    cannot.assert_error(ErrorKind::ApprovalRequired);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_is_answered_at_once_and_goes_on_after_the_yes() {
    let (tool, script) = scripted("pay", [ScriptStep::Return(json!("paid"))]);
    let hub = hub([tool.confirm()]).await;
    let (call, approval) = expect_waiting(hub.call("pay", json!({"sum": 5})).thread("t1").until_approval().await);
    let open = record(&hub, call).await;
    assert_eq!((open.status, open.approval), (Status::AwaitingApproval, Some(approval)));
    assert_eq!((&open.arguments, &open.outcome), (&json!({"sum": 5}), &None));
    let of = |status| CallQuery { status: Some(status), ..CallQuery::default() };
    let listed = async |status| hub.calls(&Tenant::default(), &of(status)).await.unwrap().calls;
    assert_eq!(listed(Status::AwaitingApproval).await, [open]);
    assert!(listed(Status::Executing).await.is_empty());
    assert_eq!(script.recorded_arguments().len(), 0);
    resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
    let closed = wait_for_end(&hub, call).await;
    assert_eq!((closed.status, closed.approval), (Status::Success, Some(approval)));
    assert_eq!((closed.outcome.unwrap().output, script.recorded_arguments().len()), (json!("paid"), 1));
    assert!(listed(Status::AwaitingApproval).await.is_empty());
    assert_eq!(listed(Status::Success).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_answered_at_once_ends_once_however_its_question_does() {
    let hub = hub([scripted("pay", []).0.confirm()]).await;
    let mut events = EventRecorder::new(&hub);
    let tenant = Tenant::default();
    let ask = || async { expect_waiting(hub.call("pay", json!({})).until_approval().await) };
    let mut calls = Vec::new();
    let mut check = async |call, status, kind| {
        let record = wait_for_end(&hub, call).await;
        assert_eq!((record.status, record.outcome.unwrap().error_kind()), (status, Some(kind)));
        calls.push(call);
    };
    let (call, approval) = ask().await;
    resolve(&hub, approval, ApprovalOutcome::Cancel).await;
    check(call, Status::Error, ErrorKind::ApprovalDenied).await;

    let (call, approval) = ask().await;
    assert_eq!(hub.cancel_call(&tenant, call).await, Ok(Cancellation::Requested));
    check(call, Status::Cancelled, ErrorKind::Cancelled).await;
    let question = hub.approval(&tenant, approval).await.unwrap().unwrap();
    assert_eq!(question.state, ApprovalState::Withdrawn);

    let (call, _) = ask().await;
    tokio::time::sleep(16 * MINUTE).await;
    check(call, Status::Error, ErrorKind::ApprovalTimeout).await;
    for call in calls {
        assert_eq!(events.end_count(call), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_before_anybody_is_asked_cancels() {
    let busy = GatedTool::new();
    let hub = hub([busy.tool("slow")]).await;
    let request = hub.call("slow", json!({}));
    let id = request.id();
    let mut call = request.until_approval();
    assert!(futures_util::poll!(&mut call).is_pending());
    wait_until(|| busy.running() == 1).await;
    drop(call);
    assert_eq!(wait_for_end(&hub, id).await.status, Status::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn an_asynchronous_call_is_in_the_journal_when_its_caller_is_told() {
    let busy = GatedTool::new();
    let hub = hub([busy.tool("slow").read_only().max_concurrency(1), scripted("ask", []).0.confirm()]).await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        let mut running = hub.call("slow", json!({"n": 1})).detached().start();
        let CallReceipt::Accepted { call, .. } = running.accepted().await else { panic!("it cannot have ended") };
        assert_eq!(call, running.id());
        calls.push(call);
        drop(running);
    }
    wait_until(|| busy.running() == 1 && hub.queued_calls() == 1).await;
    let statuses = [record(&hub, calls[0]).await.status, record(&hub, calls[1]).await.status];
    assert_eq!(statuses, [Status::Executing, Status::Scheduled]);
    assert_eq!(record(&hub, calls[1]).await.arguments, json!({"n": 1}));
    busy.release(2);
    for call in calls {
        assert_eq!(wait_for_end(&hub, call).await.status, Status::Success);
    }
    let mut asks = hub.call("ask", json!({})).detached().start();
    let (call, approval) = expect_waiting(asks.accepted().await);
    assert_eq!(record(&hub, call).await.approval, Some(approval));
    let mut wrong = hub.call("nobody", json!({})).detached().start();
    wrong.accepted().await.into_outcome().unwrap().assert_error(ErrorKind::ToolNotFound);
}

#[tokio::test(start_paused = true)]
async fn somebody_may_wait_for_a_while_and_come_back_later() {
    let busy = GatedTool::new();
    let hub = hub([busy.tool("slow")]).await;
    let mut running = hub.call("slow", json!({})).detached().start();
    assert!(tokio::time::timeout(Duration::from_secs(1), running.outcome()).await.is_err());
    assert!(matches!(running.accepted().await, CallReceipt::Accepted { .. }));
    busy.release(1);
    running.outcome().await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_call_on_its_way_shows_where_it_is_to_its_tenant_alone() {
    let busy = GatedTool::new();
    let hub = hub([busy.tool("slow").max_concurrency(1), scripted("ask", []).0.confirm()]).await;
    let (tenant, foreign) = (Tenant::default(), Tenant::new("foreign").unwrap());
    let first = hub.call("slow", json!({})).thread("t1").start();
    wait_until(|| busy.running() == 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = hub.call("slow", json!({"n": 2})).thread("t2").start();
    wait_until(|| hub.queued_calls() == 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let third = hub.call("ask", json!({})).start();
    wait_until(|| hub.running_calls() == 3).await;
    while hub.approvals(&tenant, None).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let found = hub.calls(&tenant, &CallQuery::default()).await.unwrap().calls;
    let statuses: Vec<_> = found.iter().map(|record| (record.id, record.status)).collect();
    let expected =
        [(third.id(), Status::AwaitingApproval), (second.id(), Status::Scheduled), (first.id(), Status::Executing)];
    assert_eq!(statuses, expected);
    assert_eq!((found[0].approval.is_some(), &found[1].arguments), (true, &json!({"n": 2})));
    for (id, status) in expected {
        assert_eq!(record(&hub, id).await.status, status);
        assert_eq!(hub.call_record(&foreign, id).await.unwrap(), None);
        assert_eq!(hub.cancel_call(&foreign, id).await, Ok(Cancellation::NotFound));
    }
    assert!(hub.calls(&foreign, &CallQuery::default()).await.unwrap().calls.is_empty());
    let in_thread = CallQuery { thread: Some(ThreadId::new("t2").unwrap()), ..CallQuery::default() };
    assert_eq!(hub.calls(&tenant, &in_thread).await.unwrap().calls.len(), 1);
    let one = CallQuery { limit: 1, ..CallQuery::default() };
    let page = hub.calls(&tenant, &one).await.unwrap();
    let next = hub.calls(&tenant, &CallQuery { cursor: page.next, ..one }).await.unwrap();
    assert_eq!((page.calls[0].id, next.calls[0].id), (third.id(), second.id()), "pages hold them too");
    busy.release(2);
    assert_eq!((first.await.status, second.await.status), (Status::Success, Status::Success));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_taken_from_the_moment_its_call_waits_for_a_person() {
    let (tool, script) = scripted("pay", []);
    let hub = hub([tool.confirm()]).await;
    let keyed = || hub.call("pay", json!({})).thread("t1").idempotency_key("k");
    let (call, approval) = expect_waiting(keyed().until_approval().await);
    keyed().until_approval().await.into_outcome().unwrap().assert_error(ErrorKind::IdempotencyInProgress);
    resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
    wait_for_end(&hub, call).await;
    let repeated = keyed().await;
    assert!(repeated.replayed && repeated.id == call);
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn identical_calls_do_not_take_each_others_answers() {
    let (tool, script) = scripted("pay", []);
    let hub = hub([tool.confirm()]).await;
    let ask = || async { expect_waiting(hub.call("pay", json!({})).thread("t1").until_approval().await) };
    let ((first, one), (second, two)) = (ask().await, ask().await);
    assert_ne!((first, one), (second, two));
    resolve(&hub, two, ApprovalOutcome::ProceedOnce).await;
    assert_eq!(wait_for_end(&hub, second).await.approval, Some(two));
    assert_eq!(record(&hub, first).await.status, Status::AwaitingApproval);
    resolve(&hub, one, ApprovalOutcome::Cancel).await;
    assert_eq!(wait_for_end(&hub, first).await.status, Status::Error);
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_is_not_ended_by_a_hub_that_takes_long_to_go_down() {
    let (busy, store) = (GatedTool::new(), Arc::new(Memory::new()));
    let tools = || [busy.tool("slow").timeout(60 * MINUTE), scripted("ask", []).0.confirm()];
    let build = || ToolHub::builder().shared_store(store.clone()).clock(TestClock::new()).tools(tools()).build();
    let hub = build().await.unwrap();
    let (call, _) = expect_waiting(hub.call("ask", json!({})).until_approval().await);
    let slow = hub.call("slow", json!({})).detached().start();
    wait_until(|| busy.running() == 1).await;
    let going = tokio::spawn({
        let hub = hub.clone();
        async move { hub.shutdown(30 * MINUTE).await }
    });
    // Long enough for the hub to look for abandoned calls.
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(record(&hub, call).await.status, Status::AwaitingApproval);
    busy.release(1);
    slow.await.assert_success();
    going.await.unwrap();
    assert_eq!(record(&hub, call).await.status, Status::AwaitingApproval);
    drop(hub);
    let hub = build().await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!((hub.running_calls(), record(&hub, call).await.status), (1, Status::AwaitingApproval));
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_wait_for_people_than_may_wait_in_all() {
    let builder = ToolHub::builder().clock(TestClock::new()).max_queued_per_tool(1).max_queued(2);
    let hub = builder.tools([scripted("ask", []).0.confirm(), scripted("write", []).0]).build().await.unwrap();
    let ask = |sum: u32| hub.call("ask", json!({"sum": sum})).until_approval();
    let (first, approval) = expect_waiting(ask(1).await);
    expect_waiting(ask(2).await);
    let refused = ask(3).await.into_outcome().unwrap();
    refused.assert_effect(Effect::None).assert_error(ErrorKind::Overloaded);
    assert!(refused.error.unwrap().retry_after.is_some());
    hub.call("ask", json!({"sum": 4})).await.assert_error(ErrorKind::Overloaded);
    assert_eq!(hub.approvals(&Tenant::default(), None).await.unwrap().len(), 2, "no approval is requested for them");
    hub.call("write", json!({})).await.assert_success();
    resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
    assert_eq!(wait_for_end(&hub, first).await.status, Status::Success);
    expect_waiting(ask(3).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_costs_nobody_the_answer_of_a_person() {
    let store: Arc<FaultyStore> = Arc::default();
    let build = |store: Arc<dyn toolhub::backend::Backend>| {
        let ask = scripted("ask", []).0.confirm();
        ToolHub::builder().shared_store(store).clock(TestClock::new()).tool(ask).build()
    };
    let hub = build(store.clone()).await.unwrap();
    let other = build(store.memory.clone()).await.unwrap();
    for outcome in [ApprovalOutcome::ProceedOnce, ApprovalOutcome::Cancel] {
        let (call, approval) = expect_waiting(hub.call("ask", json!({})).until_approval().await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.unavailable.store(true, Ordering::Release);
        resolve(&other, approval, outcome).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        store.unavailable.store(false, Ordering::Release);
        let end = wait_for_end(&hub, call).await.outcome.unwrap();
        let kind = (outcome == ApprovalOutcome::Cancel).then_some(ErrorKind::ApprovalDenied);
        assert_eq!(end.error_kind(), kind, "{end:?}");
    }
    // A missing record is awaited no longer than the approval is valid.
    let call = hub.call("ask", json!({})).start();
    tokio::time::sleep(MINUTE).await;
    store.unavailable.store(true, Ordering::Release);
    call.await.assert_error(ErrorKind::StoreUnavailable);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_the_hub_goes_down_does_not_come_back() {
    let (busy, store) = (GatedTool::new(), Arc::new(Memory::new()));
    let slow = || busy.tool("slow").max_concurrency(1);
    let build = || ToolHub::builder().shared_store(store.clone()).clock(TestClock::new()).tool(slow()).build();
    let hub = build().await.unwrap();
    let held = hub.call("slow", json!({})).start();
    wait_until(|| busy.running() == 1).await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        let mut waiting = hub.call("slow", json!({})).detached().start();
        assert!(matches!(waiting.accepted().await, CallReceipt::Accepted { .. }));
        calls.push(waiting.id());
    }
    wait_until(|| hub.queued_calls() == 2).await;
    let going = tokio::spawn({
        let hub = hub.clone();
        async move { hub.shutdown(Duration::from_secs(5)).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(hub.cancel_call(&Tenant::default(), calls[0]).await, Ok(Cancellation::Requested));
    assert_eq!(wait_for_end(&hub, calls[0]).await.status, Status::Cancelled);
    // The other one is interrupted by the shutdown, and continues later.
    going.await.unwrap();
    held.await.assert_error(ErrorKind::Cancelled);
    assert_eq!(record(&hub, calls[1]).await.status, Status::Scheduled);
    drop(hub);
    busy.release(2);
    let hub = build().await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(record(&hub, calls[0]).await.status, Status::Cancelled);
    assert_eq!(record(&hub, calls[1]).await.status, Status::Success);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_call_that_is_left_to_the_next_start_is_not_told_that_it_never_ran() {
    let busy = GatedTool::new();
    let hub = hub([busy.tool("slow").max_concurrency(1), scripted("ask", []).0.confirm()]).await;
    let _held = hub.call("slow", json!({})).start();
    wait_until(|| busy.running() == 1).await;
    let mut calls = Vec::new();
    for tool in ["ask", "slow"] {
        let mut call = hub.call(tool, json!({})).detached().start();
        assert!(call.accepted().await.into_outcome().is_none());
        calls.push(call);
    }
    wait_until(|| hub.queued_calls() == 1).await;
    hub.shutdown(Duration::from_secs(5)).await;
    for call in calls {
        assert_eq!(record(&hub, call.id()).await.outcome, None, "it continues");
        let outcome = call.await;
        outcome.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
        assert!(outcome.error.unwrap().model.contains("goes on later"));
    }
}
