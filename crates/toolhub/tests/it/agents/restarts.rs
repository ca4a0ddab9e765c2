//! Runs across the death of their process.

use std::{sync::Arc, time::Duration};

use toolhub::{
    Status,
    ids::{RunId, ThreadId},
    prelude::*,
    testing::{ScriptStep, ScriptedTool, scripted},
};
use toolhub_agent::{AgentDefinition, AgentService, Message, RunStatus};

use super::{ScriptedModel, calls_reply, text_reply};
use crate::journal::RestartableStore;

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// Simulates a process that sends a message to an agent and dies when the condition holds.
fn run_and_crash(
    store: RestartableStore,
    tools: Vec<ToolBuilder>,
    model: Arc<ScriptedModel>,
    come_about: impl AsyncFn(&ToolHub, &AgentService, RunId) -> bool + Send + 'static,
) -> RunId {
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(async {
            let hub = store.hub_builder().await.tools(tools).build().await.unwrap();
            let service = AgentService::new(&hub);
            service.define("default", AgentDefinition::new(model));
            let run = service.send(&default_tenant(), &thread(), "Pay the bill").await.unwrap().id();
            while !come_about(&hub, &service, run).await {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (run, hub, service)
        });
        drop(runtime);
        result.0
    });
    life.join().unwrap()
}

/// The next process, with an agent that has these replies.
async fn restart(store: &RestartableStore, tool: ToolBuilder, model: &Arc<ScriptedModel>) -> (ToolHub, AgentService) {
    let hub = store.hub_builder().await.tool(tool).build().await.unwrap();
    let service = AgentService::new(&hub);
    service.define("default", AgentDefinition::new(model.clone()));
    (hub, service)
}

async fn wait_for_end(service: &AgentService, run: RunId) -> toolhub_agent::RunRecord {
    loop {
        let record = service.run(&default_tenant(), run).await.unwrap().unwrap();
        if record.status.is_end() {
            return record;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn call_started(script: &ScriptedTool) -> impl AsyncFn(&ToolHub, &AgentService, RunId) -> bool + Send + 'static {
    let script = script.clone();
    async move |_: &ToolHub, _: &AgentService, _| !script.recorded_arguments().is_empty()
}

#[tokio::test]
async fn a_run_whose_process_died_while_the_model_thought_goes_on_in_the_next() {
    for store in RestartableStore::all_kinds() {
        let (pay, _) = scripted("pay", []);
        let first = ScriptedModel::new([]);
        let model = first.clone();
        let run = run_and_crash(store.clone(), vec![pay], first, async move |_: &ToolHub, _: &AgentService, _| {
            !model.prompts().is_empty()
        });
        let (pay, paying) = scripted("pay", []);
        let second = ScriptedModel::new([calls_reply([("pay", json!({"sum": 5}))]), text_reply("Paid.")]);
        let (_hub, service) = restart(&store, pay, &second).await;
        assert_eq!(service.resume().await.unwrap(), 1);
        assert_eq!(wait_for_end(&service, run).await.content, "Paid.");
        assert_eq!(paying.recorded_arguments().len(), 1);
        assert_eq!(second.prompts()[0].messages, [Message::User { content: "Pay the bill".into() }]);
        assert_eq!(service.resume().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_call_that_had_begun_is_not_made_again_and_the_model_hears_of_it() {
    for store in RestartableStore::all_kinds() {
        let (pay, paying) = scripted("pay", [ScriptStep::Hang]);
        let first = ScriptedModel::new([calls_reply([("pay", json!({"sum": 5}))])]);
        let run = run_and_crash(store.clone(), vec![pay], first, call_started(&paying));
        let (pay, paying) = scripted("pay", []);
        let second = ScriptedModel::new([text_reply("I do not know whether it was paid.")]);
        let (_hub, service) = restart(&store, pay, &second).await;
        service.resume().await.unwrap();
        let record = wait_for_end(&service, run).await;
        assert_eq!(record.status, RunStatus::Completed);
        assert_eq!(paying.recorded_arguments().len(), 0, "the effect is unknown, so it is not paid again");
        let prompts = second.prompts();
        let [_, Message::Assistant { calls, .. }, Message::Tool { results }] = prompts[0].messages.as_slice() else {
            panic!("{prompts:?}")
        };
        assert_eq!((calls.len(), results.len()), (1, 1));
        assert!(results[0].is_error, "{results:?}");
    }
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_waits_on_in_the_next_process() {
    for store in RestartableStore::all_kinds() {
        let (pay, _) = scripted("pay", []);
        let first = ScriptedModel::new([calls_reply([("pay", json!({"sum": 5}))])]);
        let is_waiting = async |_: &ToolHub, service: &AgentService, run| {
            service.run(&default_tenant(), run).await.unwrap().unwrap().status == RunStatus::Waiting
        };
        let run = run_and_crash(store.clone(), vec![pay.confirm()], first, is_waiting);
        let (pay, paying) = scripted("pay", []);
        let second = ScriptedModel::new([text_reply("Paid.")]);
        let (hub, service) = restart(&store, pay.confirm(), &second).await;
        service.resume().await.unwrap();
        let record = loop {
            let record = service.run(&default_tenant(), run).await.unwrap().unwrap();
            if record.status == RunStatus::Waiting {
                break record;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert_eq!(record.calls[0].status, Status::AwaitingApproval);
        let question = record.calls[0].approval.unwrap();
        assert_eq!(paying.recorded_arguments().len(), 0);
        hub.resolve_approval(&default_tenant(), question, Answer::new(ApprovalOutcome::ProceedOnce, Caller::default()))
            .await
            .unwrap();
        let record = wait_for_end(&service, run).await;
        assert_eq!((record.content.as_str(), paying.recorded_arguments().len()), ("Paid.", 1));
    }
}

#[tokio::test]
async fn what_was_said_before_a_restart_is_told_after_it() {
    for store in RestartableStore::all_kinds() {
        let (look, _) = scripted("look", []);
        let first = ScriptedModel::new([calls_reply([("look", json!({}))]), text_reply("I have looked.")]);
        let has_ended = async |_: &ToolHub, service: &AgentService, run| {
            service.run(&default_tenant(), run).await.unwrap().unwrap().status.is_end()
        };
        let (order, _) = scripted("order", []);
        run_and_crash(store.clone(), vec![look, order.after("look")], first, has_ended);
        let (look, _) = scripted("look", []);
        let (order, _) = scripted("order", []);
        let second = ScriptedModel::new([text_reply("Yes.")]);
        let hub = store.hub_builder().await.tool(look).tool(order.after("look")).build().await.unwrap();
        let service = AgentService::new(&hub);
        service.define("default", AgentDefinition::new(second.clone()));
        let mut run = service.send(&default_tenant(), &thread(), "And the order?").await.unwrap();
        assert_eq!(run.wait_ended().await.content, "Yes.");
        let prompts = second.prompts();
        assert_eq!(prompts[0].messages.len(), 5);
        assert_eq!(prompts[0].tools, ["look", "order"], "evidence from before the restart counts");
    }
}
