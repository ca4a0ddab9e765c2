//! A service with agents by thread: one run at a time, idempotency keys, stored and deleted data.

use std::sync::Arc;

use toolhub::{
    backend::{Backend, Memory},
    ids::{IdempotencyKey, ThreadId},
    prelude::*,
    testing::{ScriptStep, scripted},
};
use toolhub_agent::{
    AgentBuilder, AgentDefinition, AgentError, AgentService, Message, RunCancellation, RunStatus, UserMessage,
};

use super::{ScriptedModel, calls_reply, text_reply};

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn thread(id: &str) -> ThreadId {
    ThreadId::new(id).unwrap()
}

#[tokio::test]
async fn a_thread_has_one_run_at_a_time_and_a_cancelled_one_makes_room() {
    let (hang, script) = scripted("hang", [ScriptStep::Hang]);
    let hub = ToolHub::builder().tool(hang).build().await.unwrap();
    let service = AgentService::new(&hub);
    service.define(
        "default",
        AgentDefinition::new(ScriptedModel::new([calls_reply([("hang", json!({}))]), text_reply("Next.")])),
    );
    let (main, t) = (default_tenant(), thread("t"));
    let mut first = service.send(&main, &t, "One").await.unwrap();
    while script.recorded_arguments().is_empty() {
        tokio::task::yield_now().await;
    }
    let refused = service.send(&main, &t, "Two").await.unwrap_err();
    assert_eq!(refused, AgentError::Busy(first.id()));
    assert_eq!(service.cancel(&Tenant::new("other").unwrap(), first.id()).await.unwrap(), RunCancellation::NotFound);
    assert_eq!(service.cancel(&main, first.id()).await.unwrap(), RunCancellation::Requested);
    assert_eq!(first.wait_ended().await.status, RunStatus::Cancelled);
    assert_eq!(service.cancel(&main, first.id()).await.unwrap(), RunCancellation::Ended(RunStatus::Cancelled));
    let mut second = service.send(&main, &t, "Three").await.unwrap();
    assert_eq!(second.wait_ended().await.content, "Next.");
    // The cancelled call has its result like any other, and the refused message was never stored.
    let messages = service.messages(&main, &t, 100, None).await.unwrap();
    let message: Vec<&Message> = messages.iter().map(|stored| &stored.message).collect();
    let [Message::User { .. }, Message::Assistant { .. }, Message::Tool { results }, Message::User { content }, _] =
        message.as_slice()
    else {
        panic!("{message:?}")
    };
    assert!(results[0].is_error);
    assert_eq!(content, "Three");
}

#[tokio::test]
async fn agents_that_are_built_for_one_thread_speak_one_after_the_other() {
    let (hang, script) = scripted("hang", [ScriptStep::Hang]);
    let hub = ToolHub::builder().tool(hang).build().await.unwrap();
    let thinks = ScriptedModel::new([calls_reply([("hang", json!({}))])]);
    let build = |model| AgentBuilder::new(model).thread(thread("t")).build(&hub);
    let first = build(thinks.clone()).await.unwrap();
    let mut run = first.start("One").await.unwrap();
    while script.recorded_arguments().is_empty() {
        tokio::task::yield_now().await;
    }
    // The second service takes nothing over; it gets the open run's id and can cancel it.
    let patient = ScriptedModel::new([text_reply("Next.")]);
    let second = build(patient.clone()).await.unwrap();
    assert_eq!(second.invoke("Two").await.unwrap_err(), AgentError::Busy(run.id()));
    assert_eq!(AgentService::new(&hub).cancel(&default_tenant(), run.id()).await.unwrap(), RunCancellation::Requested);
    assert_eq!(run.wait_ended().await.status, RunStatus::Cancelled);
    assert_eq!(second.invoke("Three").await.unwrap().content, "Next.");
    // Both see the same conversation, and nothing was requested or executed twice.
    assert_eq!(patient.prompts()[0].messages.len(), 4);
    assert_eq!((thinks.prompts().len(), patient.prompts().len(), script.recorded_arguments().len()), (1, 1, 1));
}

