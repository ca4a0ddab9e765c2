//! What the clients of providers understand and send: bytes as providers send them come from a small server, exactly as written here.
#![allow(clippy::needless_pass_by_value, reason = "cases read best as plain values")]

mod anthropic;
mod chunk_boundaries;
mod openai;
mod retries;
mod server;
mod settings;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_agent::{Anthropic, AskedCall, Message, Model, ModelError, OpenAi, Prompt, Reply, Secret, StreamPart};

use server::{CannedResponse, MockServer};

const KEY: &str = "thk-very-secret-0123456789";

/// A reply, and everything that was heard before it: `⟲` where it began anew.
async fn ask(model: &dyn Model, prompt: Prompt<'_>) -> (Result<Reply, ModelError>, String) {
    let heard = Arc::new(Mutex::new(String::new()));
    let hearing = heard.clone();
    let hear = move |piece: StreamPart<'_>| {
        hearing.lock().unwrap_or_else(PoisonError::into_inner).push_str(match piece {
            StreamPart::Text(text) => text,
            StreamPart::Restart => "⟲",
        });
    };
    let reply = model.ask(prompt, &hear).await;
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (reply, heard)
}

fn prompt(messages: &[Message]) -> Prompt<'_> {
    let time = Duration::from_secs(30);
    Prompt { system: "", messages, tools: &[], may_call: true, stream: false, timeout: time, trace: None }
}

fn streamed_prompt(messages: &[Message]) -> Prompt<'_> {
    Prompt { stream: true, ..prompt(messages) }
}

fn hello_messages() -> Vec<Message> {
    vec![Message::User { content: "hello".into() }]
}

fn openai(server: &MockServer) -> OpenAi {
    OpenAi::new("m").base_url(server.url()).key(Secret::new(KEY)).first_wait(Duration::from_millis(1))
}

fn anthropic(server: &MockServer) -> Anthropic {
    Anthropic::new("m").base_url(server.url()).key(Secret::new(KEY)).first_wait(Duration::from_millis(1))
}

/// A call that is all right.
fn call(id: &str, tool: &str, arguments: Value) -> AskedCall {
    AskedCall { id: id.into(), tool: tool.into(), arguments, malformed: None, extra: None }
}

/// A call whose arguments make no sense.
fn malformed(id: &str, tool: &str, text: &str) -> AskedCall {
    AskedCall { malformed: Some(text.into()), ..call(id, tool, json!({})) }
}
