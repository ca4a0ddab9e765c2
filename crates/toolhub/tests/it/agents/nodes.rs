//! Runs on a store with several nodes: each has one driver, and a dead node's runs go on elsewhere.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::StreamExt;
use toolhub::{
    ids::{IdempotencyKey, RunId, ThreadId},
    prelude::*,
    testing::scripted,
};
use toolhub_agent::{
    AgentDefinition, AgentError, AgentService, RunCancellation, RunEvent, RunRecord, RunStatus, UserMessage,
};

use super::{ScriptedModel, text_reply};
use crate::{faulty_store::FaultyStore, shared_memory::SharedMemory};

const SECOND: Duration = Duration::from_secs(1);

fn tenant() -> Tenant {
    Tenant::default()
}

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// A node with an agent, and the connection to its store, which a test can cut.
struct Node {
    service: AgentService,
    model: Arc<ScriptedModel>,
    connection: Arc<FaultyStore>,
}

impl Node {
    /// A node whose model gives this answer, or thinks forever.
    async fn start(memory: &Arc<SharedMemory>, answer: Option<&str>) -> Self {
        let node = Self::start_for_a_task(memory, answer).await;
        node.service.resume().await.unwrap();
        node
    }

    /// The same without resuming: a process that does one task, and leaves the runs of dead nodes to the others.
    async fn start_for_a_task(memory: &Arc<SharedMemory>, answer: Option<&str>) -> Self {
        let connection = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
        let builder = ToolHub::builder().shared_store(memory.record(connection.clone())).tool(scripted("look", []).0);
        let service = AgentService::new(&builder.build().await.unwrap());
        let model = ScriptedModel::new(answer.map(text_reply));
        service.define("default", AgentDefinition::new(model.clone()));
        Self { service, model, connection }
    }

    async fn record(&self, run: RunId) -> RunRecord {
        self.service.run(&tenant(), run).await.unwrap().unwrap()
    }

