//! External calls: executed outside the hub, and reported.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use toolhub::{
    Cancellation, HubBuilder, ReportError, Status, StatusScope, WaitReason,
    backend::Memory,
    clock::Clock,
    ids::CallId,
    prelude::*,
    status::ToolStatus,
    testing::{AssertOutcome, EventRecorder, ScriptedTool, TestClock, scripted},
};

use crate::journal::run_and_crash;

const SHORT_DELAY: Duration = Duration::from_millis(10);
const MINUTE: Duration = Duration::from_secs(60);

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn builder(store: &Arc<Memory>) -> (HubBuilder, ScriptedTool) {
    let (tool, script) = scripted("it", []);
    let builder = ToolHub::builder().clock(TestClock::new()).shared_store(store.clone());
    (builder.tool(tool.timeout(Duration::from_secs(1))), script)
}

async fn hub() -> (ToolHub, ScriptedTool) {
    let (builder, script) = builder(&Arc::default());
    let builder = builder.tool(scripted("next", []).0.after("it")).tool(scripted("ask", []).0.confirm());
    (builder.build().await.unwrap(), script)
}

/// Starts an external call, and waits until its arguments are available.
async fn start_external_call(hub: &ToolHub, arguments: Value) -> toolhub::CallHandle {
    let running = hub.call("it", arguments).thread("t1").external(MINUTE).start();
    tokio::time::sleep(SHORT_DELAY).await;
    assert!(hub.external_arguments(&default_tenant(), running.id()).is_some());
    running
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_result_that_somebody_reports() {
    let (hub, script) = hub().await;
    let mut events = EventRecorder::new(&hub);
    let started = hub.now();
    let running = start_external_call(&hub, json!({"city": "Oslo", "token": "abc"})).await;
    let id = running.id();
    let record = hub.call_record(&default_tenant(), id).await.unwrap().unwrap();
    assert_eq!((record.status, record.external_until), (Status::Executing, Some(started + MINUTE)));
    assert_eq!(record.arguments["city"], "Oslo");
    assert_ne!(record.arguments["token"], "abc", "the record contains no secrets");
    assert_eq!(hub.external_arguments(&default_tenant(), id), Some(json!({"city": "Oslo", "token": "abc"})));
    // Longer than the tool's own timeout.
    tokio::time::sleep(MINUTE / 2).await;
    hub.report_external_result(&default_tenant(), id, Ok(json!({"temp": 4}))).await.unwrap();
    let record = hub.call_record(&default_tenant(), id).await.unwrap().unwrap();
    assert_eq!(
        record.outcome.as_ref().map(|end| &end.output),
        Some(&json!({"temp": 4})),
        "it is in the journal already"
    );
    let outcome = running.await;
    assert_eq!(outcome.assert_effect(Effect::Done).assert_success(), &json!({"temp": 4}));
    assert_eq!(outcome.duration, MINUTE / 2 + SHORT_DELAY);
    assert!(script.recorded_arguments().is_empty(), "the tool itself is not executed");
    assert_eq!(events.end_count(id), 1);
    assert!(events.names().contains(&"tool.executed"));
    hub.call("next", json!({})).thread("t1").await.assert_success();
    assert_eq!(hub.external_arguments(&default_tenant(), id), None);
}

#[tokio::test(start_paused = true)]
async fn a_reported_failure_and_a_result_that_does_not_come_count_like_a_tools() {
    let (hub, script) = hub().await;
    let failures = async || {
        hub.tool_status("it", StatusScope::Thread(&default_tenant(), &ThreadId::new("t1").unwrap())).await.unwrap()
    };
    let running = start_external_call(&hub, json!({})).await;
    let failure = ToolError::new("the printer is on fire");
    hub.report_external_result(&default_tenant(), running.id(), Err(failure)).await.unwrap();
    let outcome = running.await;
    let text = outcome.assert_effect(Effect::Unknown).assert_error(ErrorKind::ToolError);
    assert!(text.contains("on fire"), "{text}");
    assert_eq!(failures().await.consecutive_failures, 1);
    let running = start_external_call(&hub, json!({})).await;
    hub.report_external_result(&default_tenant(), running.id(), Err(ToolError::refused("no such city"))).await.unwrap();
    assert!(running.await.error.unwrap().refused);
    assert_eq!(failures().await.consecutive_failures, 1, "a refusal counts neither for nor against it");
    let running = start_external_call(&hub, json!({})).await;
    hub.report_external_result(&default_tenant(), running.id(), Ok(json!(1))).await.unwrap();
    running.await.assert_success();
    assert_eq!(failures().await.consecutive_failures, 0);
    for failed in 1..=3 {
        let outcome = hub.call("it", json!({})).thread("t1").external(MINUTE).await;
        let text = outcome.assert_error(ErrorKind::Timeout);
        assert!(text.contains("60s"), "{text}");
        assert_eq!((outcome.attempts, outcome.duration), (1, MINUTE), "it is not retried");
        assert_eq!(failures().await.consecutive_failures, failed);
    }
    assert_eq!(failures().await.status, ToolStatus::Failed);
    let refused = hub.call("it", json!({})).thread("t1").external(MINUTE).await;
    refused.assert_effect(Effect::None).assert_error(ErrorKind::ToolFailedStatus);
    assert!(script.recorded_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unanswered_calls_withhold_a_tool_from_their_thread_only() {
    let (hub, _) = hub().await;
    let tenant = |name: &str| Tenant::new(name).unwrap();
    for _ in 0..3 {
        for thread in ["t1", "t2"] {
            let call = hub.call("it", json!({})).tenant(tenant("a")).thread(thread);
            call.external(MINUTE).await.assert_error(ErrorKind::Timeout);
        }
        hub.call("it", json!({})).tenant(tenant("a")).external(MINUTE).await.assert_error(ErrorKind::Timeout);
        let call = hub.call("it", json!({})).tenant(tenant("a")).external(MINUTE).start();
        tokio::time::sleep(SHORT_DELAY).await;
        hub.report_external_result(&tenant("a"), call.id(), Err(ToolError::new("broken"))).await.unwrap();
        call.await.assert_error(ErrorKind::ToolError);
    }
    let call = |name: &str| hub.call("it", json!({})).tenant(tenant(name));
    call("a").thread("t1").await.assert_error(ErrorKind::ToolFailedStatus);
    call("a").thread("t3").await.assert_success();
    call("a").await.assert_success();
    call("b").thread("t1").await.assert_success();
    let shared = hub.tool_status("it", StatusScope::Shared).await.unwrap();
    assert_eq!((shared.status, shared.consecutive_failures), (ToolStatus::Available, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_probe_of_all_threads_leaves_the_decision_to_the_next_call() {
    let (hub, script) = hub().await;
    hub.set_tool_status("it", ToolStatus::Failed, None, None, StatusScope::Shared).await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    hub.call("it", json!({})).external(MINUTE).await.assert_error(ErrorKind::Timeout);
    hub.call("it", json!({})).await.assert_success();
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_in_a_hurry_says_nothing_about_the_tool() {
    let (hub, _) = hub().await;
    let outcome = hub.call("it", json!({})).thread("t1").external(MINUTE).timeout(SHORT_DELAY).await;
    outcome.assert_error(ErrorKind::Timeout);
    assert!(!outcome.error.unwrap().counts);
}

#[tokio::test(start_paused = true)]
async fn a_result_is_taken_once_and_only_for_a_call_that_waits_for_one() {
    let (hub, _) = hub().await;
    let report = async |call| hub.report_external_result(&default_tenant(), call, Ok(json!(1))).await;
    assert_eq!(report(CallId::mint(hub.now())).await, Err(ReportError::NotFound));
    // Two concurrent reports: one of them counts.
    let running = start_external_call(&hub, json!({})).await;
    let id = running.id();
    let stranger = Tenant::new("stranger").unwrap();
    assert_eq!(hub.report_external_result(&stranger, id, Ok(json!(2))).await, Err(ReportError::NotFound));
    assert_eq!(hub.external_arguments(&stranger, id), None);
    assert_eq!(tokio::join!(report(id), report(id)), (Ok(()), Err(ReportError::Late)));
    assert_eq!(report(id).await, Err(ReportError::Late));
    running.await.assert_success();
    // A call that its tool executes, while it runs and after.
    let inside = hub.call("it", json!({})).thread("t1").await;
    assert_eq!(report(inside.id).await, Err(ReportError::NotExternal));
    // One whose deadline has passed, and one that was cancelled.
    let late = hub.call("it", json!({})).thread("t1").external(MINUTE).await;
    assert_eq!(report(late.id).await, Err(ReportError::Late));
    let running = start_external_call(&hub, json!({})).await;
    let id = running.id();
    assert_eq!(hub.cancel_call(&default_tenant(), id).await.unwrap(), Cancellation::Requested);
    running.await.assert_effect(Effect::Unknown).assert_error(ErrorKind::Cancelled);
    assert_eq!(report(id).await, Err(ReportError::Late));
}

#[tokio::test(start_paused = true)]
async fn an_external_call_passes_every_pipeline_stage_first() {
    let (hub, _) = hub().await;
    let call = |tool: &str| hub.call(tool, json!({})).thread("t1").external(MINUTE);
    call("next").await.assert_error(ErrorKind::DependencyNotMet);
    let mut events = hub.subscribe();
    let running = call("ask").start();
    let id = running.id();
    let question = loop {
        if let toolhub::events::EventKind::ApprovalRequested { approval_id, .. } = events.next().await.kind {
            break approval_id;
        }
    };
    tokio::time::sleep(SHORT_DELAY).await;
    assert_eq!(hub.report_external_result(&default_tenant(), id, Ok(json!(1))).await, Err(ReportError::Early));
    assert_eq!(hub.call_record(&default_tenant(), id).await.unwrap().unwrap().external_until, None);
    let edited = json!({"sum": 5});
    let answer = Answer::edited(edited.clone(), Caller::new("boss").unwrap());
    hub.resolve_approval(&default_tenant(), question, answer).await.unwrap();
    tokio::time::sleep(SHORT_DELAY).await;
    assert_eq!(hub.external_arguments(&default_tenant(), id), Some(edited), "as edited by the approver");
    hub.report_external_result(&default_tenant(), id, Ok(json!(1))).await.unwrap();
    running.await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn whoever_makes_a_batch_hears_that_its_calls_wait_for_external_results() {
    let (hub, _) = hub().await;
    let reasons: Arc<Mutex<Vec<(CallId, WaitReason)>>> = Arc::default();
    let step = tokio::spawn({
        let (hub, reasons) = (hub.clone(), reasons.clone());
        async move {
            let calls = [1, 2].map(|n| hub.call("it", json!({"n": n})).thread("t1").external(MINUTE).detached());
            hub.batch(calls).on_wait(move |call, what| reasons.lock().unwrap().push((call, what))).await
        }
    });
    for n in 1..=2 {
        tokio::time::sleep(SHORT_DELAY).await;
        let waits = reasons.lock().unwrap().clone();
        assert_eq!(waits.len(), n, "a call with effects runs alone, wherever it is executed");
        let (call, waiting) = waits[n - 1];
        assert_eq!(waiting, WaitReason::ExternalResult);
        assert_eq!(hub.external_arguments(&default_tenant(), call), Some(json!({"n": n})));
        hub.report_external_result(&default_tenant(), call, Ok(json!(n))).await.unwrap();
    }
    let outputs: Vec<Value> = step.await.unwrap().into_iter().map(|end| end.output).collect();
    assert_eq!(outputs, [json!(1), json!(2)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_remembers_is_neither_read_nor_written() {
    #[derive(Default, Serialize, Deserialize)]
    struct Count(u64);
    impl ToolState for Count {
        const NAME: &'static str = "count";
    }
    async fn count(_: NoArguments, mut count: toolhub::State<Count>) -> Result<u64, ToolError> {
        count.0 += 1;
        Ok(count.0)
    }
    let (builder, _) = builder(&Arc::default());
    let hub = builder.tool(tool("count", count)).build().await.unwrap();
    let running = hub.call("count", json!({})).thread("t1").external(MINUTE).start();
    tokio::time::sleep(SHORT_DELAY).await;
    // No external call waits for the write lock of the state.
    assert_eq!(hub.call("count", json!({})).thread("t1").await.assert_success(), &json!(1));
    hub.report_external_result(&default_tenant(), running.id(), Ok(json!(41))).await.unwrap();
    assert_eq!(running.await.assert_success(), &json!(41));
    assert_eq!(hub.call("count", json!({})).thread("t1").await.assert_success(), &json!(2));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_process_died_is_interrupted_and_takes_no_result() {
    let store: Arc<Memory> = Arc::default();
    let (id, dead) = (CallId::mint(TestClock::new().now()), store.clone());
    let first: Arc<Mutex<Option<ToolHub>>> = Arc::default();
    let seen = first.clone();
    run_and_crash(
        async move || ToolHub::builder().shared_store(dead).tool(scripted("it", []).0).build().await.unwrap(),
        move |hub| {
            *first.lock().unwrap() = Some(hub.clone());
            let call = hub.call("it", json!({})).thread("t1").with_id(id).external(10 * MINUTE).detached();
            (vec![call.start()], ())
        },
        move || {
            seen.lock().unwrap().as_ref().is_some_and(|hub| hub.external_arguments(&default_tenant(), id).is_some())
        },
    );
    // Also if its tool is rerunnable: the external executor may still be working on it.
    let (tool, script) = scripted("it", []);
    let builder = ToolHub::builder().clock(TestClock::new()).shared_store(store);
    let hub = builder.tool(tool.idempotent().rerun_interrupted()).build().await.unwrap();
    let too_late = hub.report_external_result(&default_tenant(), id, Ok(json!(1))).await;
    assert_eq!(too_late, Err(ReportError::Late), "the hub that runs it must get the report");
    let end = hub.wait_for_call(&default_tenant(), id).await.unwrap().unwrap().outcome.unwrap();
    end.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
    assert_eq!(hub.report_external_result(&default_tenant(), id, Ok(json!(1))).await, Err(ReportError::Late));
    assert!(script.recorded_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_external_call_that_waited_for_a_person_when_its_process_died_goes_on_after_the_yes() {
    let store: Arc<Memory> = Arc::default();
    let (id, dead) = (CallId::mint(TestClock::new().now()), store.clone());
    let ask = || scripted("ask", []).0.confirm().approval_timeout(10 * MINUTE);
    let recorder_slot: Arc<Mutex<Option<EventRecorder>>> = Arc::default();
    let reasons = recorder_slot.clone();
    run_and_crash(
        async move || ToolHub::builder().shared_store(dead).tool(ask()).build().await.unwrap(),
        move |hub| {
            *recorder_slot.lock().unwrap() = Some(EventRecorder::new(hub));
            let call = hub.call("ask", json!({"n": 1})).thread("t1").with_id(id).external(MINUTE).detached();
            (vec![call.start()], ())
        },
        move || reasons.lock().unwrap().as_mut().is_some_and(|it| it.names().contains(&"approval.requested")),
    );
    let (tool, script) = scripted("ask", []);
    let hub = ToolHub::builder().shared_store(store).tool(tool.confirm()).build().await.unwrap();
    tokio::time::sleep(MINUTE).await;
    let question = hub.call_record(&default_tenant(), id).await.unwrap().unwrap().approval.unwrap();
    let answer = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
    hub.resolve_approval(&default_tenant(), question, answer).await.unwrap();
    tokio::time::sleep(SHORT_DELAY).await;
    assert_eq!(hub.external_arguments(&default_tenant(), id), Some(json!({"n": 1})));
    hub.report_external_result(&default_tenant(), id, Ok(json!("done"))).await.unwrap();
    let end = hub.wait_for_call(&default_tenant(), id).await.unwrap().unwrap().outcome.unwrap();
    assert_eq!(end.assert_success(), &json!("done"));
    assert!(script.recorded_arguments().is_empty(), "the tool itself is not executed");
}
