//! Calls that waited for an approval or in a queue while something changed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use toolhub::{
    Answer, ApprovalOutcome, ApprovalState, CallReceipt, HubChange, Status,
    ids::{ArtifactId, Caller, Tenant, ThreadId},
    prelude::*,
    testing::{AssertOutcome, ScriptStep, scripted},
};

use crate::{
    faulty_store::FaultyStore,
    gated_tool::{GatedTool, wait_until},
};

async fn approve_next(hub: &ToolHub) {
    let tenant = Tenant::default();
    let question = loop {
        let open = hub.approvals(&tenant, Some(ApprovalState::Pending)).await.unwrap();
        match open.into_iter().next() {
            Some(question) => break question.id,
            None => tokio::task::yield_now().await,
        }
    };
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
    hub.resolve_approval(&tenant, question, yes).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_denies_stops_a_call_that_had_its_yes_and_waits_for_its_turn() {
    let busy = GatedTool::new();
    let order = busy.tool("order").max_concurrency(1);
    let hub = ToolHub::builder().tool(order).rule(Rule::ask("order")).build().await.unwrap();
    let first = hub.call("order", json!({})).thread("one").start();
    approve_next(&hub).await;
    wait_until(|| busy.running() == 1).await;
    let second = hub.call("order", json!({})).thread("two").start();
    approve_next(&hub).await;
    wait_until(|| hub.queued_calls() == 1).await;
    hub.apply(HubChange::replacing_policies().rule(Rule::deny("order"))).await.unwrap();
    busy.release(2);
    first.await.assert_success();
    second.await.assert_effect(Effect::None).assert_error(ErrorKind::Forbidden);
    assert_eq!(busy.started_threads(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_denies_stops_a_call_that_waits_for_its_turn_and_never_asked_anybody() {
    let busy = GatedTool::new();
    let hub = ToolHub::builder().tool(busy.tool("order").max_concurrency(1)).build().await.unwrap();
    let first = hub.call("order", json!({})).thread("one").start();
    wait_until(|| busy.running() == 1).await;
    let second = hub.call("order", json!({})).thread("two").start();
    wait_until(|| hub.queued_calls() == 1).await;
    hub.apply(HubChange::replacing_policies().rule(Rule::deny("order"))).await.unwrap();
    busy.release(2);
    first.await.assert_success();
    second.await.assert_error(ErrorKind::Forbidden);
}

#[tokio::test(start_paused = true)]
async fn what_an_old_tool_makes_for_a_call_that_waited_goes_with_the_call() {
    struct GatedInstance(GatedTool, Arc<AtomicUsize>);
    impl Instance for GatedInstance {
        type Arguments = NoArguments;
        type Output = &'static str;
        async fn call(&mut self, _: NoArguments, cx: &CallContext) -> Result<&'static str, ToolError> {
            self.0.wait_at_gate(cx).await.map(|()| "old")
        }
        async fn close(self) {
            self.1.fetch_add(1, SeqCst);
        }
    }
    let (busy, closed) = (GatedTool::new(), Arc::new(AtomicUsize::new(0)));
    let (own, count) = (busy.clone(), closed.clone());
    let old = instance("line", move |_| std::future::ready(Ok(GatedInstance(own.clone(), count.clone()))));
    let hub = ToolHub::builder().tool(old.max_concurrency(1)).build().await.unwrap();
    let first = hub.call("line", json!({})).thread("one").start();
    wait_until(|| busy.running() == 1).await;
    let second = hub.call("line", json!({})).thread("two").start();
    wait_until(|| hub.queued_calls() == 1).await;
    let (new, _) = scripted("line", []);
    let replacing = tokio::spawn({
        let hub = hub.clone();
        async move { hub.apply(HubChange::tools_only().put(new)).await.map(|_| ()) }
    });
    wait_until(|| hub.get("line").is_some_and(|tool| tool.definition.kind.to_string() == "stateless")).await;
    busy.release(2);
    assert_eq!(first.await.assert_success(), &json!("old"));
    assert_eq!(second.await.assert_success(), &json!("old"), "a call keeps the tool it started with");
    replacing.await.unwrap().unwrap();
    wait_until(|| closed.load(SeqCst) == 2).await;
    let two = hub.thread_context(&Tenant::default(), &ThreadId::new("two").unwrap());
    assert!(two.info("line").is_none(), "the old tool is removed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_it_waits_for_a_person_does_not_seem_to_go_on() {
    let (order, script) = scripted("order", []);
    let store = Arc::new(FaultyStore::default());
    let hub = ToolHub::builder().shared_store(store.clone()).tool(order.confirm()).build().await.unwrap();
    let tenant = Tenant::default();
    let CallReceipt::AwaitingApproval { call, .. } = hub.call("order", json!({})).thread("t").until_approval().await
    else {
        panic!("no approval pending")
    };
    // From here on nothing is written before the clock advances, and this test does not advance it.
    store.writes_late.store(true, SeqCst);
    hub.cancel_call(&tenant, call).await.unwrap();
    for _ in 0..100 {
        let record = hub.call_record(&tenant, call).await.unwrap().unwrap();
        assert_eq!(record.status, Status::AwaitingApproval);
    }
    while hub.call_record(&tenant, call).await.unwrap().unwrap().outcome.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(hub.call_record(&tenant, call).await.unwrap().unwrap().status, Status::Cancelled);
    assert!(script.recorded_arguments().is_empty());
}

#[tokio::test]
async fn a_thread_that_is_deleted_takes_its_artifacts_with_it() {
    let long = || ScriptStep::Return(json!("x".repeat(60_000)));
    let (dump, _) = scripted("dump", [long(), long()]);
    let hub = ToolHub::builder().tool(dump).build().await.unwrap();
    let tenant = Tenant::default();
    let store_artifact = async |thread: &str| -> ArtifactId {
        let outcome = hub.call("dump", json!({})).thread(thread).await;
        let pointed = |piece: &Content| if let Content::Artifact { id, .. } = piece { Some(id.clone()) } else { None };
        outcome.content.iter().find_map(pointed).expect("it is too long")
    };
    let (deleted, remaining) = (store_artifact("one").await, store_artifact("two").await);
    assert!(hub.artifact(&tenant, &deleted).await.unwrap().is_some());
    assert!(hub.delete_thread(&tenant, &ThreadId::new("one").unwrap()).await.unwrap());
    assert_eq!(hub.artifact(&tenant, &deleted).await.unwrap(), None);
    assert!(hub.artifact(&tenant, &remaining).await.unwrap().is_some());
}
