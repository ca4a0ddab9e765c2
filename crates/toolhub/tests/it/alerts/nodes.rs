//! Several nodes: each message is sent once, and none is missing when nodes die.

use std::{sync::Arc, sync::atomic::Ordering};

use toolhub::{
    NodeInfo,
    alerts::{AlertPhase, AlertTarget, Condition},
    prelude::*,
    status::ToolStatus,
    testing::{TestClock, scripted},
};

use super::{MINUTE, SECOND, receiver::Receiver, set};
use crate::{faulty_store::FaultyStore, shared_memory::SharedMemory};

async fn node(
    memory: &Arc<SharedMemory>,
    clock: &TestClock,
    name: &str,
    target: AlertTarget,
) -> (ToolHub, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
    let builder = ToolHub::builder().shared_store(memory.record(store.clone())).node(NodeInfo::new(name));
    let builder = builder.clock(clock.clone());
    let tools = (0..10).map(|number| scripted(&format!("tool{number}"), []).0);
    (builder.tools(tools).alert(target).build().await.unwrap(), store)
}

#[tokio::test(start_paused = true)]
async fn three_nodes_tell_a_target_once_of_each_change() {
    let (memory, receiver, clock) = (Arc::default(), Receiver::default(), TestClock::new());
    let target = || AlertTarget::new("ops", receiver.clone());
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(node(&memory, &clock, name, target()).await.0);
    }
    tokio::time::sleep(30 * SECOND).await;
    for number in 0..10 {
        set(&nodes[number % 3], &format!("tool{number}"), ToolStatus::Maintenance).await;
        tokio::time::sleep(SECOND).await;
    }
    tokio::time::sleep(2 * MINUTE).await;
    let mut told: Vec<_> = receiver
        .messages()
        .iter()
        .flat_map(|message| message.alerts.iter().map(|it| it.thing.to_string()).collect::<Vec<_>>())
        .collect();
    told.sort_unstable();
    assert_eq!(told, (0..10).map(|number| format!("tool{number}")).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_told_of_by_another_one_which_goes_on_with_its_messages() {
    let (memory, receiver, clock) = (Arc::default(), Receiver::default(), TestClock::new());
    let target = || AlertTarget::new("ops", receiver.clone()).on([Condition::NodeGone, Condition::ToolStatus]);
    let (_first, connection) = node(&memory, &clock, "a", target()).await;
    let (second, _) = node(&memory, &clock, "b", target()).await;
    tokio::time::sleep(30 * SECOND).await;
    connection.unavailable.store(true, Ordering::Release);
    set(&second, "tool1", ToolStatus::Maintenance).await;
    tokio::time::sleep(2 * MINUTE).await;
    let summaries: Vec<_> = receiver.messages().iter().map(toolhub::alerts::AlertMessage::summary).collect();
    assert_eq!(summaries.len(), 2, "{summaries:?}");
    assert!(summaries.iter().any(|text| text.contains("node `a` no longer answers")), "{summaries:?}");
    connection.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(2 * MINUTE).await;
    let last = receiver.messages().pop().unwrap();
    assert_eq!((last.phase, last.alerts[0].thing.as_str()), (AlertPhase::Resolved, "a"));
}