#[tokio::test]
async fn the_same_message_with_a_key_is_one_run() {
    let hub = ToolHub::builder().build().await.unwrap();
    let service = AgentService::new(&hub);
    let model = ScriptedModel::new([text_reply("Hello."), text_reply("Again?")]);
    service.define("default", AgentDefinition::new(model.clone()));
    let (main, t) = (default_tenant(), thread("t"));
    let message = |text: &str| UserMessage { key: Some(IdempotencyKey::new("k1").unwrap()), ..UserMessage::from(text) };
    let mut first = service.send(&main, &t, message("Hi")).await.unwrap();
    let mut beside = service.send(&main, &t, message("Hi")).await.unwrap();
    assert_eq!((beside.id(), beside.is_replayed()), (first.id(), true));
    assert_eq!(first.wait_ended().await.content, "Hello.");
    assert_eq!(beside.wait_ended().await.content, "Hello.");
    let mut later = service.send(&main, &t, message("Hi")).await.unwrap();
    assert_eq!((later.is_replayed(), later.wait_ended().await.content.as_str()), (true, "Hello."));
    assert_eq!(service.send(&main, &t, message("Something else")).await.unwrap_err(), AgentError::KeyReused);
    // The same text for another agent is another message.
    service.define("cook", AgentDefinition::new(model.clone()));
    let to = |name: &str| UserMessage { agent: Some(name.into()), ..message("Hi") };
    assert_eq!(service.send(&main, &t, to("cook")).await.unwrap_err(), AgentError::KeyReused);
    // A stored answer stays, also after its agent was removed.
    service.retain_only(&[]);
    let mut later = service.send(&main, &t, message("Hi")).await.unwrap();
    assert_eq!((later.is_replayed(), later.wait_ended().await.content.as_str()), (true, "Hello."));
    assert_eq!(model.prompts().len(), 1);
}

#[tokio::test]
async fn who_is_spoken_to_is_remembered_and_who_is_unknown_is_named() {
    let hub = ToolHub::builder().build().await.unwrap();
    let service = AgentService::new(&hub);
    let (cook, guide) = (
        ScriptedModel::new([text_reply("Soup."), text_reply("More soup.")]),
        ScriptedModel::new([text_reply("Left.")]),
    );
    service.define("cook", AgentDefinition::new(cook));
    service.define("default", AgentDefinition::new(guide));
    let (main, t) = (default_tenant(), thread("t"));
    let to = |name: &str| UserMessage { agent: Some(name.into()), ..UserMessage::from("Hm?") };
    assert_eq!(service.send(&main, &t, to("cook")).await.unwrap().wait_ended().await.content, "Soup.");
    assert_eq!(service.send(&main, &t, "And?").await.unwrap().wait_ended().await.content, "More soup.");
    assert_eq!(service.send(&main, &thread("u"), "And?").await.unwrap().wait_ended().await.content, "Left.");
    let AgentError::NoSuchAgent { available: known, .. } = service.send(&main, &t, to("kook")).await.unwrap_err()
    else {
        panic!()
    };
    assert_eq!(known, ["cook", "default"]);
    assert_eq!(service.send(&main, &t, "  ").await.unwrap_err(), AgentError::Empty);
    // A thread's own agent takes precedence, until it is removed.
    let own = AgentDefinition::new(ScriptedModel::new([text_reply("Mine.")]));
    let agent = service.set_agent(&main, &t, own).await.unwrap();
    assert_eq!(agent.invoke("Who?").await.unwrap().content, "Mine.");
    assert!(service.get_agent(&main, &t).await.unwrap().is_some());
    assert!(service.remove_agent(&main, &t));
    assert!(!service.remove_agent(&main, &t));
    assert!(service.get_agent(&main, &thread("never")).await.unwrap().is_none());
}

