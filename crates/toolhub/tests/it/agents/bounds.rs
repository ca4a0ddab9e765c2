//! Limits of a run, and how a long conversation is trimmed for the model.

use std::time::Duration;

use toolhub::{Toolset, prelude::*, testing::scripted};
use toolhub_agent::{AgentBuilder, Message, RunStatus};

use super::{ScriptedModel, calls_reply, text_reply};

#[tokio::test]
async fn the_last_step_is_asked_for_an_answer_without_calls() {
    let (look, script) = scripted("look", []);
    let hub = ToolHub::builder().tool(look).build().await.unwrap();
    let call_look = || calls_reply([("look", json!({}))]);
    let model = ScriptedModel::new([
        call_look(),
        call_look(),
        text_reply("That is all I know."),
        call_look(),
        call_look(),
        call_look(),
    ]);
    let agent = AgentBuilder::new(model.clone()).max_steps(3).build(&hub).await.unwrap();
    assert_eq!(agent.invoke("Go").await.unwrap().content, "That is all I know.");
    let may: Vec<bool> = model.prompts().iter().map(|prompts| prompts.may_call).collect();
    assert_eq!(may, [true, true, false]);
    let run = agent.invoke("Go on").await.unwrap();
    assert_eq!((run.status, run.error.unwrap().code.as_str()), (RunStatus::Failed, "max_steps"));
    assert_eq!(script.recorded_arguments().len(), 4, "the calls of the last step are not executed");
}

#[tokio::test]
async fn a_run_stops_when_its_tokens_are_used_up() {
    let (look, _) = scripted("look", []);
    let hub = ToolHub::builder().tool(look).build().await.unwrap();
    let model = ScriptedModel::new((0..9).map(|at| calls_reply([("look", json!({"at": at}))])));
    let agent = AgentBuilder::new(model.clone()).token_budget(40).build(&hub).await.unwrap();
    let run = agent.invoke("Go").await.unwrap();
    assert_eq!((run.error.unwrap().code.as_str(), run.steps), ("token_budget", 3));
}

#[tokio::test]
async fn a_model_that_thinks_for_ever_is_cancelled_with_its_run() {
    let hub = ToolHub::builder().build().await.unwrap();
    let agent = AgentBuilder::new(ScriptedModel::new([])).build(&hub).await.unwrap();
    let mut run = agent.start("Go").await.unwrap();
    run.cancel();
    assert_eq!(run.wait_ended().await.status, RunStatus::Cancelled);
    // Dropping the waiting future cancels the run too, and the thread is free again.
    let waiting = agent.invoke("Go");
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
    let mut next = loop {
        match agent.start("Go").await {
            Ok(run) => break run,
            Err(busy) => assert!(busy.to_string().contains("is still open"), "{busy}"),
        }
        tokio::task::yield_now().await;
    };
    next.cancel();
    next.wait_ended().await;
}

#[tokio::test]
async fn an_agent_knows_nothing_of_tools_outside_its_toolset() {
    let (mine, _) = scripted("fs__read", []);
    let (other, script) = scripted("pay", []);
    let hub = ToolHub::builder().tool(mine).tool(other).build().await.unwrap();
    let model = ScriptedModel::new([calls_reply([("pay", json!({}))]), text_reply("I cannot.")]);
    let toolset = Toolset::from_patterns(["fs__*"]).unwrap();
    let agent = AgentBuilder::new(model.clone()).toolset(toolset).build(&hub).await.unwrap();
    agent.invoke("Pay").await.unwrap();
    let prompts = model.prompts();
    assert_eq!(prompts[0].tools, ["fs__read"]);
    let Some(Message::Tool { results }) = prompts[1].messages.last() else { panic!("{prompts:?}") };
    assert!(results[0].is_error && results[0].text.contains("no tool"), "{}", results[0].text);
    assert_eq!(script.recorded_arguments().len(), 0);
    assert_eq!(agent.tool_status_details().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_long_conversation_loses_its_beginning_and_never_a_half_of_a_call() {
    let (look, _) = scripted("look", (0..200).map(|_| toolhub::testing::ScriptStep::Return(json!("x".repeat(2_000)))));
    let hub = ToolHub::builder().tool(look).build().await.unwrap();
    let turns = (0..60).flat_map(|at| [calls_reply([("look", json!({"at": at}))]), text_reply("Seen.")]);
    let model = ScriptedModel::new(turns);
    let agent = AgentBuilder::new(model.clone()).context_window(8_000).build(&hub).await.unwrap();
    for at in 0..60 {
        agent.invoke(format!("Look at {at}")).await.unwrap();
    }
    let prompts = model.prompts();
    assert!(prompts.last().unwrap().messages.len() < 60, "{}", prompts.last().unwrap().messages.len());
    for prompts in &prompts {
        assert!(matches!(prompts.messages.first(), Some(Message::User { .. })));
        for pair in prompts.messages.windows(2) {
            let asks = matches!(&pair[0], Message::Assistant { calls, .. } if !calls.is_empty());
            assert_eq!(asks, matches!(pair[1], Message::Tool { .. }), "{pair:?}");
        }
    }
    // Nothing is lost: the thread has the whole conversation.
    let first = &prompts[0].messages[0];
    assert_eq!(first, &Message::User { content: "Look at 0".into() });
}