    /// Cuts it off from the store, as if it had died.
    fn die(&self) {
        self.connection.unavailable.store(true, Ordering::Release);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_living_node_is_left_alone_and_that_of_a_dead_node_goes_on_at_one_other() {
    let memory = Arc::default();
    let first = Node::start(&memory, None).await;
    let others = [Node::start(&memory, Some("Done.")).await, Node::start(&memory, Some("Done.")).await];
    let run = first.service.send(&tenant(), &thread(), "Go").await.unwrap().id();
    tokio::time::sleep(60 * SECOND).await;
    for other in &others {
        let busy = other.service.send(&tenant(), &thread(), "And?").await.unwrap_err();
        assert_eq!(busy, AgentError::Busy(run));
        assert_eq!(other.service.resume().await.unwrap(), 0);
    }
    first.die();
    tokio::time::sleep(13 * SECOND).await;
    assert_eq!(others[0].record(run).await.status, RunStatus::Running, "its node may only be slow");
    tokio::time::sleep(9 * SECOND).await;
    assert_eq!(others[0].record(run).await.content, "Done.");
    let asked: Vec<usize> = others.iter().map(|other| other.model.prompts().len()).collect();
    assert_eq!(asked.iter().sum::<usize>(), 1, "one node took it over: {asked:?}");
    assert_eq!(first.model.prompts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_node_that_was_shut_down_goes_on_at_once() {
    let memory = Arc::default();
    let (first, second) = (Node::start(&memory, None).await, Node::start(&memory, Some("Done.")).await);
    let run = first.service.send(&tenant(), &thread(), "Go").await.unwrap().id();
    tokio::time::sleep(SECOND).await;
    first.service.stop().await;
    assert_eq!(second.record(run).await.status, RunStatus::Running);
    first.service.hub().shutdown(SECOND).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(second.record(run).await.content, "Done.");
}

#[tokio::test(start_paused = true)]
async fn a_process_with_one_task_takes_over_no_run_and_cancels_its_own_for_others() {
    let memory = Arc::default();
    let first = Node::start(&memory, None).await;
    let run = first.service.send(&tenant(), &thread(), "Go").await.unwrap().id();
    let task = Node::start_for_a_task(&memory, Some("Never.")).await;
    first.service.stop().await;
    first.service.hub().shutdown(SECOND).await;
    tokio::time::sleep(700 * SECOND).await;
    assert_eq!(task.record(run).await.status, RunStatus::Running);
    assert_eq!(task.model.prompts().len(), 0);
    let server = Node::start(&memory, Some("Done.")).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(server.record(run).await.content, "Done.");

    let task = Node::start_for_a_task(&memory, None).await;
    let mut own = task.service.send(&tenant(), &thread(), "Go").await.unwrap();
    assert_eq!(server.service.cancel(&tenant(), own.id()).await.unwrap(), RunCancellation::Requested);
    assert_eq!(own.wait_ended().await.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_left_to_the_nodes_that_know_its_agent() {
    let memory = Arc::default();
    let (first, ignorant) = (Node::start(&memory, None).await, Node::start(&memory, Some("Never.")).await);
    first.service.define("careful", AgentDefinition::new(ScriptedModel::new([])));
    let message = UserMessage { agent: Some("careful".into()), ..UserMessage::from("Go") };
    let run = first.service.send(&tenant(), &thread(), message).await.unwrap().id();
    first.service.stop().await;
    first.service.hub().shutdown(SECOND).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(ignorant.record(run).await.status, RunStatus::Running);
    let knowing = Node::start(&memory, None).await;
    knowing.service.define("careful", AgentDefinition::new(ScriptedModel::new([text_reply("Done.")])));
    assert_eq!(knowing.service.resume().await.unwrap(), 1);
    tokio::time::sleep(SECOND).await;
    assert_eq!(ignorant.record(run).await.content, "Done.");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_node_drives_is_followed_to_its_end() {
    let memory = Arc::default();
    let (first, second) = (Node::start(&memory, None).await, Node::start(&memory, None).await);
    let message = || UserMessage { key: Some(IdempotencyKey::new("k").unwrap()), ..UserMessage::from("Go") };
    let run = first.service.send(&tenant(), &thread(), message()).await.unwrap().id();
    let mut replayed = second.service.send(&tenant(), &thread(), message()).await.unwrap();
    assert!(replayed.is_replayed() && replayed.id() == run);
    let key = toolhub::ids::ThreadKey::new(&tenant(), &thread());
    let events = second.service.follow(&key, run, second.service.hub().subscribe());
    let waiting = async { tokio::join!(replayed.wait_ended(), events.collect::<Vec<_>>()) };
    let cancelling = async {
        tokio::time::sleep(30 * SECOND).await;
        first.service.cancel(&tenant(), run).await.unwrap();
        tokio::time::Instant::now()
    };
    let ((record, events), cancelled_at) = tokio::join!(waiting, cancelling);
    assert!(cancelled_at.elapsed() <= SECOND + SECOND / 10, "{:?}", cancelled_at.elapsed());
    assert_eq!(record.status, RunStatus::Cancelled);
    let is_end = |event: &RunEvent| match event {
        RunEvent::Event(event) => ["run.completed", "run.failed"].contains(&event.name()),
        RunEvent::Ended(end) => end.status == RunStatus::Cancelled,
        _ => false,
    };
    assert!(events.last().is_some_and(is_end), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_cancelled_from_any_node_and_even_if_its_node_has_died() {
    let memory = Arc::default();
    let (first, second) = (Node::start(&memory, None).await, Node::start(&memory, Some("Never.")).await);
    let mut run = first.service.send(&tenant(), &thread(), "Go").await.unwrap();
    assert_eq!(second.service.cancel(&tenant(), run.id()).await.unwrap(), RunCancellation::Requested);
    let ended = tokio::time::timeout(SECOND, run.wait_ended()).await.unwrap();
    assert_eq!(ended.status, RunStatus::Cancelled);
    let again = second.service.cancel(&tenant(), run.id()).await.unwrap();
    assert_eq!(again, RunCancellation::Ended(RunStatus::Cancelled));

    let run = first.service.send(&tenant(), &thread(), "Go again").await.unwrap().id();
    first.die();
    assert_eq!(second.service.cancel(&tenant(), run).await.unwrap(), RunCancellation::Requested);
    tokio::time::sleep(25 * SECOND).await;
    assert_eq!(second.record(run).await.status, RunStatus::Cancelled, "the node that takes it over finds the request");
    assert_eq!(second.model.prompts().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_of_another_node_is_noticed_at_once() {
    let memory = Arc::default();
    let (first, second) = (Node::start(&memory, None).await, Node::start(&memory, None).await);
    let message = || UserMessage { key: Some(IdempotencyKey::new("k").unwrap()), ..UserMessage::from("Go") };
    let mut run = first.service.send(&tenant(), &thread(), message()).await.unwrap();
    let mut replayed = second.service.send(&tenant(), &thread(), message()).await.unwrap();
    let waiting = async {
        replayed.wait_ended().await;
        tokio::time::Instant::now()
    };
    let ending = async {
        // Between two looks of a node that has heard nothing for long.
        tokio::time::sleep(Duration::from_millis(30_300)).await;
        first.service.cancel(&tenant(), run.id()).await.unwrap();
        run.wait_ended().await;
        tokio::time::Instant::now()
    };
    let (noticed_at, ended_at) = tokio::join!(waiting, ending);
    assert!(noticed_at.saturating_duration_since(ended_at) < Duration::from_millis(10), "{:?}", noticed_at - ended_at);
}
