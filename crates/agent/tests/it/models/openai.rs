//! OpenAI's chat completions API: the requests sent, and all known variants of responses.

use serde_json::{Value, json};
use toolhub_agent::{CallResult, Image, Message, ModelFault, Prompt, Reply, StopReason, Usage};

use super::{CannedResponse, MockServer, ask, call, hello_messages, malformed, openai, prompt, streamed_prompt};

/// The reply to a complete response.
async fn full_reply(answer: Value) -> Reply {
    let server = MockServer::start([CannedResponse::json(200, "", &answer)]).await;
    ask(&openai(&server).retries(0), prompt(&hello_messages())).await.0.unwrap()
}

/// The reply to a stream of these chunks and its end.
async fn streamed_reply(chunks: &[Value]) -> Reply {
    let server = MockServer::start([CannedResponse::events(&sse_text(chunks, "data: [DONE]\n\n"))]).await;
    let (reply, streamed_text) = ask(&openai(&server).retries(0), streamed_prompt(&hello_messages())).await;
    let reply = reply.unwrap();
    assert_eq!(streamed_text, reply.text);
    reply
}

fn sse_text(chunks: &[Value], end: &str) -> String {
    let chunks = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    chunks.chain([end.to_owned()]).collect()
}

fn delta(delta: Value) -> Value {
    json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call_chunk(index: Value, id: Value, name: Value, arguments: Value) -> Value {
    let mut call = json!({"function": {}});
    for (field, value) in [("index", index), ("id", id)] {
        if !value.is_null() {
            call[field] = value;
        }
    }
    for (field, value) in [("name", name), ("arguments", arguments)] {
        if !value.is_null() {
            call["function"][field] = value;
        }
    }
    delta(json!({"tool_calls": [call]}))
}

#[tokio::test]
async fn a_question_is_said_in_the_words_of_the_provider() {
    let messages = [
        Message::User { content: "weather?".into() },
        Message::Assistant {
            content: String::new(),
            reasoning: "I have to look.".into(),
            calls: vec![call("c1", "weather", json!({"city": "Oslo"})), malformed("c2", "we ather", "{oops")],
        },
        Message::Tool {
            results: vec![
                CallResult {
                    id: "c1".into(),
                    call_id: None,
                    tool: "weather".into(),
                    text: "4 °C".into(),
                    is_error: false,
                    images: vec![Image { data: "AA==".into(), mime_type: "image/png".into() }],
                },
                CallResult {
                    id: "c2".into(),
                    call_id: None,
                    tool: "we ather".into(),
                    text: "No such tool.".into(),
                    is_error: true,
                    images: vec![],
                },
            ],
        },
        Message::Assistant { content: "4 °C.".into(), reasoning: "done with that".into(), calls: vec![] },
        Message::User { content: "thanks".into() },
    ];
    let tools = [json!({"type": "function", "function": {"name": "weather"}})];
    let answer = || CannedResponse::json(200, "", &json!({"choices": [{"message": {"content": "ok"}}]}));
    let server = MockServer::start([answer(), answer(), answer()]).await;
    let full = Prompt { system: "Be brief.", tools: &tools, ..prompt(&messages) };
    let model = openai(&server).max_tokens(100);
    ask(&model, full).await.0.unwrap();
    ask(&model, Prompt { may_call: false, stream: true, ..full }).await.0.unwrap();
    ask(&model, Prompt { tools: &[], may_call: false, ..full }).await.0.unwrap();
    let requests = server.requests();
    assert!(requests[0].head.starts_with("POST /v1/chat/completions HTTP/1.1"), "{}", requests[0].head);
    assert!(requests[0].head.contains(&format!("authorization: Bearer {}", super::KEY)), "{}", requests[0].head);
    let messages_sent = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": null, "reasoning_content": "I have to look.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Oslo\"}"}},
            {"id": "c2", "type": "function", "function": {"name": "we_ather", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "4 °C\n(a picture is left out)"},
        {"role": "tool", "tool_call_id": "c2", "content": "No such tool."},
        {"role": "assistant", "content": "4 °C."},
        {"role": "user", "content": "thanks"},
    ]);
    let plain = json!({"model": "m", "messages": messages_sent, "stream": false, "max_tokens": 100, "tools": tools});
    assert_eq!(requests[0].body, plain);
    let mut closed = plain.clone();
    closed["stream"] = true.into();
    closed["stream_options"] = json!({"include_usage": true});
    closed["tool_choice"] = "none".into();
    assert_eq!(requests[1].body, closed);
    let mut bare = plain;
    bare.as_object_mut().unwrap().remove("tools");
    assert_eq!(requests[2].body, bare);
}

