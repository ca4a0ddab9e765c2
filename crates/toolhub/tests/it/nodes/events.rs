//! Stored events of several nodes: each once, in one order, on every node.

use std::sync::{Mutex, atomic::Ordering};

use toolhub::{
    StatusScope,
    backend::{Backend, Batch, Table},
    clock::Timestamp,
    events::Event,
    status::ToolStatus,
    testing::{EventRecorder, ScriptStep, TestClock},
};

use super::*;
use crate::intercepted_store::{CommitAction, InterceptedStore};

/// What a subscriber received of the stored events: numbers and names with the status.
fn stored(recorder: &mut EventRecorder) -> Vec<(Option<u64>, String)> {
    let is_stored = |event: &&Arc<Event>| event.kind.is_persisted() && !event.name().starts_with("node.");
    let text = |event: &Arc<Event>| match &event.kind {
        EventKind::StatusChanged { new_status, .. } => format!("{} {}", event.name(), new_status.as_str()),
        _ => event.name().to_owned(),
    };
    recorder.events().iter().filter(is_stored).map(|event| (event.id, text(event))).collect()
}

fn texts(events: &[(Option<u64>, String)]) -> Vec<&str> {
    events.iter().map(|(_, text)| text.as_str()).collect()
}

async fn set_status(hub: &ToolHub, status: ToolStatus) {
    hub.set_tool_status("pay", status, None, None, StatusScope::Shared).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_node_hears_the_stored_events_of_all_once_and_in_one_order() {
    let memory = Arc::default();
    let nodes = [node(&memory, "a").await.0, node(&memory, "b").await.0, node(&memory, "c").await.0];
    tokio::time::sleep(SECOND).await;
    let mut recorders = nodes.each_ref().map(EventRecorder::new);
    for round in 0..10 {
        let hub = &nodes[round % 3];
        set_status(hub, ToolStatus::Maintenance).await;
        nodes[(round + 1) % 3].call("pay", json!({})).thread("t").no_wait().await;
        tokio::time::sleep(SECOND).await;
        set_status(&nodes[(round + 2) % 3], ToolStatus::Available).await;
        hub.call("pay", json!({"round": round})).thread("t").no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    }
    tokio::time::sleep(SECOND).await;
    let heard = recorders.each_mut().map(stored);
    let round = ["tool.status.changed maintenance", "tool.status.changed available", "approval.requested"];
    assert_eq!(texts(&heard[0]), round.repeat(10), "each change once, although three nodes have seen it");
    assert!(heard[0].is_sorted_by(|a, b| a.0.is_some() && a.0 < b.0), "{:?}", heard[0]);
    assert_eq!((&heard[1], &heard[2]), (&heard[0], &heard[0]));
    // A client that reconnects to another node goes on after the last event.
    let middle = heard[0][14].0.unwrap();
    for hub in &nodes {
        let since = hub.events_since(&Tenant::default(), middle).await.unwrap().events;
        let ids: Vec<_> = since.iter().map(|event| Some(event.id)).collect();
        assert_eq!(ids, heard[0][15..].iter().map(|(id, _)| *id).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_are_not_stored_keep_their_place_between_those_that_are() {
    let memory = Arc::default();
    let (first, _) = node(&memory, "a").await;
    let (second, _) = node(&memory, "b").await;
    tokio::time::sleep(SECOND).await;
    let mut recorders = [EventRecorder::new(&first), EventRecorder::new(&second)];
    set_status(&first, ToolStatus::Maintenance).await;
    first.register(scripted("more", []).0).unwrap();
    set_status(&first, ToolStatus::Available).await;
    tokio::time::sleep(SECOND).await;
    let [own, other] = recorders.each_mut().map(|recorder| {
        recorder.names().into_iter().filter(|name| *name != "tool.availability.changed").collect::<Vec<_>>()
    });
    assert_eq!(own, ["tool.status.changed", "tool.registered", "tool.status.changed"]);
    assert_eq!(other, ["tool.status.changed", "tool.status.changed"]);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_events_come_without_numbers_and_are_stored_once_when_it_is_back() {
    let memory = Arc::default();
    let (first, connection) = node(&memory, "a").await;
    let (second, _) = node(&memory, "b").await;
    tokio::time::sleep(SECOND).await;
    let mut recorders = [EventRecorder::new(&first), EventRecorder::new(&second)];
    connection.unavailable.store(true, Ordering::Release);
    first.emit_config_reloaded(&toolhub::ChangeSummary::default(), vec!["server.port".into()]);
    first.register(scripted("more", []).0).unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let names = |recorder: &mut EventRecorder| recorder.names();
    assert_eq!(recorders.each_mut().map(names), [vec!["config.reloaded", "tool.registered"], vec![]]);
    assert_eq!(recorders[0].events()[0].id, None);

    connection.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(5 * SECOND).await;
    let config = |recorder: &mut EventRecorder| {
        stored(recorder).into_iter().filter(|(_, text)| text == "config.reloaded").count()
    };
    assert_eq!(recorders.each_mut().map(config), [1, 1], "once on each node");
    let log = first.events_since(&Tenant::default(), 0).await.unwrap().events;
    assert_eq!(log.iter().filter(|event| event.event == "config.reloaded").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_stores_no_event_twice() {
    let memory = Arc::default();
    let (first, connection) = node(&memory, "a").await;
    let (second, _) = node(&memory, "b").await;
    tokio::time::sleep(SECOND).await;
    let mut recorders = [EventRecorder::new(&first), EventRecorder::new(&second)];
    connection.loses_acks.store(true, Ordering::Release);
    first.emit_config_reloaded(&toolhub::ChangeSummary::default(), Vec::new());
    tokio::time::sleep(5 * SECOND).await;
    second.emit_config_reloaded(&toolhub::ChangeSummary::default(), Vec::new());
    tokio::time::sleep(SECOND).await;
    connection.loses_acks.store(false, Ordering::Release);
    tokio::time::sleep(5 * SECOND).await;
    let log = second.events_since(&Tenant::default(), 0).await.unwrap().events;
    assert_eq!(log.iter().filter(|event| event.event == "config.reloaded").count(), 2);
    let heard = recorders.each_mut().map(stored);
    assert_eq!(texts(&heard[1]), ["config.reloaded"; 2]);
    assert_eq!(texts(&heard[0]), ["config.reloaded"; 2]);
}

#[tokio::test(start_paused = true)]
async fn events_whose_batch_arrives_late_are_stored_once() {
    let store: Arc<InterceptedStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(store.clone()).build().await.unwrap();
    tokio::time::sleep(SECOND).await;
    let mut recorder = EventRecorder::new(&hub);
    let (late, memory) = (Mutex::new(None::<Batch>), store.memory.clone());
    store.before_commits(move |batch| {
        let has_events = batch.writes.iter().any(|write| write.table == Table::Events);
        let mut late = late.lock().unwrap();
        if has_events && late.is_none() {
            *late = Some(batch.clone());
            return Box::pin(async { CommitAction::LoseRequest });
        }
        // The first batch is applied just before the second.
        let (first, memory) = (late.clone().filter(|_| has_events), memory.clone());
        Box::pin(async move {
            if let Some(first) = first {
                let _ = memory.commit(first, Timestamp::default()).await;
            }
            CommitAction::Apply
        })
    });
    hub.emit_config_reloaded(&toolhub::ChangeSummary::default(), Vec::new());
    tokio::time::sleep(10 * SECOND).await;
    let log = hub.events_since(&Tenant::default(), 0).await.unwrap().events;
    assert_eq!(log.iter().filter(|event| event.event == "config.reloaded").count(), 1);
    assert_eq!(texts(&stored(&mut recorder)), ["config.reloaded"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_cool_down_is_one_event() {
    let (memory, clock): (Arc<Memory>, _) = (Arc::default(), TestClock::new());
    let build = async || {
        let failures = (0..3).map(|_| ScriptStep::Fail(ToolError::new("no")));
        let hub = ToolHub::builder().shared_store(memory.clone()).clock(clock.clone());
        hub.tool(scripted("look", failures).0.read_only()).build().await.unwrap()
    };
    let nodes = [build().await, build().await, build().await];
    tokio::time::sleep(SECOND).await;
    let mut recorders = nodes.each_ref().map(EventRecorder::new);
    for _ in 0..3 {
        nodes[0].call("look", json!({})).thread("t").await;
    }
    tokio::time::sleep(600 * SECOND).await;
    let heard = recorders.each_mut().map(stored);
    assert_eq!(texts(&heard[0]), ["tool.status.changed failed", "tool.status.changed available"]);
    assert_eq!((&heard[1], &heard[2]), (&heard[0], &heard[0]));
}
