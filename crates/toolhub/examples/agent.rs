//! An agent: offers its model the available tools, executes the model's calls, and lets the program manage tool statuses.
//!
//! `cargo run -p toolhub --features stub --example agent`
//!
//! The model is scripted, so no key is needed. With another base URL and a key it is any OpenAI-compatible server:
//! `OpenAi::new("deepseek-chat").base_url("https://api.deepseek.com/v1").key(Secret::new(key))`.

use std::{error::Error, sync::Arc};

use toolhub::{
    agent::{AgentBuilder, OpenAi, Script, Stub},
    events::EventKind,
    ids::ThreadId,
    prelude::*,
    status::ToolStatus,
};

use futures_util::StreamExt;

/// Look a word up.
#[derive(Deserialize, JsonSchema)]
struct Word {
    word: String,
}

async fn look_up(Word { word }: Word) -> Result<String, ToolError> {
    match word.as_str() {
        "hub" => Ok("the middle of a wheel".into()),
        _ => Err(ToolError::new("the dictionary is at the binder's")),
    }
}

/// The script of the model.
const SCRIPT: &str = r#"
[[turn]]
when = { tool_result = "look_up" }
say = "I have looked: ${result}"
[[turn]]
when = { user = "what is a (?<word>\\w+)", tool_available = "look_up" }
call = [{ tool = "look_up", args = { word = "$word" } }]
[default]
say = "I cannot look anything up now."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stub = Stub::serve(Script::parse(SCRIPT)?, 0).await?;
    let model = OpenAi::new("demo").base_url(stub.base_url());
    let hub = ToolHub::builder().tool(tool("look_up", look_up)).build().await?;

    let agent = AgentBuilder::new(Arc::new(model))
        .system_prompt("You explain words.")
        .internal(2)
        .thread(ThreadId::new("words")?)
        .build(&hub)
        .await?;
    agent.initialize().await?;
    let run = agent.invoke("what is a hub").await?;
    println!("{} ({} steps)", run.content, run.steps);

    // After three failures the tool is no longer offered.
    for _ in 0..3 {
        agent.invoke("what is a widget").await?;
    }
    for info in agent.tool_status_details().await? {
        println!("{}: {:?}, {}", info.tool_name, info.status, info.reason);
    }
    println!("{}", agent.tool_states_summary().await?);
    println!("{}", agent.invoke("what is a hub").await?.content);

    // The program resets the status by hand.
    agent.reset_tool_status("look_up").await?;
    let mut events = agent.stream("what is a hub").await?;
    while let Some(event) = events.next().await {
        match &event.kind {
            EventKind::MessageDelta { text, .. } => print!("{text}"),
            EventKind::RunCompleted { .. } => println!(),
            _ => {}
        }
    }
    agent.set_tool_status("look_up", ToolStatus::Maintenance, Some("new edition".into())).await?;
    println!("{}", agent.invoke("what is a hub").await?.content);
    Ok(())
}