#[tokio::test]
async fn a_whole_answer_is_understood() {
    let reply = full_reply(json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}},
            {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": ""}},
        ]}}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25, "prompt_tokens_details": {"cached_tokens": 10}},
    }));
    let calls = vec![call("c1", "weather", json!({"city": "Oslo"})), call("c2", "clock", json!({}))];
    let usage = Usage { input_tokens: 20, output_tokens: 5 };
    assert_eq!(reply.await, Reply { calls, stop: StopReason::Calls, usage, ..Reply::default() });
}

#[tokio::test]
async fn odd_answers_are_understood() {
    let answer = |message: Value, reason: Value| json!({"choices": [{"message": message, "finish_reason": reason}]});
    let call_json = |id: &str, arguments: Value| json!({"id": id, "function": {"name": "f", "arguments": arguments}});
    // Arguments as an object instead of a string, missing or duplicate ids, a wrong finish reason.
    let calls = json!([
        call_json("", json!({"a": 1})),
        call_json("x", json!("{")),
        call_json("x", json!("[1]")),
        call_json("y", Value::Null)
    ]);
    let reply = full_reply(answer(json!({"content": "", "tool_calls": calls}), json!("stop"))).await;
    assert_eq!(reply.stop, StopReason::Calls);
    let expected = [
        call("call_0", "f", json!({"a": 1})),
        malformed("x", "f", "{"),
        malformed("x_2", "f", "[1]"),
        call("y", "f", json!({})),
    ];
    assert_eq!(reply.calls, expected);
    let reply = full_reply(answer(json!({"content": null, "refusal": "I will not."}), json!("stop"))).await;
    assert_eq!((reply.text.as_str(), reply.stop), ("I will not.", StopReason::Refusal));
    let reply = full_reply(answer(json!({"content": "hel"}), json!("length"))).await;
    assert_eq!((reply.text.as_str(), reply.stop), ("hel", StopReason::Length));
    let reply = full_reply(answer(json!({"content": ""}), json!("content_filter"))).await;
    assert_eq!(reply.stop, StopReason::Refusal);
    let parts = json!([{"type": "thinking", "thinking": []}, {"type": "text", "text": "hi"}]);
    let reply = full_reply(answer(json!({"content": parts}), Value::Null)).await;
    assert_eq!((reply.text.as_str(), reply.stop), ("hi", StopReason::End));
}

#[tokio::test]
async fn the_one_call_that_older_servers_know_is_a_call_like_others() {
    let call_json = |name: Value, arguments: Value| json!({"function_call": {"name": name, "arguments": arguments}});
    let oslo = [call("call_0", "weather", json!({"city": "Oslo"}))];
    let mut message = call_json(json!("weather"), json!("{\"city\": \"Oslo\"}"));
    message["content"] = Value::Null;
    let answer = |message: &Value| json!({"choices": [{"message": message, "finish_reason": "function_call"}]});
    let reply = full_reply(answer(&message)).await;
    assert_eq!((reply.stop, reply.calls.as_slice()), (StopReason::Calls, &oslo[..]));
    let chunks = [
        delta(call_json(json!("weather"), json!(""))),
        delta(call_json(Value::Null, json!("{\"city\":"))),
        delta(call_json(Value::Null, json!("\"Oslo\"}"))),
        finish("function_call"),
    ];
    let reply = streamed_reply(&chunks).await;
    assert_eq!((reply.stop, reply.calls.as_slice()), (StopReason::Calls, &oslo[..]));
    // Some servers send it both ways: that is one call.
    message["tool_calls"] = json!([{"id": "c1", "function": message["function_call"]}]);
    assert_eq!(full_reply(answer(&message)).await.calls, [call("c1", "weather", json!({"city": "Oslo"}))]);
    let both = [chunks[0].clone(), call_chunk(json!(0), json!("c1"), json!("weather"), json!("{\"city\": \"Oslo\"}"))];
    assert_eq!(streamed_reply(&both).await.calls, [call("c1", "weather", json!({"city": "Oslo"}))]);
}

