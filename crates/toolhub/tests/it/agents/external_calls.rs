//! External calls of an agent, executed by its owner.

use std::time::Duration;

use toolhub::{Status, prelude::*, testing::scripted};
use toolhub_agent::{AgentBuilder, Message, RunStatus};

use super::{ScriptedModel, calls_reply, text_reply};

#[tokio::test]
async fn external_calls_show_their_arguments_and_take_their_results() {
    let (look, script) = scripted("look", []);
    let hub = ToolHub::builder().tool(look).build().await.unwrap();
    let two = calls_reply([("look", json!({"at": "sea"})), ("look", json!({"at": "sky"}))]);
    let model = ScriptedModel::new([two, text_reply("Both blue.")]);
    let agent = AgentBuilder::new(model.clone()).external(Duration::from_secs(60)).build(&hub).await.unwrap();
    let mut run = agent.start("Look").await.unwrap();
    for (at, result) in [("sea", Ok(json!("blue"))), ("sky", Err(ToolError::new("clouds")))] {
        // A tool with effects runs alone, so its calls are handed out one after the other.
        let call = loop {
            let record = run.record();
            let handed = |call: &&toolhub_agent::RunCall| call.arguments == Some(json!({"at": at}));
            match record.calls.iter().find(handed) {
                Some(call) => break call.clone(),
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        };
        assert_eq!((run.record().status, call.status), (RunStatus::Waiting, Status::Executing));
        agent.report(call.id, result.clone()).await.unwrap();
        assert_eq!(agent.report(call.id, result).await, Err(toolhub::ReportError::Late), "a result is accepted once");
    }
    let end = run.wait_ended().await;
    assert_eq!((end.status, end.content.as_str()), (RunStatus::Completed, "Both blue."));
    let prompts = model.prompts();
    let Some(Message::Tool { results }) = prompts[1].messages.last() else { panic!("{prompts:?}") };
    assert_eq!((results[0].text.as_str(), results[1].is_error), ("blue", true));
    assert_eq!(script.recorded_arguments().len(), 0, "the hub does not execute the tool itself");
}
