//! Callers that need not wait until their calls end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use toolhub::{
    Status, WaitReason,
    backend::Memory,
    ids::CallId,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};

const SHORT_DELAY: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn whoever_makes_a_step_hears_which_of_its_calls_wait_for_a_person() {
    let tools = [scripted("read", []).0.read_only(), scripted("ask", []).0.confirm()];
    let hub = ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap();
    let ids: Vec<CallId> = (0..3).map(|_| CallId::mint(hub.now())).collect();
    let reasons: Arc<Mutex<Vec<(CallId, WaitReason)>>> = Arc::default();
    let waiting = tokio::spawn({
        let (hub, ids, reasons) = (hub.clone(), ids.clone(), reasons.clone());
        async move {
            let calls = ["read", "ask", "ask"].into_iter().zip(ids).enumerate();
            let calls =
                calls.map(|(n, (tool, id))| hub.call(tool, json!({"n": n})).thread("t1").with_id(id).detached());
            hub.batch(calls).on_wait(move |call, what| reasons.lock().unwrap().push((call, what))).await
        }
    });
    tokio::time::sleep(SHORT_DELAY).await;
    // A call that must run alone requests its approval when it is its turn.
    let questions = || reasons.lock().unwrap().clone();
    assert_eq!(questions().len(), 1);
    for (n, call) in [(1, ids[1]), (2, ids[2])] {
        let (call_id, WaitReason::Approval(question)) = *questions().last().unwrap() else { panic!("not an approval") };
        assert_eq!((call_id, questions().len()), (call, n));
        assert_eq!(hub.approval(&Tenant::default(), question).await.unwrap().unwrap().call_id, call);
        let answer = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
        hub.resolve_approval(&Tenant::default(), question, answer).await.unwrap();
        tokio::time::sleep(SHORT_DELAY).await;
    }
    let ends = waiting.await.unwrap();
    assert_eq!(ends.iter().map(|end| end.id).collect::<Vec<_>>(), ids);
    assert!(ends.iter().all(Outcome::is_success));
    assert_eq!(questions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_knows_the_id_of_a_call_waits_for_its_end_wherever_it_runs() {
    let store: Arc<Memory> = Arc::default();
    let hub = async || {
        let wait = [ScriptStep::Wait(Duration::from_secs(5)), ScriptStep::Return(json!("done"))];
        let (tool, script) = scripted("slow", wait);
        let builder = ToolHub::builder().clock(TestClock::new()).shared_store(store.clone());
        (builder.tool(tool).build().await.unwrap(), script)
    };
    let ((local_hub, _), (remote_hub, remote_script)) = (hub().await, hub().await);
    let (tenant, id) = (Tenant::default(), CallId::mint(local_hub.now()));
    assert_eq!(local_hub.wait_for_call(&tenant, id).await.unwrap(), None);
    let running = local_hub.call("slow", json!({})).thread("t1").with_id(id).detached().start();
    tokio::time::sleep(SHORT_DELAY).await;
    assert_eq!(local_hub.wait_for_call(&Tenant::new("stranger").unwrap(), id).await.unwrap(), None);
    let since = local_hub.now();
    let local_outcome =
        async { (local_hub.wait_for_call(&tenant, id).await.unwrap().unwrap(), local_hub.now().since(since)) };
    let remote_outcome =
        async { (remote_hub.wait_for_call(&tenant, id).await.unwrap().unwrap(), local_hub.now().since(since)) };
    let ((local_outcome, local_wait), (remote_outcome, remote_wait)) = tokio::join!(local_outcome, remote_outcome);
    assert_eq!(local_outcome.outcome.as_ref().map(|end| &end.output), Some(&json!("done")));
    assert_eq!(local_outcome, remote_outcome);
    assert_eq!(local_wait, Duration::from_secs(5) - SHORT_DELAY, "on the same hub it is notified immediately");
    assert!(remote_wait <= Duration::from_secs(6), "another hub polls every second: {remote_wait:?}");
    running.await.assert_success();
    assert!(remote_script.recorded_arguments().is_empty());
    let ended = local_hub.wait_for_call(&tenant, id).await.unwrap();
    assert_eq!(ended, Some(local_outcome), "an ended call is returned without waiting");
    // A refused call has no record.
    let refused = local_hub.call("nobody", json!({})).await;
    assert_eq!(local_hub.wait_for_call(&tenant, refused.id).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_goes_down_keeps_nobody_waiting_for_what_it_leaves_to_the_next() {
    let store: Arc<Memory> = Arc::default();
    let builder = ToolHub::builder().clock(TestClock::new()).shared_store(store);
    let hub = builder.tool(scripted("ask", []).0.confirm()).build().await.unwrap();
    let (tenant, id) = (Tenant::default(), CallId::mint(hub.now()));
    let running = hub.call("ask", json!({})).thread("t1").with_id(id).detached().start();
    tokio::time::sleep(SHORT_DELAY).await;
    let waiting = async { hub.wait_for_call(&tenant, id).await.unwrap().unwrap() };
    let (record, ()) = tokio::join!(waiting, hub.shutdown(Duration::from_secs(1)));
    assert_eq!((record.status, record.outcome), (Status::AwaitingApproval, None));
    drop(running);
}
