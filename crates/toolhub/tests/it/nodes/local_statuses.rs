//! Statuses while a node cannot reach the store: what it sees counts there, and for all nodes afterwards.

use std::sync::atomic::Ordering;

use toolhub::{StatusScope, status::ToolStatus, testing::ScriptStep};

use super::*;

/// A node whose tool `look` fails so many times, then succeeds.
async fn failing_node(memory: &Arc<SharedMemory>, failures: usize) -> (ToolHub, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
    let steps = (0..failures).map(|_| ScriptStep::Fail(ToolError::new("the wire is cut")));
    let builder = ToolHub::builder().shared_store(memory.record(store.clone()));
    (builder.tool(scripted("look", steps).0.read_only()).build().await.unwrap(), store)
}

async fn status(hub: &ToolHub) -> (ToolStatus, u32, bool) {
    let info = hub.tool_status("look", StatusScope::Shared).await.unwrap();
    (info.status, info.consecutive_failures, info.local)
}

#[tokio::test(start_paused = true)]
async fn failures_count_on_a_node_without_the_store_and_on_all_nodes_afterwards() {
    let memory = Arc::default();
    let ((first, connection), (second, _)) = (failing_node(&memory, 3).await, failing_node(&memory, 0).await);
    tokio::time::sleep(SECOND).await;
    first.call("look", json!({})).await.assert_error(ErrorKind::ToolError);
    assert_eq!(status(&first).await, (ToolStatus::Available, 1, false));

    connection.unavailable.store(true, Ordering::Release);
    for _ in 0..2 {
        first.call("look", json!({})).await.assert_error(ErrorKind::ToolError);
    }
    assert_eq!(status(&first).await, (ToolStatus::Failed, 3, true));
    first.call("look", json!({})).await.assert_error(ErrorKind::ToolFailedStatus);
    assert_eq!(status(&second).await, (ToolStatus::Available, 1, false), "it has not heard of them");
    let refused = first.set_tool_status("look", ToolStatus::Maintenance, None, None, StatusScope::Shared).await;
    assert!(refused.is_err(), "the decision of an operator holds on all nodes or not at all");

    connection.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(3 * SECOND).await;
    for hub in [&first, &second] {
        assert_eq!(status(hub).await, (ToolStatus::Failed, 3, false));
    }
}

#[tokio::test(start_paused = true)]
async fn what_other_nodes_have_seen_meanwhile_counts_too() {
    let memory = Arc::default();
    let ((first, connection), (second, _)) = (failing_node(&memory, 2).await, failing_node(&memory, 2).await);
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, Ordering::Release);
    for hub in [&first, &second, &first, &second] {
        hub.call("look", json!({})).await.assert_error(ErrorKind::ToolError);
    }
    assert_eq!(status(&first).await, (ToolStatus::Available, 2, true));
    assert_eq!(status(&second).await, (ToolStatus::Available, 2, false));
    connection.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(3 * SECOND).await;
    for hub in [&first, &second] {
        assert_eq!(
            status(hub).await,
            (ToolStatus::Failed, 3, false),
            "the third failure withholds it; the fourth changes nothing"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_once_even_if_the_answer_of_the_store_to_it_is_lost() {
    let memory = Arc::default();
    let ((first, connection), (second, _)) = (failing_node(&memory, 1).await, failing_node(&memory, 1).await);
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, Ordering::Release);
    first.call("look", json!({})).await.assert_error(ErrorKind::ToolError);
    assert_eq!(status(&first).await, (ToolStatus::Available, 1, true));
    connection.loses_acks.store(true, Ordering::Release);
    connection.unavailable.store(false, Ordering::Release);
    for _ in 0..30 {
        tokio::time::sleep(SECOND / 10).await;
        let (_, failures, _) = status(&first).await;
        assert_eq!(failures, 1);
    }
    connection.loses_acks.store(false, Ordering::Release);
    second.call("look", json!({})).await.assert_error(ErrorKind::ToolError);
    tokio::time::sleep(3 * SECOND).await;
    for hub in [&first, &second] {
        assert_eq!(status(hub).await, (ToolStatus::Available, 2, false));
    }
}
