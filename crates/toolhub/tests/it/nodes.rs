//! Several nodes on one store: who is there, who is gone, and what the others do then.

mod approvals;
mod events;
mod local_statuses;
mod node_requests;
mod permits;
mod relay;
mod requests;
mod simulation;
mod takeovers;
mod threads;
mod upgrades;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    NodeInfo, NodeState,
    backend::Memory,
    events::{EventKind, Subscription},
    prelude::*,
    testing::{AssertOutcome, scripted},
};

use crate::{faulty_store::FaultyStore, shared_memory::SharedMemory};

const SECOND: Duration = Duration::from_secs(1);

/// A node on a store of its own connection, which a test can cut.
async fn node(memory: &Arc<SharedMemory>, name: &str) -> (ToolHub, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
    let builder =
        ToolHub::builder().shared_store(memory.record(store.clone())).node(NodeInfo::new(name).config_digest("abc"));
    (builder.tool(scripted("pay", []).0.confirm()).build().await.unwrap(), store)
}

/// The names and reasons of nodes that left, as this subscriber heard.
fn departures(events: &mut Subscription) -> Vec<String> {
    let mut heard = Vec::new();
    while let Some(event) = events.try_next() {
        if let EventKind::NodeLeft { node_name, reason, .. } = &event.kind {
            heard.push(format!("{node_name}: {reason}"));
        }
    }
    heard
}

