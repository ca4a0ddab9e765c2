//! A node that was taken for dead and goes on: what it says about the calls that others have closed or taken over.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    ApprovalState, CallQuery, NodeState, ReportError, Status,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, scripted},
};

use crate::{faulty_store::FaultyStore, shared_memory::SharedMemory};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_call_that_another_node_has_closed_is_not_listed_as_running() {
    let memory: Arc<SharedMemory> = Arc::default();
    let connection = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
    let node = async |store| {
        let slow = scripted("slow", [ScriptStep::Hang]).0.timeout(600 * SECOND);
        ToolHub::builder().shared_store(memory.record(store)).tool(slow).build().await.unwrap()
    };
    let (first, second): (ToolHub, ToolHub) = (node(connection.clone()).await, node(memory.memory.clone()).await);
    let running = first.call("slow", json!({})).thread("t").start();
    let statuses = async |hub: &ToolHub, status| {
        let query = CallQuery { status, ..CallQuery::default() };
        let page = hub.calls(&Tenant::default(), &query).await.unwrap();
        page.calls.into_iter().map(|record| record.status).collect::<Vec<_>>()
    };
    tokio::time::sleep(SECOND).await;
    assert_eq!(statuses(&first, Some(Status::Executing)).await, [Status::Executing]);
    connection.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(25 * SECOND).await;
    connection.unavailable.store(false, Ordering::Release);
    for hub in [&first, &second] {
        assert_eq!(statuses(hub, None).await, [Status::Error]);
        assert!(statuses(hub, Some(Status::Executing)).await.is_empty());
    }
    first.cancel_call(&Tenant::default(), running.id()).await.unwrap();
    running.await.assert_error(ErrorKind::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn the_caller_of_a_waiting_call_that_went_on_elsewhere_gets_its_outcome_from_there() {
    let memory: Arc<SharedMemory> = Arc::default();
    let connection = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
    let node = async |store| {
        let pay = scripted("pay", [ScriptStep::Return(json!("paid"))]).0.confirm();
        ToolHub::builder().shared_store(memory.record(store)).tool(pay).build().await.unwrap()
    };
    let (first, second): (ToolHub, ToolHub) = (node(connection.clone()).await, node(memory.memory.clone()).await);
    let waiting = first.call("pay", json!({})).thread("t").detached().start();
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(25 * SECOND).await;
    let pending = second.approvals(&Tenant::default(), Some(ApprovalState::Pending)).await.unwrap();
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    second.resolve_approval(&Tenant::default(), pending[0].id, yes).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    connection.unavailable.store(false, Ordering::Release);
    let id = waiting.id();
    let outcome = tokio::time::timeout(60 * SECOND, waiting).await.unwrap();
    assert_eq!(outcome.assert_success(), &json!("paid"));
    let record = second.call_record(&Tenant::default(), id).await.unwrap().unwrap();
    assert_eq!(record.outcome, Some(outcome));
}

#[tokio::test(start_paused = true)]
async fn a_reported_result_is_not_acknowledged_while_its_end_is_not_stored() {
    let memory: Arc<SharedMemory> = Arc::default();
    let connection = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
    let pay = scripted("pay", []).0;
    let hub = ToolHub::builder().shared_store(memory.record(connection.clone())).tool(pay).build().await.unwrap();
    let external = hub.call("pay", json!({})).thread("t").external(600 * SECOND).start();
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, Ordering::Release);
    let reported = hub.report_external_result(&Tenant::default(), external.id(), Ok(json!(1))).await;
    assert!(matches!(reported, Err(ReportError::Store(_))), "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn while_the_store_refuses_all_writes_no_node_is_taken_for_dead() {
    let memory: Arc<SharedMemory> = Arc::default();
    let connections =
        [(); 2].map(|()| Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() }));
    let node = async |store| {
        let slow = scripted("slow", [ScriptStep::Wait(400 * SECOND), ScriptStep::Return(json!("done"))])
            .0
            .timeout(600 * SECOND);
        ToolHub::builder().shared_store(memory.record(store)).tool(slow).build().await.unwrap()
    };
    let (first, second) = (node(connections[0].clone()).await, node(connections[1].clone()).await);
    let running = first.call("slow", json!({})).thread("t").start();
    let refuse = |refuses| connections.iter().for_each(|store| store.refuses_writes.store(refuses, Ordering::Release));
    let mut events = EventRecorder::new(&second);
    for seconds in [10, 60, 200] {
        tokio::time::sleep(7 * SECOND).await;
        refuse(true);
        tokio::time::sleep(seconds * SECOND).await;
        assert_eq!(second.nodes().await.unwrap().iter().filter(|node| node.state == NodeState::Alive).count(), 2);
        refuse(false);
    }
    let id = running.id();
    assert_eq!(running.await.assert_success(), &json!("done"));
    let record = second.call_record(&Tenant::default(), id).await.unwrap().unwrap();
    assert_eq!(record.outcome.unwrap().assert_success(), &json!("done"));
    assert!(!events.names().contains(&"node.left"), "{:?}", events.names());
}
