//! The reply does not depend on how a stream is split into chunks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;
use toolhub_agent::{Model, Reply};
use toolhub_testkit::soak;

use super::{CannedResponse, MockServer, anthropic, ask, hello_messages, openai, streamed_prompt};

/// A chat completions stream: both kinds of line ends, a comment, data on two lines.
fn completions() -> String {
    let mut text = String::from(": keep-alive\r\n\r\n");
    for delta in [
        json!({"role": "assistant", "content": ""}),
        json!({"content": "Größe 🙂"}),
        json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "weather", "arguments": "{\"city\": \"Ålesund"}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": " 北京\"}"}}]}),
    ] {
        text.push_str(&format!("data: {}\r\n\r\n", json!({"choices": [{"delta": delta}]})));
    }
    text.push_str("data: {\"choices\": [],\ndata: \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4}}\n\n");
    text + "data: [DONE]\n\n"
}

fn messages() -> String {
    let events = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 3}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Größe 🙂"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"city\": \"Ålesund 北京\"}"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}}),
        json!({"type": "message_stop"}),
    ];
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

async fn reply(is_openai: bool, chunks: Vec<Vec<u8>>) -> (Reply, String) {
    let server = MockServer::start([CannedResponse::Chunks(chunks)]).await;
    let model: Box<dyn Model> =
        if is_openai { Box::new(openai(&server).retries(0)) } else { Box::new(anthropic(&server).retries(0)) };
    let (reply, streamed_text) = ask(&*model, streamed_prompt(&hello_messages())).await;
    (reply.unwrap(), streamed_text)
}

fn split_at(bytes: &[u8], positions: &BTreeSet<usize>) -> Vec<Vec<u8>> {
    let ends = positions.iter().copied().chain([bytes.len()]);
    let begins = [0].into_iter().chain(positions.iter().copied());
    begins.zip(ends).map(|(begin, end)| bytes[begin..end].to_vec()).collect()
}

fn expected() -> Reply {
    let usage = toolhub_agent::Usage { input_tokens: 3, output_tokens: 4 };
    let calls = vec![super::call("c1", "weather", json!({"city": "Ålesund 北京"}))];
    Reply { text: "Größe 🙂".into(), calls, stop: toolhub_agent::StopReason::Calls, usage, ..Reply::default() }
}

#[tokio::test]
async fn a_stream_in_single_bytes_is_the_same_reply() {
    for (is_openai, stream) in [(true, completions()), (false, messages())] {
        let bytes = stream.as_bytes();
        let single = split_at(bytes, &(1..bytes.len()).collect());
        assert_eq!(reply(is_openai, single).await, (expected(), expected().text));
    }
}

#[test]
fn a_stream_cut_anywhere_is_the_same_reply() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cases = soak(100, 5_000);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let lengths = completions().len().min(messages().len());
    proptest!(config, |(is_openai: bool, positions in prop::collection::btree_set(1..lengths, 0..20))| {
        let stream = if is_openai { completions() } else { messages() };
        let got = runtime.block_on(reply(is_openai, split_at(stream.as_bytes(), &positions)));
        prop_assert_eq!(got, (expected(), expected().text));
    });
}