#[tokio::test]
async fn what_a_model_thought_before_its_calls_is_kept_for_the_next_question() {
    let calls = json!([{"index": 0, "id": "c1", "function": {"name": "clock", "arguments": "{}"}}]);
    let message = json!({"content": "", "reasoning_content": "What time is it?", "tool_calls": calls});
    let reply = full_reply(json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]})).await;
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("What time is it?", ""));
    let thought = |text: &str| delta(json!({"content": null, "reasoning_content": text}));
    let reply = streamed_reply(&[thought("What time "), thought("is it?"), delta(json!({"tool_calls": calls}))]).await;
    assert_eq!((reply.reasoning.as_str(), reply.calls.len()), ("What time is it?", 1));
}

#[tokio::test]
async fn what_a_server_puts_beside_a_call_is_told_again_with_it() {
    let signed = json!({"google": {"thought_signature": "c2lnbmVk"}});
    let call_json = json!([{"index": 0, "id": "c1", "type": "function", "extra_content": signed,
        "function": {"name": "clock", "arguments": "{}"}}]);
    let answer =
        json!({"choices": [{"message": {"content": null, "tool_calls": call_json}, "finish_reason": "tool_calls"}]});
    let (whole, streamed) = (
        full_reply(answer).await,
        streamed_reply(&[delta(json!({"tool_calls": call_json})), finish("tool_calls")]).await,
    );
    assert_eq!(whole.calls, streamed.calls);
    assert_eq!(whole.calls[0].extra, Some(signed.clone()));
    let result = CallResult {
        id: "c1".into(),
        call_id: None,
        tool: "clock".into(),
        text: "noon".into(),
        is_error: false,
        images: vec![],
    };
    let messages = [
        Message::User { content: "time?".into() },
        Message::Assistant { content: String::new(), reasoning: String::new(), calls: whole.calls },
        Message::Tool { results: vec![result] },
    ];
    let fine = json!({"choices": [{"message": {"content": "ok"}}]});
    let server = MockServer::start([CannedResponse::json(200, "", &fine)]).await;
    ask(&openai(&server), prompt(&messages)).await.0.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].body.pointer("/messages/1/tool_calls/0/extra_content"), Some(&signed));
    assert_eq!(requests[0].body.pointer("/messages/1/tool_calls/0/function/name"), Some(&json!("clock")));
}

#[tokio::test]
async fn a_stream_of_text_is_heard_as_it_comes_and_its_usage_is_counted() {
    let reply = streamed_reply(&[
        delta(json!({"role": "assistant", "content": "", "refusal": null})),
        delta(json!({"reasoning_content": "hmm"})),
        delta(json!({"content": "Hé"})),
        delta(json!({"content": "llo 🙂"})),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}),
    ])
    .await;
    let usage = Usage { input_tokens: 7, output_tokens: 3 };
    assert_eq!(reply, Reply { text: "Héllo 🙂".into(), reasoning: "hmm".into(), usage, ..Reply::default() });
}

