//! The model clients against a mock server that sends the bytes of real providers.
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
use toolhub_agent::{Anthropic, Message, Model, ModelError, OpenAi, Prompt, Reply, Secret, StreamPart, ToolCall};

use server::{CannedResponse, MockServer};

const KEY: &str = "thk-very-secret-0123456789";

/// A reply, and the text streamed before it: `⟲` marks a restart.
async fn ask(model: &dyn Model, prompt: Prompt<'_>) -> (Result<Reply, ModelError>, String) {
    let streamed_text = Arc::new(Mutex::new(String::new()));
    let sink_text = streamed_text.clone();
    let sink = move |part: StreamPart<'_>| {
        sink_text.lock().unwrap_or_else(PoisonError::into_inner).push_str(match part {
            StreamPart::Text(text) => text,
            StreamPart::Restart => "⟲",
        });
    };
    let reply = model.ask(prompt, &sink).await;
    let streamed_text = streamed_text.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (reply, streamed_text)
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

/// A valid call.
fn call(id: &str, tool: &str, arguments: Value) -> ToolCall {
    ToolCall { id: id.into(), tool: tool.into(), arguments, malformed: None, extra: None }
}

/// A call with malformed arguments.
fn malformed(id: &str, tool: &str, text: &str) -> ToolCall {
    ToolCall { malformed: Some(text.into()), ..call(id, tool, json!({})) }
}