#[tokio::test]
async fn everything_of_a_thread_can_be_taken_out_and_taken_away() {
    let (note, _) = scripted("note", []);
    let hub = ToolHub::builder().tool(note).build().await.unwrap();
    let service = AgentService::new(&hub);
    service.define(
        "default",
        AgentDefinition::new(ScriptedModel::new([
            calls_reply([("note", json!({"text": "milk"}))]),
            text_reply("Noted."),
        ])),
    );
    let (main, t) = (default_tenant(), thread("t"));
    service.send(&main, &t, "Milk!").await.unwrap().wait_ended().await;
    let all = service.export(&main, &t).await.unwrap();
    assert_eq!((all.messages.len(), all.runs.len(), all.calls.len()), (4, 1, 1));
    assert_eq!(all.tool_states["states"][0]["reason"], "executed successfully", "{}", all.tool_states);
    assert!(hub.delete_thread(&main, &t).await.unwrap());
    let all = service.export(&main, &t).await.unwrap();
    assert_eq!((all.thread.is_none(), all.messages.len(), all.runs.len(), all.calls.len()), (true, 0, 0, 0));
    assert!(service.run(&main, toolhub::ids::RunId::mint(hub.now())).await.unwrap().is_none());
}

#[tokio::test]
async fn a_hundred_threads_at_once_do_not_hear_each_other() {
    let (echo, _) = scripted("echo", []);
    let hub = ToolHub::builder().tool(echo.read_only()).build().await.unwrap();
    let service = AgentService::new(&hub);
    let main = default_tenant();
    let runs = (0..100).map(|at| {
        let (service, main) = (service.clone(), main.clone());
        async move {
            let model =
                ScriptedModel::new([calls_reply([("echo", json!({"n": at}))]), text_reply(&format!("answer {at}"))]);
            let t = thread(&format!("t{at}"));
            let agent = service.set_agent(&main, &t, AgentDefinition::new(model.clone())).await.unwrap();
            let run = agent.invoke(format!("question {at}")).await.unwrap();
            assert_eq!(run.content, format!("answer {at}"));
            let prompts = model.prompts();
            assert_eq!(prompts[1].messages.len(), 3);
            assert_eq!(prompts[1].messages[0], Message::User { content: format!("question {at}") });
        }
    });
    futures_util::future::join_all(runs).await;
}

#[tokio::test]
async fn an_agent_set_after_a_restart_has_the_conversation_and_the_tools_of_before() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let (main, t) = (default_tenant(), thread("t"));
    let hub = async || {
        let tools = [scripted("base", []).0, scripted("next", []).0.after("base")];
        ToolHub::builder().shared_store(store.clone()).tools(tools).build().await.unwrap()
    };
    let first = hub().await;
    let model = ScriptedModel::new([calls_reply([("base", json!({}))]), text_reply("Done.")]);
    let agent = AgentService::new(&first).set_agent(&main, &t, AgentDefinition::new(model.clone())).await.unwrap();
    agent.invoke("Begin").await.unwrap();
    assert!(!model.prompts()[0].tools.iter().any(|tool| tool == "next"));
    first.shutdown(std::time::Duration::ZERO).await;
    drop((agent, first));

    let second = hub().await;
    let model = ScriptedModel::new([text_reply("And on.")]);
    let agent = AgentService::new(&second).set_agent(&main, &t, AgentDefinition::new(model.clone())).await.unwrap();
    let states: Value = serde_json::from_str(&agent.serialize_tool_states().await.unwrap()).unwrap();
    assert_eq!(states["states"][0]["reason"], "executed successfully", "before anything was said");
    assert_eq!(agent.invoke("Go on").await.unwrap().content, "And on.");
    let prompt = &model.prompts()[0];
    assert_eq!(prompt.messages[0], Message::User { content: "Begin".into() });
    assert_eq!(prompt.messages.len(), 5, "a question, a call, its result, an answer, and the next question");
    assert!(prompt.tools.iter().any(|tool| tool == "next"), "its dependency was met before the restart");
}