#[tokio::test]
async fn calls_in_pieces_are_put_together_as_openai_sends_them() {
    let none = Value::Null;
    let reply = streamed_reply(&[
        delta(json!({"role": "assistant", "content": null})),
        call_chunk(json!(0), json!("c1"), json!("weather"), json!("")),
        call_chunk(json!(0), none.clone(), none.clone(), json!("{\"ci")),
        call_chunk(json!(1), json!("c2"), json!("clock"), json!("")),
        call_chunk(json!(0), none.clone(), none.clone(), json!("ty\": \"Oslo\"}")),
        call_chunk(json!(1), none.clone(), none.clone(), json!("{}")),
        finish("tool_calls"),
    ])
    .await;
    assert_eq!(reply.calls, [call("c1", "weather", json!({"city": "Oslo"})), call("c2", "clock", json!({}))]);
    assert_eq!(reply.stop, StopReason::Calls);
}

#[tokio::test]
async fn calls_in_pieces_are_put_together_as_others_send_them() {
    let none = Value::Null;
    let one = [call("c1", "weather", json!({"city": "Oslo"}))];
    let two = [call("c1", "weather", json!({"city": "Oslo"})), call("c2", "clock", json!({}))];
    let (half, rest) = (json!("{\"city\":"), json!("\"Oslo\"}"));
    let full = json!("{\"city\": \"Oslo\"}");
    let check = async |what: &str, chunks: &[Value], expected: &[toolhub_agent::ToolCall]| {
        assert_eq!(streamed_reply(chunks).await.calls, expected, "{what}");
    };
    let chunks = [
        call_chunk(json!(3), json!("c1"), json!("weather"), full.clone()),
        call_chunk(json!(7), json!("c2"), json!("clock"), json!("{}")),
    ];
    check("gaps in the index", &chunks, &two).await;
    let chunks = [
        call_chunk(none.clone(), json!("c1"), json!("weather"), half.clone()),
        call_chunk(none.clone(), none.clone(), none.clone(), rest.clone()),
        call_chunk(none.clone(), json!("c2"), json!("clock"), none.clone()),
    ];
    check("no index", &chunks, &two).await;
    let chunks = [
        call_chunk(json!(0), json!("c1"), json!("weather"), half.clone()),
        call_chunk(json!(0), json!("c1"), json!("weather"), rest.clone()),
        call_chunk(json!(1), json!("c2"), json!("clock"), json!("{}")),
    ];
    check("id and name in every chunk", &chunks, &two).await;
    let chunks = [
        call_chunk(json!(0), json!("c1"), json!("weather"), full.clone()),
        call_chunk(json!(0), json!("c2"), json!("clock"), json!("{}")),
    ];
    check("the same index for all", &chunks, &two).await;
    let chunks = [
        call_chunk(json!(0), json!(""), json!("clock"), full.clone()),
        call_chunk(json!(0), json!(""), json!("clock"), half.clone()),
        call_chunk(json!(0), json!(""), json!("clock"), rest.clone()),
        call_chunk(json!(0), json!(""), json!("weather"), json!("{}")),
        call_chunk(json!(0), json!(""), json!("weather"), json!("")),
    ];
    let city = json!({"city": "Oslo"});
    let three =
        [call("call_0", "clock", city.clone()), call("call_1", "clock", city), call("call_2", "weather", json!({}))];
    check("the same index for all, and no ids", &chunks, &three).await;
    let chunks = [
        call_chunk(json!(0), json!("c1"), json!("wea"), json!("")),
        call_chunk(json!(0), json!(""), json!("ther"), half.clone()),
        call_chunk(json!(0), json!(""), none.clone(), rest.clone()),
    ];
    check("a name split over chunks", &chunks, &one).await;
    let chunks = [call_chunk(json!(0), json!("c1"), json!("weather"), json!({"city": "Oslo"}))];
    check("arguments that are not a string", &chunks, &one).await;
    let both = json!({"tool_calls": [
        {"index": 1, "id": "c2", "function": {"name": "clock", "arguments": "{}"}},
        {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}},
    ]});
    check("several in one chunk, out of order", &[delta(both)], &two).await;
    let chunks = [
        call_chunk(json!(0), none.clone(), json!("clock"), json!("{}")),
        call_chunk(json!(1), none.clone(), json!("clock"), json!("{\"a\"")),
    ];
    let unnamed = [call("call_0", "clock", json!({})), malformed("call_1", "clock", "{\"a\"")];
    check("no ids, and truncated arguments", &chunks, &unnamed).await;
}

