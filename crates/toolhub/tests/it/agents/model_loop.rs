//! One message: what the model is offered, what is called, and how the run ends.

use futures_util::StreamExt;
use toolhub::{
    Status,
    events::EventKind,
    ids::ThreadId,
    prelude::*,
    testing::{ScriptStep, scripted},
};
use toolhub_agent::{AgentBuilder, Message, ModelFault, RunStatus, StopReason};

use super::{ScriptedModel, calls_reply, text_reply};

#[tokio::test]
async fn a_run_makes_the_calls_a_model_asks_for_and_tells_it_their_results() {
    let (add, script) = scripted("add", [ScriptStep::Return(json!(3))]);
    let hub = ToolHub::builder().tool(add).build().await.unwrap();
    let model = ScriptedModel::new([calls_reply([("add", json!({"a": 1, "b": 2}))]), text_reply("It is 3.")]);
    let agent = AgentBuilder::new(model.clone()).system_prompt("You add.").build(&hub).await.unwrap();
    let run = agent.invoke("What is 1 + 2?").await.unwrap();

    assert_eq!((run.status, run.content.as_str(), run.stop), (RunStatus::Completed, "It is 3.", Some(StopReason::End)));
    assert_eq!((run.steps, run.usage.input_tokens, run.usage.output_tokens), (2, 20, 10));
    assert_eq!(
        run.calls.iter().map(|call| (call.tool.as_str(), call.status)).collect::<Vec<_>>(),
        [("add", Status::Success)]
    );
    assert_eq!(script.recorded_arguments().len(), 1);
    let prompts = model.prompts();
    assert_eq!(prompts[0].system, "You add.");
    assert_eq!(prompts[0].tools, ["add"]);
    let Some(Message::Tool { results }) = prompts[1].messages.last() else { panic!("{prompts:?}") };
    assert_eq!((results[0].id.as_str(), results[0].text.as_str(), results[0].is_error), ("model_0", "3", false));
    // The call is in the journal, with its run.
    let record = hub.call_record(&Tenant::default(), run.calls[0].id).await.unwrap().unwrap();
    assert_eq!((record.run, record.thread.as_ref()), (Some(run.id), Some(agent.thread())));
}

#[tokio::test]
async fn whatever_a_model_asks_for_every_call_has_its_result() {
    let (fails, _) = scripted("fails", [ScriptStep::Fail(ToolError::new("no paper"))]);
    let (works, _) = scripted("works", []);
    let hub = ToolHub::builder().tool(fails).tool(works).build().await.unwrap();
    let mut reply =
        calls_reply([("works", json!({})), ("wroks", json!({})), ("fails", json!({})), ("works", json!({}))]).unwrap();
    reply.calls[3].malformed = Some("{\"a\": 1".into());
    reply.stop = StopReason::Length;
    let model = ScriptedModel::new([Ok(reply), text_reply("I see.")]);
    let agent = AgentBuilder::new(model.clone()).build(&hub).await.unwrap();
    let run = agent.invoke("Go").await.unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    let prompts = model.prompts();
    let [.., Message::Assistant { calls, .. }, Message::Tool { results }] = prompts[1].messages.as_slice() else {
        panic!("{prompts:?}")
    };
    let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    let answered: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
    assert_eq!(ids, answered);
    let errors: Vec<bool> = results.iter().map(|result| result.is_error).collect();
    assert_eq!(errors, [false, true, true, true]);
    assert!(results[1].text.contains("`works`"), "the closest name is suggested: {}", results[1].text);
    assert!(results[3].text.contains("not a JSON object"), "{}", results[3].text);
    assert_eq!(run.calls.len(), 4);
}

#[tokio::test]
async fn each_step_offers_exactly_the_tools_that_may_be_used_now() {
    let (look, _) = scripted("look", []);
    let (order, _) = scripted("order", []);
    let (broken, _) = scripted("broken", (0..3).map(|_| ScriptStep::Fail(ToolError::new("no paper"))));
    let hub = ToolHub::builder().tool(look).tool(order.after("look")).tool(broken).build().await.unwrap();
    let model = ScriptedModel::new([
        calls_reply([("broken", json!({}))]),
        calls_reply([("broken", json!({}))]),
        calls_reply([("broken", json!({})), ("look", json!({}))]),
        text_reply("Done."),
    ]);
    let agent = AgentBuilder::new(model.clone()).build(&hub).await.unwrap();
    agent.invoke("Go").await.unwrap();
    let prompts = model.prompts();
    let offered: Vec<&[String]> = prompts.iter().map(|prompts| prompts.tools.as_slice()).collect();
    assert_eq!(offered[..3], [["broken", "look"], ["broken", "look"], ["broken", "look"]]);
    assert_eq!(offered[3], ["look", "order"], "three failures withhold one tool, a success adds another");
    // The dependencies are described once and never change.
    assert!(prompts[0].system.contains("`order`: after `look`"), "{}", prompts[0].system);
    assert!(prompts.iter().all(|it| it.system == prompts[0].system));
}

