//! Renders replies in the format of Anthropic's messages API.

use serde_json::{Value, json};

use super::{
    request::ModelRequest,
    wire::{Answer, Call, RenderedAnswer, split_chunks},
};

/// The reply, complete or streamed.
pub(super) fn render(answer: &Answer, request: &ModelRequest) -> RenderedAnswer {
    if request.stream {
        RenderedAnswer::Events(stream_events(answer))
    } else {
        RenderedAnswer::Document(full_response(answer))
    }
}

/// The body of an error response.
pub(super) fn error_body(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
}

fn call_id(call: &Call) -> String {
    format!("toolu_{}", call.id)
}

fn stop_reason(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "end_turn" } else { "tool_use" }
}

fn message(answer: &Answer, content: &[Value], reason: Option<&str>, output: u64) -> Value {
    let usage = json!({"input_tokens": answer.usage.input_tokens, "output_tokens": output});
    json!({
        "id": format!("msg_{}", answer.number), "type": "message", "role": "assistant", "model": answer.model,
        "content": content, "stop_reason": reason, "stop_sequence": null, "usage": usage,
    })
}

fn full_response(answer: &Answer) -> Value {
    let text = (!answer.text.is_empty()).then(|| json!({"type": "text", "text": answer.text}));
    let calls = answer.calls.iter().map(|call| {
        // A complete response is valid JSON, so malformed arguments can only be a string instead of an object.
        let input = if call.malformed { Value::from(call.arguments_text.as_str()) } else { call.arguments.clone() };
        json!({"type": "tool_use", "id": call_id(call), "name": call.tool, "input": input})
    });
    let content: Vec<Value> = text.into_iter().chain(calls).collect();
    message(answer, &content, Some(stop_reason(answer)), answer.usage.output_tokens)
}

fn stream_events(answer: &Answer) -> Vec<String> {
    let mut events =
        vec![json!({"type": "message_start", "message": message(answer, &[], None, 1)}), json!({"type": "ping"})];
    let mut block = |start: Value, deltas: Vec<Value>| {
        let index = events.iter().filter(|event| event["type"] == "content_block_start").count();
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let deltas = deltas.into_iter();
        events.extend(deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": index}));
    };
    if !answer.text.is_empty() {
        let deltas = split_chunks(&answer.text).into_iter().map(|chunk| json!({"type": "text_delta", "text": chunk}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for call in &answer.calls {
        let start = json!({"type": "tool_use", "id": call_id(call), "name": call.tool, "input": {}});
        let chunks = [String::new()].into_iter().chain(split_chunks(&call.arguments_text));
        let deltas = chunks.map(|chunk| json!({"type": "input_json_delta", "partial_json": chunk}));
        block(start, deltas.collect());
    }
    let delta = json!({"stop_reason": stop_reason(answer), "stop_sequence": null});
    let usage = json!({"output_tokens": answer.usage.output_tokens});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    let rendered = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(rendered).collect()
}
