//! Calls whose work is done by whoever holds the agent.

use std::time::Duration;

use toolhub::{Status, prelude::*, testing::scripted};
use toolhub_agent::{AgentBuilder, Message, RunStatus};

use super::{Actor, asks, says};

#[tokio::test]
async fn calls_are_handed_out_and_their_results_brought_back() {
    let (look, script) = scripted("look", []);
    let hub = ToolHub::builder().tool(look).build().await.unwrap();
    let two = asks([("look", json!({"at": "sea"})), ("look", json!({"at": "sky"}))]);
    let actor = Actor::new([two, says("Both blue.")]);
    let agent = AgentBuilder::new(actor.clone()).external(Duration::from_secs(60)).build(&hub).await.unwrap();
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
        assert_eq!(agent.report(call.id, result).await, Err(toolhub::ReportError::Late), "a result is taken once");
    }
    let end = run.ended().await;
    assert_eq!((end.status, end.content.as_str()), (RunStatus::Completed, "Both blue."));
    let told = actor.told();
    let Some(Message::Tool { results }) = told[1].messages.last() else { panic!("{told:?}") };
    assert_eq!((results[0].text.as_str(), results[1].is_error), ("blue", true));
    assert_eq!(script.asked().len(), 0, "the hub does not do the work too");
}
