//! Renders replies in the format of OpenAI's chat completions API.

use serde_json::{Value, json};

use super::{
    request::ModelRequest,
    wire::{Answer, Call, RenderedAnswer, split_chunks},
};

/// A fixed creation time, because replies must not depend on a clock.
const CREATED: u64 = 1_767_225_600;

/// The reply, complete or streamed.
pub(super) fn render(answer: &Answer, request: &ModelRequest) -> RenderedAnswer {
    if request.stream {
        RenderedAnswer::Events(stream_events(answer, request.include_usage))
    } else {
        RenderedAnswer::Document(full_response(answer))
    }
}

/// The body of an error response.
pub(super) fn error_body(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        429 => ("requests", json!("rate_limit_exceeded")),
        401 => ("invalid_request_error", json!("invalid_api_key")),
        404 => ("invalid_request_error", json!("not_found")),
        400..500 => ("invalid_request_error", Value::Null),
        _ => ("server_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn completion_id(answer: &Answer) -> String {
    format!("chatcmpl-{}", answer.number)
}

fn call_id(call: &Call) -> String {
    format!("call_{}", call.id)
}

fn finish_reason(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage(answer: &Answer) -> Value {
    let usage = answer.usage;
    let total = usage.input_tokens + usage.output_tokens;
    json!({"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens, "total_tokens": total})
}

fn full_response(answer: &Answer) -> Value {
    let content = if answer.text.is_empty() { Value::Null } else { answer.text.as_str().into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !answer.calls.is_empty() {
        let call = |call: &Call| json!({"id": call_id(call), "type": "function", "function": {"name": call.tool, "arguments": call.arguments_text}});
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer)});
    json!({
        "id": completion_id(answer), "object": "chat.completion", "created": CREATED, "model": answer.model,
        "choices": [choice], "usage": usage(answer),
    })
}

fn stream_events(answer: &Answer, with_usage: bool) -> Vec<String> {
    let chunk = |choices: Value| json!({"id": completion_id(answer), "object": "chat.completion.chunk", "created": CREATED, "model": answer.model, "choices": choices});
    let delta = |delta: Value, reason: Value| {
        chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]))
    };
    let mut chunks = vec![delta(json!({"role": "assistant", "content": ""}), Value::Null)];
    chunks.extend(
        split_chunks(&answer.text).into_iter().map(|chunk_text| delta(json!({"content": chunk_text}), Value::Null)),
    );
    for (index, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.tool, "arguments": ""});
        let start = json!({"index": index, "id": call_id(call), "type": "function", "function": function});
        chunks.push(delta(json!({"tool_calls": [start]}), Value::Null));
        for chunk_text in split_chunks(&call.arguments_text) {
            let next = json!({"index": index, "function": {"arguments": chunk_text}});
            chunks.push(delta(json!({"tool_calls": [next]}), Value::Null));
        }
    }
    chunks.push(delta(json!({}), finish_reason(answer).into()));
    if with_usage {
        let mut last = chunk(json!([]));
        last["usage"] = usage(answer);
        chunks.push(last);
    }
    let events = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}
