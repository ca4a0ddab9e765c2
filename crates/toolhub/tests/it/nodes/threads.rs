//! Threads that are deleted on one node are gone on the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    StatusScope,
    ids::ThreadId,
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, ScriptStep, scripted},
};

use crate::shared_memory::SharedMemory;

const SECOND: Duration = Duration::from_secs(1);

fn tenant() -> Tenant {
    Tenant::default()
}

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

struct Line(Arc<AtomicUsize>);

impl Instance for Line {
    type Arguments = NoArguments;
    type Output = usize;

    async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<usize, ToolError> {
        Ok(self.0.load(Ordering::Acquire))
    }

    async fn close(self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// A node, and how many of its instances were closed. In each of its threads `look` fails twice, then succeeds.
async fn node(store: &Arc<SharedMemory>) -> (ToolHub, Arc<AtomicUsize>) {
    let closed = Arc::new(AtomicUsize::new(0));
    let line = closed.clone();
    let open = move |_: CallContext| {
        let line = line.clone();
        async move { Ok(Line(line)) }
    };
    let fail = || ScriptStep::Fail(ToolError::new("no"));
    let look = scripted("look", [fail(), fail()]).0.no_retry();
    let settings = StatusSettings { failure_threshold: 2, ..StatusSettings::default() };
    let builder = ToolHub::builder().shared_store(store.connect()).status(settings);
    (builder.tool(instance("line", open)).tool(look).build().await.unwrap(), closed)
}

async fn status(hub: &ToolHub) -> ToolStatus {
    hub.tool_status("look", StatusScope::Thread(&tenant(), &thread())).await.unwrap().status
}

#[tokio::test(start_paused = true)]
async fn what_a_node_has_of_a_thread_that_another_node_deletes_is_gone_and_the_thread_can_be_used_again() {
    let store = Arc::default();
    let ((first, _), (second, closed)) = (node(&store).await, node(&store).await);
    second.call("line", json!({})).thread("t").await.assert_success();
    for _ in 0..2 {
        second.call("look", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!((status(&first).await, status(&second).await), (ToolStatus::Failed, ToolStatus::Failed));
    assert!(first.delete_thread(&tenant(), &thread()).await.unwrap());
    tokio::time::sleep(SECOND).await;
    assert_eq!(closed.load(Ordering::Acquire), 1, "its instance is closed");
    assert_eq!((status(&first).await, status(&second).await), (ToolStatus::Available, ToolStatus::Available));
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(first.thread(&tenant(), &thread()).await.unwrap(), None, "no node brings it back by itself");

    second.call("line", json!({})).thread("t").await.assert_success();
    assert!(first.thread(&tenant(), &thread()).await.unwrap().is_some(), "its row is there with its first call");
    assert_eq!(closed.load(Ordering::Acquire), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_deletes_a_thread_keeps_what_is_made_in_it_afterwards() {
    let store = Arc::default();
    let (hub, closed) = node(&store).await;
    hub.call("line", json!({})).thread("t").await.assert_success();
    assert!(hub.delete_thread(&tenant(), &thread()).await.unwrap());
    assert_eq!(closed.load(Ordering::Acquire), 1);
    hub.call("line", json!({})).thread("t").await.assert_success();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(closed.load(Ordering::Acquire), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_while_its_thread_is_deleted_elsewhere_brings_the_thread_back() {
    let store: Arc<SharedMemory> = Arc::default();
    let slow = scripted("slow", [ScriptStep::Wait(20 * SECOND), ScriptStep::Return(json!(1))]).0.read_only();
    let second = ToolHub::builder().shared_store(store.connect()).tool(slow).build().await.unwrap();
    let (first, _) = node(&store).await;
    second.create_thread(&tenant(), Some(thread())).await.unwrap();
    let running = second.call("slow", json!({})).thread("t").start();
    tokio::time::sleep(SECOND).await;
    // A read-only call without a key is not in the journal, so the other node does not see it.
    assert!(first.delete_thread(&tenant(), &thread()).await.unwrap());
    running.await.assert_success();
    tokio::time::sleep(10 * SECOND).await;
    assert!(first.thread(&tenant(), &thread()).await.unwrap().is_some());
}
