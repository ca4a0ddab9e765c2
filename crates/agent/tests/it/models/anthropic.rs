//! Anthropic's messages API: the requests sent, and all known variants of responses.

use serde_json::{Value, json};
use toolhub_agent::{CallResult, Image, Message, ModelFault, Prompt, Reply, StopReason, Usage};

use super::{CannedResponse, MockServer, anthropic, ask, call, hello_messages, malformed, prompt, streamed_prompt};

async fn full_reply(answer: Value) -> Reply {
    let server = MockServer::start([CannedResponse::json(200, "", &answer)]).await;
    ask(&anthropic(&server).retries(0), prompt(&hello_messages())).await.0.unwrap()
}

fn sse_text(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

async fn streamed_reply(events: &[Value]) -> Result<Reply, ModelFault> {
    let server = MockServer::start([CannedResponse::events(&sse_text(events))]).await;
    let (reply, streamed_text) = ask(&anthropic(&server).retries(0), streamed_prompt(&hello_messages())).await;
    let reply = reply.map_err(|error| error.fault)?;
    assert_eq!(streamed_text, reply.text);
    Ok(reply)
}

fn start() -> Value {
    let usage = json!({"input_tokens": 10, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 100, "output_tokens": 1});
    json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": usage}})
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}), json!({"type": "message_stop"})]
}

#[tokio::test]
async fn a_question_is_said_in_the_words_of_the_provider() {
    let result = |id: &str, text: &str, is_error: bool, images: &[&str]| CallResult {
        id: id.into(),
        call_id: None,
        tool: "look".into(),
        text: text.into(),
        is_error,
        images: images.iter().map(|kind| Image { data: "AA==".into(), mime_type: (*kind).into() }).collect(),
    };
    let messages = [
        Message::User { content: "look".into() },
        Message::User { content: " ".into() },
        Message::Assistant {
            content: "\n".into(),
            reasoning: "of another provider".into(),
            calls: vec![call("toolu_1", "look", json!({"at": "it"})), malformed("functions.look:1", "lo ok", "{")],
        },
        Message::Tool {
            results: vec![
                result("toolu_1", "seen", false, &["image/png", "image/tiff"]),
                result("functions.look:1", "", true, &[]),
            ],
        },
        Message::User { content: "and?".into() },
        Message::Assistant { content: String::new(), reasoning: String::new(), calls: vec![] },
        Message::User { content: "well?".into() },
    ];
    let tools = [json!({"name": "look", "input_schema": {"type": "object"}})];
    let answer = || CannedResponse::json(200, "", &json!({"content": [{"type": "text", "text": "ok"}]}));
    let server = MockServer::start([answer(), answer(), answer()]).await;
    let full = Prompt { system: "Be brief.", tools: &tools, ..prompt(&messages) };
    ask(&anthropic(&server), full).await.0.unwrap();
    ask(&anthropic(&server).max_tokens(9), Prompt { may_call: false, ..full }).await.0.unwrap();
    ask(&anthropic(&server), Prompt { system: " ", tools: &[], may_call: false, stream: true, ..full })
        .await
        .0
        .unwrap();
    let requests = server.requests();
    let head = &requests[0].head;
    assert!(head.starts_with("POST /v1/messages HTTP/1.1"), "{head}");
    assert!(head.contains(&format!("x-api-key: {}", super::KEY)), "{head}");
    assert!(head.contains("anthropic-version: 2023-06-01"), "{head}");
    let odd = requests[0].body["messages"][1]["content"][1]["id"].as_str().unwrap().to_owned();
    assert!(odd.starts_with("functions_look_1_"), "{odd}");
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}});
    let messages_sent = json!([
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "it"}},
            {"type": "tool_use", "id": odd, "name": "lo_ok", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "text", "text": "seen\n(a picture is left out)"}, image,
            ]},
            {"type": "tool_result", "tool_use_id": odd, "is_error": true},
            {"type": "text", "text": "and?"},
            {"type": "text", "text": "well?"},
        ]},
    ]);
    let plain = json!({
        "model": "m", "max_tokens": 4096, "system": "Be brief.", "messages": messages_sent, "stream": false, "tools": tools,
    });
    assert_eq!(requests[0].body, plain);
    let mut closed = plain.clone();
    closed["max_tokens"] = 9.into();
    closed["tool_choice"] = json!({"type": "none"});
    assert_eq!(requests[1].body, closed);
    assert_eq!(requests[2].body, json!({"model": "m", "max_tokens": 4096, "messages": messages_sent, "stream": true}));
}

