//! Every run ends: also if its model panics or never answers, its agent is removed, its time is up, or its hub shuts
//! down.

use std::{sync::Arc, time::Duration};

use toolhub::{
    Status, Toolset,
    backend::Memory,
    export::Format,
    ids::ThreadId,
    prelude::*,
    testing::{ScriptStep, scripted},
};
use toolhub_agent::{
    AgentBuilder, AgentDefinition, AgentService, Message, Model, ModelError, Prompt, Reply, RunCancellation, RunRecord,
    RunStatus, StreamSink,
};

use super::{ScriptedModel, calls_reply, text_reply};

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// A model that panics.
struct PanickingModel;

impl Model for PanickingModel {
    fn name(&self) -> &str {
        "clumsy"
    }
    fn format(&self) -> Format {
        Format::OpenAi
    }
    fn ask<'a>(&'a self, _: Prompt<'a>, _: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        panic!("scripted panic")
    }
}

#[tokio::test]
async fn a_model_that_panics_fails_its_run() {
    let hub = ToolHub::builder().build().await.unwrap();
    let agent = AgentBuilder::new(Arc::new(PanickingModel)).build(&hub).await.unwrap();
    for _ in 0..2 {
        let run = agent.invoke("Go").await.unwrap();
        assert_eq!((run.status, run.error.unwrap().code.as_str()), (RunStatus::Failed, "model_failed"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_answers_fails_its_run() {
    let hub = ToolHub::builder().build().await.unwrap();
    let agent = AgentBuilder::new(ScriptedModel::new([])).build(&hub).await.unwrap();
    let run = agent.invoke("Go").await.unwrap();
    assert_eq!((run.status, run.error.unwrap().code.as_str()), (RunStatus::Failed, "model_timeout"));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_is_up_does_not_wait_for_its_calls() {
    let (hang, _) = scripted("hang", [ScriptStep::Hang]);
    let hub = ToolHub::builder().tool(hang.timeout(Duration::from_secs(600))).build().await.unwrap();
    let model = ScriptedModel::new([calls_reply([("hang", json!({}))]), text_reply("Never said.")]);
    let agent = AgentBuilder::new(model.clone()).time_budget(Duration::from_secs(10)).build(&hub).await.unwrap();
    let started = tokio::time::Instant::now();
    let run = agent.invoke("Go").await.unwrap();
    assert_eq!((run.status, run.error.unwrap().code.as_str()), (RunStatus::Failed, "time_budget"));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(model.prompts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_somebody_holds_is_there_however_long_it_was_not_used() {
    let hub = ToolHub::builder().build().await.unwrap();
    let agent =
        AgentBuilder::new(ScriptedModel::new([text_reply("One."), text_reply("Two.")])).build(&hub).await.unwrap();
    assert_eq!(agent.invoke("Go").await.unwrap().content, "One.");
    tokio::time::advance(Duration::from_secs(7_200)).await;
    assert_eq!(agent.invoke("Go").await.unwrap().content, "Two.");
}

/// A service on a store that was used before.
async fn service(store: &Arc<Memory>, tool: ToolBuilder) -> AgentService {
    AgentService::new(&ToolHub::builder().store(store.clone()).tool(tool).build().await.unwrap())
}

async fn wait_for_end(service: &AgentService, run: &RunRecord) -> RunRecord {
    let ended = async {
        loop {
            let record = service.run(&default_tenant(), run.id).await.unwrap().unwrap();
            if record.status.is_end() {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the run was not continued")
}

#[tokio::test]
async fn the_run_of_an_agent_that_is_gone_ends_without_doing_what_that_agent_could_not() {
    let store: Arc<Memory> = Arc::default();
    let (pay, _) = scripted("pay", []);
    let first = service(&store, pay.confirm()).await;
    let plan = AgentDefinition::new(ScriptedModel::new([calls_reply([("look", json!({})), ("pay", json!({}))])]));
    first.define("careful", plan.toolset(Toolset::from_patterns(["look"]).unwrap()));
    // Both calls are requested, and the first never ends: its process dies before the second begins.
    let (look, looking) = scripted("look", [ScriptStep::Hang]);
    first.hub().register(look).unwrap();
    let message =
        toolhub_agent::UserMessage { agent: Some("careful".into()), ..toolhub_agent::UserMessage::from("Go") };
    let run = first.send(&default_tenant(), &thread(), message).await.unwrap();
    while looking.recorded_arguments().is_empty() {
        tokio::task::yield_now().await;
    }
    first.stop().await;
    first.hub().shutdown(Duration::ZERO).await;
    let (pay, paying) = scripted("pay", []);
    let second = service(&store, pay).await;
    assert_eq!(second.resume().await.unwrap(), 1);
    let end = wait_for_end(&second, &run.record()).await;
    assert_eq!((end.status, end.error.unwrap().code.as_str()), (RunStatus::Failed, "no_such_agent"));
    assert_eq!(paying.recorded_arguments().len(), 0);
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_goes_on_after_a_hub_that_was_shut_down() {
    let store: Arc<Memory> = Arc::default();
    let (pay, _) = scripted("pay", []);
    let first = service(&store, pay.confirm()).await;
    let model = ScriptedModel::new([calls_reply([("pay", json!({}))]), text_reply("It was not paid.")]);
    first.define("default", AgentDefinition::new(model.clone()));
    let mut run = first.send(&default_tenant(), &thread(), "Pay").await.unwrap();
    let waiting = run.wait_while_running().await;
    assert_eq!(waiting.status, RunStatus::Waiting);
    let question = waiting.calls[0].approval.unwrap();
    // The service is not stopped: a program that only holds an agent cannot stop it.
    first.hub().shutdown(Duration::from_secs(1)).await;
    assert_eq!(run.wait_ended().await.status, RunStatus::Waiting, "the handle returns the current state");
    assert_eq!(model.prompts().len(), 1);
    let (pay, paying) = scripted("pay", []);
    let second = service(&store, pay.confirm()).await;
    second.define("default", AgentDefinition::new(ScriptedModel::new([text_reply("Paid.")])));
    second.resume().await.unwrap();
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    second.hub().resolve_approval(&default_tenant(), question, yes).await.unwrap();
    let end = wait_for_end(&second, &waiting).await;
    assert_eq!((end.content.as_str(), paying.recorded_arguments().len()), ("Paid.", 1));
    assert_eq!(second.messages(&default_tenant(), &thread(), 10, None).await.unwrap().len(), 4);
}

#[tokio::test]
async fn one_open_run_that_cannot_be_read_does_not_keep_the_others_from_going_on() {
    use toolhub::backend::{Backend, Batch, Change, Durability, Expect, Partition, Table, Write};
    let store: Arc<Memory> = Arc::default();
    let (look, _) = scripted("look", []);
    let first = service(&store, look).await;
    first.define("default", AgentDefinition::new(ScriptedModel::new([])));
    let run = first.send(&default_tenant(), &thread(), "Go").await.unwrap();
    first.stop().await;
    first.hub().shutdown(Duration::ZERO).await;
    let mut batch = Batch::new(Partition::for_thread(default_tenant(), ThreadId::new("a").unwrap()));
    let change = Change::Put { value: b"{}".to_vec().into(), schema: 1, expires: None };
    let (table, id) = (Table::Runs, Table::OPEN_RUN.into());
    batch.writes.push(Write { table, id, expect: Expect::Any, change, durability: Durability::KillSafe });
    store.commit(batch, first.hub().now()).await.unwrap();
    let (look, _) = scripted("look", []);
    let second = service(&store, look).await;
    second.define("default", AgentDefinition::new(ScriptedModel::new([text_reply("Hello.")])));
    assert_eq!(second.resume().await.unwrap(), 1);
    assert_eq!(wait_for_end(&second, &run.record()).await.content, "Hello.");
}

#[tokio::test]
async fn a_run_can_be_cancelled_whatever_it_waits_for() {
    let store: Arc<Memory> = Arc::default();
    let (pay, _) = scripted("pay", []);
    let first = service(&store, pay.confirm()).await;
    first.define("default", AgentDefinition::new(ScriptedModel::new([calls_reply([("pay", json!({}))])])));
    let mut run = first.send(&default_tenant(), &thread(), "Pay").await.unwrap();
    assert_eq!(run.wait_while_running().await.status, RunStatus::Waiting);
    first.stop().await;
    first.hub().shutdown(Duration::from_secs(1)).await;
    // Cancelled by a process that has not continued it, and by one that has.
    let (pay, paying) = scripted("pay", []);
    let second = service(&store, pay.confirm()).await;
    second.define("default", AgentDefinition::new(ScriptedModel::new([])));
    assert_eq!(second.cancel(&default_tenant(), run.id()).await.unwrap(), RunCancellation::Requested);
    let end = wait_for_end(&second, &run.record()).await;
    assert_eq!(
        (end.status, end.calls[0].status, paying.recorded_arguments().len()),
        (RunStatus::Cancelled, Status::Cancelled, 0)
    );
    let messages = second.messages(&default_tenant(), &thread(), 10, None).await.unwrap();
    assert!(matches!(messages.last().map(|stored| &stored.message), Some(Message::Tool { .. })), "{messages:?}");
}

#[tokio::test]
async fn a_thread_that_is_taken_away_takes_its_run_with_it() {
    let (pay, _) = scripted("pay", []);
    let service = service(&Arc::default(), pay).await;
    let model = ScriptedModel::new([]);
    service.define("default", AgentDefinition::new(model.clone()));
    let mut run = service.send(&default_tenant(), &thread(), "Think").await.unwrap();
    while model.prompts().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(service.delete_thread(&default_tenant(), &thread()).await.unwrap());
    assert_eq!(run.wait_ended().await.status, RunStatus::Cancelled);
    assert!(service.run(&default_tenant(), run.id()).await.unwrap().is_none());
    assert!(service.messages(&default_tenant(), &thread(), 10, None).await.unwrap().is_empty());
    // A client that received the end may send again, as if the message had never been sent.
    let next = service.send(&default_tenant(), &thread(), "Hello").await.unwrap();
    assert_ne!(next.id(), run.id());
    assert_eq!(service.messages(&default_tenant(), &thread(), 10, None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_external_call_after_a_restart_can_be_seen_in_its_run() {
    let store: Arc<Memory> = Arc::default();
    let (pay, _) = scripted("pay", []);
    let plan = |model| {
        AgentDefinition::new(model)
            .execution(toolhub_agent::ToolExecution::External { deadline: Duration::from_secs(60) })
    };
    let first = service(&store, pay.confirm()).await;
    first.define("default", plan(ScriptedModel::new([calls_reply([("pay", json!({"sum": 5}))])])));
    let mut run = first.send(&default_tenant(), &thread(), "Pay").await.unwrap();
    let question = run.wait_while_running().await.calls[0].approval.unwrap();
    first.stop().await;
    first.hub().shutdown(Duration::from_secs(1)).await;
    let (pay, _) = scripted("pay", []);
    let second = service(&store, pay.confirm()).await;
    second.define("default", plan(ScriptedModel::new([text_reply("Paid.")])));
    second.resume().await.unwrap();
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
    second.hub().resolve_approval(&default_tenant(), question, yes).await.unwrap();
    let handed = async {
        loop {
            let record = second.run(&default_tenant(), run.id()).await.unwrap().unwrap();
            match &record.calls[0].arguments {
                Some(arguments) => return (record.status, arguments.clone(), record.calls[0].id),
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    let (status, arguments, call) =
        tokio::time::timeout(Duration::from_secs(20), handed).await.expect("the call is handed out");
    assert_eq!((status, arguments), (RunStatus::Waiting, json!({"sum": 5})));
    second.hub().report_external_result(&default_tenant(), call, Ok(json!("paid"))).await.unwrap();
    assert_eq!(wait_for_end(&second, &run.record()).await.content, "Paid.");
}