#[tokio::test]
async fn an_answer_that_asks_for_thousands_of_calls_is_no_answer() {
    let calls = |count: usize| -> Vec<Value> {
        (0..count).map(|index| json!({"index": index, "function": {"name": "clock", "arguments": "{}"}})).collect()
    };
    let check = async |answer: CannedResponse, expected: Result<usize, ModelFault>| {
        let server = MockServer::start([answer]).await;
        let (reply, _) = ask(&openai(&server).retries(0), streamed_prompt(&hello_messages())).await;
        assert_eq!(reply.map(|reply| reply.calls.len()).map_err(|error| error.fault), expected);
    };
    let whole = |count| CannedResponse::json(200, "", &json!({"choices": [{"message": {"tool_calls": calls(count)}}]}));
    let chunks =
        |count| CannedResponse::events(&sse_text(&[delta(json!({"tool_calls": calls(count)}))], "data: [DONE]\n\n"));
    check(whole(1024), Ok(1024)).await;
    check(chunks(1024), Ok(1024)).await;
    check(whole(1025), Err(ModelFault::Broken)).await;
    check(chunks(1025), Err(ModelFault::Broken)).await;
}

#[tokio::test]
async fn the_end_of_a_stream_is_its_mark_or_its_reason() {
    let text = delta(json!({"content": "hi"}));
    let check = async |stream: String, expected: Result<StopReason, ModelFault>| {
        let server = MockServer::start([CannedResponse::events(&stream)]).await;
        let (reply, _) = ask(&openai(&server).retries(0), streamed_prompt(&hello_messages())).await;
        assert_eq!(reply.map(|reply| reply.stop).map_err(|error| error.fault), expected, "{stream}");
    };
    let text_only = std::slice::from_ref(&text);
    check(sse_text(text_only, "data: [DONE]\n\n"), Ok(StopReason::End)).await;
    check(sse_text(&[text.clone(), finish("stop")], ""), Ok(StopReason::End)).await;
    check(sse_text(&[text.clone(), finish("length")], "data: [DONE]\n\n"), Ok(StopReason::Length)).await;
    check(sse_text(&[delta(json!({"refusal": "No."}))], "data: [DONE]\n\n"), Ok(StopReason::Refusal)).await;
    check(sse_text(text_only, ""), Err(ModelFault::Broken)).await;
    check(sse_text(text_only, "data: {\"choices\": [{\n\n"), Err(ModelFault::Broken)).await;
    check(String::new(), Err(ModelFault::Broken)).await;
    let error = |error: Value| sse_text(&[text.clone(), json!({"error": error})], "data: [DONE]\n\n");
    check(error(json!({"message": "internal error", "type": "server_error"})), Err(ModelFault::Failed)).await;
    check(error(json!({"message": "too long", "code": 400})), Err(ModelFault::Refused)).await;
    check(error(json!({"message": "slow down", "type": "rate_limit_error"})), Err(ModelFault::RateLimited)).await;
    check(sse_text(&[text, finish("insufficient_system_resource")], "data: [DONE]\n\n"), Err(ModelFault::Failed)).await;
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_heard_at_its_end() {
    let answer = json!({"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]});
    let server = MockServer::start([CannedResponse::json(200, "", &answer)]).await;
    let (reply, streamed_text) = ask(&openai(&server), streamed_prompt(&hello_messages())).await;
    assert_eq!((reply.unwrap().text.as_str(), streamed_text.as_str()), ("all at once", "all at once"));
}