async fn names_and_states(hub: &ToolHub) -> Vec<(String, NodeState, bool)> {
    let nodes = hub.nodes().await.unwrap();
    nodes.into_iter().map(|node| (node.name.to_string(), node.state, node.is_self)).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_know_each_other_and_one_of_them_says_that_another_is_dead() {
    let memory = Arc::default();
    let ((first, _), (second, _), (third, connection)) =
        (node(&memory, "a").await, node(&memory, "b").await, node(&memory, "c").await);
    let alive = |name: &str, is_self| (name.to_owned(), NodeState::Alive, is_self);
    assert_eq!(names_and_states(&second).await, [alive("b", true), alive("a", false), alive("c", false)]);
    tokio::time::sleep(60 * SECOND).await;
    let listed = first.nodes().await.unwrap();
    assert!(
        listed.iter().all(|node| node.state == NodeState::Alive && node.since_renewal <= 10 * SECOND),
        "{listed:?}"
    );
    assert_eq!((listed[0].config_digest.as_deref(), listed[0].id.as_str()), (Some("abc"), first.node_id()));

    let mut heard = [first.subscribe(), second.subscribe(), third.subscribe()];
    connection.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(14 * SECOND).await;
    assert!(names_and_states(&first).await.contains(&alive("c", false)), "it may only be slow");
    tokio::time::sleep(7 * SECOND).await;
    let dead = ("c".to_owned(), NodeState::Dead, false);
    assert!(names_and_states(&first).await.contains(&dead) && names_and_states(&second).await.contains(&dead));
    let said = vec!["c: it no longer answers".to_owned()];
    assert_eq!(
        heard.each_mut().map(departures),
        [said.clone(), said.clone(), vec![]],
        "one node says so, and all that are connected hear it"
    );

    // It was only cut off, and comes back.
    connection.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(6 * SECOND).await;
    assert!(names_and_states(&first).await.contains(&alive("c", false)));
    assert_eq!(heard.each_mut().map(departures), [vec![], vec![], said]);
}

#[tokio::test(start_paused = true)]
async fn a_node_joins_and_leaves_with_one_stored_event_each() {
    let memory = Arc::default();
    let (first, _) = node(&memory, "a").await;
    let (second, _) = node(&memory, "b").await;
    second.shutdown(SECOND).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(names_and_states(&first).await, [("a".to_owned(), NodeState::Alive, true)]);
    let stored = first.events_since(&Tenant::default(), 0).await.unwrap().events;
    let events: Vec<_> =
        stored.iter().map(|event| (event.event.as_str(), event.data["nodeName"].as_str().unwrap())).collect();
    assert_eq!(events, [("node.joined", "a"), ("node.joined", "b"), ("node.left", "b")]);
}

#[tokio::test(start_paused = true)]
async fn a_store_with_one_user_has_one_node_and_no_events_of_it() {
    let memory: Arc<Memory> = Arc::default();
    let hub = ToolHub::builder().store(memory).build().await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(names_and_states(&hub).await, [(hub.node_id().to_owned(), NodeState::Alive, true)]);
    assert!(hub.events_since(&Tenant::default(), 0).await.unwrap().events.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_of_a_node_that_left_waits_on_elsewhere_at_once() {
    let memory = Arc::default();
    let (first, _) = node(&memory, "a").await;
    let (second, _) = node(&memory, "b").await;
    tokio::time::sleep(SECOND).await;
    let mut call = first.call("pay", json!({})).thread("t").detached().start();
    let call_id = call.id();
    let toolhub::CallReceipt::AwaitingApproval { approval, .. } = call.accepted().await else { panic!() };
    first.shutdown(SECOND).await;
    tokio::time::sleep(SECOND).await;
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    second.resolve_approval(&Tenant::default(), approval, yes).await.unwrap();
    let ended = tokio::time::timeout(SECOND, second.wait_for_call(&Tenant::default(), call_id)).await.unwrap();
    ended.unwrap().unwrap().outcome.unwrap().assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_of_a_tool_that_the_other_nodes_lack_waits_for_a_node_that_has_it() {
    let memory: Arc<SharedMemory> = Arc::default();
    let (first, _) = node(&memory, "a").await;
    let other = ToolHub::builder().shared_store(memory.connect()).build().await.unwrap();
    tokio::time::sleep(SECOND).await;
    let mut call = first.call("pay", json!({})).thread("t").detached().start();
    let call_id = call.id();
    let toolhub::CallReceipt::AwaitingApproval { approval, .. } = call.accepted().await else { panic!() };
    first.shutdown(SECOND).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(other.call_record(&Tenant::default(), call_id).await.unwrap().unwrap().outcome.is_none());
    let (back, _) = node(&memory, "a").await;
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    back.resolve_approval(&Tenant::default(), approval, yes).await.unwrap();
    let ended = tokio::time::timeout(60 * SECOND, back.wait_for_call(&Tenant::default(), call_id)).await.unwrap();
    ended.unwrap().unwrap().outcome.unwrap().assert_success();
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_node_that_leaves_wait_on_at_once_also_while_others_wait_for_a_node_that_has_their_tool() {
    let memory: Arc<SharedMemory> = Arc::default();
    let (second, _) = node(&memory, "b").await;
    let rare = scripted("rare", []).0.confirm();
    let owner = ToolHub::builder().shared_store(memory.connect()).tool(rare).build().await.unwrap();
    let (first, _) = node(&memory, "a").await;
    // Until all know each other.
    tokio::time::sleep(6 * SECOND).await;
    let waiting = async |hub: &ToolHub, tool: &str| {
        let mut call = hub.call(tool, json!({})).thread("t").detached().start();
        let toolhub::CallReceipt::AwaitingApproval { approval, .. } = call.accepted().await else { panic!() };
        (call.id(), approval)
    };
    waiting(&owner, "rare").await;
    let (call, approval) = waiting(&first, "pay").await;
    owner.shutdown(SECOND).await;
    // The others look again every five seconds.
    tokio::time::sleep(11 * SECOND).await;
    let left_at = tokio::time::Instant::now();
    first.shutdown(SECOND).await;
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    second.resolve_approval(&Tenant::default(), approval, yes).await.unwrap();
    let ended = tokio::time::timeout(60 * SECOND, second.wait_for_call(&Tenant::default(), call)).await.unwrap();
    ended.unwrap().unwrap().outcome.unwrap().assert_success();
    assert!(left_at.elapsed() < SECOND, "{:?}", left_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_waiting_call_of_a_node_that_left_before_another_had_seen_it_waits_on_there() {
    let memory = Arc::default();
    let (first, _) = node(&memory, "a").await;
    tokio::time::sleep(SECOND).await;
    let (short, _) = node(&memory, "b").await;
    let mut call = short.call("pay", json!({})).thread("t").detached().start();
    let call_id = call.id();
    let toolhub::CallReceipt::AwaitingApproval { approval, .. } = call.accepted().await else { panic!() };
    short.shutdown(SECOND).await;
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    first.resolve_approval(&Tenant::default(), approval, yes).await.unwrap();
    let ended = tokio::time::timeout(SECOND, first.wait_for_call(&Tenant::default(), call_id)).await.unwrap();
    ended.unwrap().unwrap().outcome.unwrap().assert_success();
}

async fn maintainers(hub: &ToolHub) -> Vec<String> {
    let nodes = hub.nodes().await.unwrap().into_iter().filter(|node| node.is_maintainer);
    nodes.map(|node| node.name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_node_does_the_maintenance_and_another_takes_it_over() {
    let memory = Arc::default();
    let ((first, _), (second, connection), (third, _)) =
        (node(&memory, "a").await, node(&memory, "b").await, node(&memory, "c").await);
    for hub in [&first, &second, &third] {
        assert_eq!(maintainers(hub).await, ["a"]);
    }
    first.shutdown(SECOND).await;
    tokio::time::sleep(SECOND).await;
    let heir = maintainers(&third).await;
    assert_eq!((heir.len(), maintainers(&second).await), (1, heir.clone()), "at once after a clean leave");
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(maintainers(&third).await, heir);
    if heir == ["b"] {
        connection.unavailable.store(true, Ordering::Release);
        tokio::time::sleep(21 * SECOND).await;
        assert_eq!(maintainers(&third).await, ["c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn expired_rows_and_idle_threads_are_removed_whichever_node_does_it() {
    let memory: Arc<SharedMemory> = Arc::default();
    let node = async || {
        let builder = ToolHub::builder().shared_store(memory.connect()).clock(toolhub::testing::TestClock::new());
        builder.idle_thread_retention(3600 * SECOND).build().await.unwrap()
    };
    let (first, second) = (node().await, node().await);
    let threads = async || second.threads(&Tenant::default(), None).await.unwrap().threads.len();
    second.create_thread(&Tenant::default(), None).await.unwrap();
    drop(first);
    tokio::time::sleep(1_800 * SECOND).await;
    assert_eq!(threads().await, 1);
    tokio::time::sleep(3_600 * SECOND).await;
    assert_eq!(threads().await, 0);
}