#[tokio::test]
async fn a_whole_answer_is_understood() {
    let reply = full_reply(json!({
        "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "…"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "it"}},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": [1]},
        ],
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 100, "output_tokens": 9},
    }))
    .await;
    let calls = vec![call("toolu_1", "look", json!({"at": "it"})), malformed("toolu_1_1", "look", "[1]")];
    let usage = Usage { input_tokens: 114, output_tokens: 9 };
    assert_eq!(reply, Reply { text: "Let me see.".into(), calls, stop: StopReason::Calls, usage, ..Reply::default() });
}

#[tokio::test]
async fn every_reason_to_stop_is_known() {
    for (reason, stop) in [
        (json!("end_turn"), StopReason::End),
        (json!("stop_sequence"), StopReason::End),
        (json!("pause_turn"), StopReason::End),
        (json!("max_tokens"), StopReason::Length),
        (json!("refusal"), StopReason::Refusal),
        (json!("something new"), StopReason::End),
        (Value::Null, StopReason::End),
    ] {
        let reply = full_reply(json!({"content": [{"type": "text", "text": "hi"}], "stop_reason": reason})).await;
        assert_eq!(reply.stop, stop, "{reason}");
    }
}

#[tokio::test]
async fn a_stream_is_put_together() {
    let mut events = vec![
        start(),
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "hmm"})),
        delta(0, json!({"type": "signature_delta", "signature": "…"})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "ping"}),
        block(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "Let me "})),
        delta(1, json!({"type": "text_delta", "text": "sée."})),
        json!({"type": "content_block_stop", "index": 1}),
        block(2, json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}})),
        block(4, json!({"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"at\": \"é"})),
        delta(4, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "\"}"})),
        block(5, json!({"type": "tool_use", "id": "toolu_3", "name": "add", "input": {"a": 1}})),
        json!({"type": "something_new"}),
    ];
    events.extend(end("tool_use"));
    let calls = vec![
        call("toolu_1", "look", json!({"at": "é"})),
        call("toolu_2", "clock", json!({})),
        call("toolu_3", "add", json!({"a": 1})),
    ];
    let usage = Usage { input_tokens: 114, output_tokens: 9 };
    let expected = Reply { text: "Let me sée.".into(), calls, stop: StopReason::Calls, usage, ..Reply::default() };
    assert_eq!(streamed_reply(&events).await, Ok(expected));
}

#[tokio::test]
async fn a_stream_without_its_end_or_with_an_error_is_no_reply() {
    let partial = || vec![start(), block(0, json!({"type": "text", "text": "hi"}))];
    let ends = |last: Value| async move {
        let mut events = partial();
        events.push(last);
        streamed_reply(&events).await.map(|reply| reply.stop)
    };
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "no"}});
    assert_eq!(streamed_reply(&partial()).await, Err(ModelFault::Broken));
    assert_eq!(ends(end("end_turn")[0].clone()).await, Err(ModelFault::Broken));
    assert_eq!(ends(end("end_turn")[1].clone()).await, Ok(StopReason::End));
    assert_eq!(ends(error("overloaded_error")).await, Err(ModelFault::Failed));
    assert_eq!(ends(error("rate_limit_error")).await, Err(ModelFault::RateLimited));
    assert_eq!(ends(error("invalid_request_error")).await, Err(ModelFault::Refused));
}