#[tokio::test]
async fn a_model_that_fails_fails_the_run_and_the_conversation_goes_on() {
    let hub = ToolHub::builder().build().await.unwrap();
    let model = ScriptedModel::new([Err(ModelFault::RateLimited), text_reply("Here I am.")]);
    let agent = AgentBuilder::new(model.clone()).build(&hub).await.unwrap();
    let run = agent.invoke("Hello?").await.unwrap();
    assert_eq!(run.status, RunStatus::Failed);
    assert_eq!(run.error.unwrap().code, "model_rate_limited");
    let run = agent.invoke("Still there?").await.unwrap();
    assert_eq!(run.content, "Here I am.");
    let user = |text: &str| Message::User { content: text.into() };
    assert_eq!(model.prompts()[1].messages, [user("Hello?"), user("Still there?")]);
}

#[tokio::test]
async fn an_answer_that_is_cut_off_or_refused_is_told_as_such() {
    let hub = ToolHub::builder().build().await.unwrap();
    for (stop, word) in [(StopReason::Length, "length"), (StopReason::Refusal, "refusal"), (StopReason::End, "end")] {
        let mut answer = text_reply("So far").unwrap();
        answer.stop = stop;
        let agent = AgentBuilder::new(ScriptedModel::new([Ok(answer)])).build(&hub).await.unwrap();
        let events: Vec<_> = agent.stream("Go on").await.unwrap().collect().await;
        let Some(EventKind::RunCompleted { stop: reported, .. }) = events.last().map(|event| &event.kind) else {
            panic!()
        };
        assert_eq!(reported.as_deref(), Some(word));
    }
}

#[tokio::test]
async fn a_run_is_heard_as_it_happens() {
    let (look, _) = scripted("look", []);
    let hub = ToolHub::builder().tool(look).build().await.unwrap();
    let model = ScriptedModel::new([
        calls_reply([("look", json!({"at": "sea"}))]),
        text_reply("It is blue."),
        text_reply("Still blue."),
    ]);
    let agent = AgentBuilder::new(model).build(&hub).await.unwrap();
    let other = AgentBuilder::new(ScriptedModel::new([text_reply("Another agent.")])).build(&hub).await.unwrap();
    let events = agent.stream("Look").await.unwrap();
    other.invoke("Hello").await.unwrap();
    let events: Vec<_> = events.collect().await;
    // A client that received the end may send the next message immediately.
    assert_eq!(agent.invoke("And now?").await.unwrap().content, "Still blue.");
    let names: Vec<&str> = events.iter().map(|event| event.name()).collect();
    let expected = [
        "run.started",
        "message.completed",
        "tool.execution.started",
        "tool.execution.completed",
        "message.delta",
        "message.delta",
        "message.delta",
        "message.completed",
        "run.completed",
    ];
    assert_eq!(names, expected);
    assert!(events.iter().all(|event| event.thread.as_ref() == Some(agent.thread())));
    let EventKind::MessageCompleted { calls, .. } = &events[1].kind else { panic!("{:?}", events[1]) };
    assert_eq!((calls[0].tool.as_str(), &calls[0].arguments), ("look", &json!({"at": "sea"})));
}

#[tokio::test]
async fn a_program_manages_the_tools_of_its_agent() {
    let (test, _) = scripted("test", []);
    let (other, _) = scripted("other", []);
    let hub = ToolHub::builder().tool(test).tool(other).build().await.unwrap();
    let model = ScriptedModel::new([text_reply("a"), text_reply("b")]);
    let thread = ThreadId::new("t1").unwrap();
    let agent = AgentBuilder::new(model.clone()).thread(thread).internal(2).build(&hub).await.unwrap();
    agent.initialize().await.unwrap();
    agent.set_tool_status("test", toolhub::status::ToolStatus::Maintenance, Some("tidying up".into())).await.unwrap();
    agent.invoke("Go").await.unwrap();
    assert_eq!(model.prompts()[0].tools, ["other"]);
    let details = agent.tool_status_details().await.unwrap();
    let words: Vec<String> = details.iter().map(|info| format!("{} {:?}", info.tool_name, info.status)).collect();
    assert_eq!(words, ["other Available", "test Maintenance"]);
    let saved = agent.serialize_tool_states().await.unwrap();
    agent.reset_tool_status("test").await.unwrap();
    assert_eq!(agent.rebind().await.unwrap().names().len(), 2);
    assert!(agent.tool_states_summary().await.unwrap().starts_with("tools 2 (available 2"));
    agent.deserialize_tool_states(&saved).await.unwrap();
    agent.invoke("Go").await.unwrap();
    assert_eq!(model.prompts()[1].tools, ["other"]);
}
