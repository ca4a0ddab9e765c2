//! Says a prompt as a request for chat completions.

use serde_json::{Value, json};

use super::super::{Prompt, sanitize};
use crate::message::{AskedCall, CallResult, Message};

/// The body of the request.
pub(super) fn request_body(
    model: &str,
    limit: Option<(&str, u32)>,
    tells_thoughts: bool,
    prompt: &Prompt<'_>,
) -> Value {
    let mut messages = Vec::new();
    if !prompt.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": prompt.system}));
    }
    for message in prompt.messages {
        match message {
            Message::User { content } => messages.push(json!({"role": "user", "content": content})),
            Message::Assistant { content, reasoning, calls } => {
                let mut message = assistant_message(content, calls, tells_thoughts);
                // DeepSeek refuses calls of a model that thinks where its thoughts are missing.
                if tells_thoughts && !calls.is_empty() && !reasoning.is_empty() {
                    message["reasoning_content"] = reasoning.as_str().into();
                }
                messages.push(message);
            }
            Message::Tool { results } => messages.extend(results.iter().map(tool_message)),
        }
    }
    let mut body = json!({"model": model, "messages": messages, "stream": prompt.stream});
    if prompt.stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    if let Some((name, tokens)) = limit {
        body[name] = tokens.into();
    }
    // A list without tools is refused, and so is a choice among none.
    if !prompt.tools.is_empty() {
        body["tools"] = prompt.tools.into();
        if !prompt.may_call {
            body["tool_choice"] = "none".into();
        }
    }
    body
}

fn assistant_message(content: &str, calls: &[AskedCall], with_extra: bool) -> Value {
    if calls.is_empty() {
        return json!({"role": "assistant", "content": content});
    }
    let call = |call: &AskedCall| {
        let function = json!({"name": sanitize::tool_name(&call.tool), "arguments": call.arguments.to_string()});
        let mut written = json!({"id": call.id, "type": "function", "function": function});
        // Gemini refuses calls that it made itself where its signature is missing.
        if let Some(extra) = call.extra.as_ref().filter(|_| with_extra) {
            written["extra_content"] = extra.clone();
        }
        written
    };
    let content = if content.is_empty() { Value::Null } else { content.into() };
    json!({"role": "assistant", "content": content, "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
}

fn tool_message(result: &CallResult) -> Value {
    let mut content = result.text.clone();
    for _ in &result.pictures {
        sanitize::push_line(&mut content, sanitize::IMAGE_OMITTED);
    }
    json!({"role": "tool", "tool_call_id": result.id, "content": content})
}
