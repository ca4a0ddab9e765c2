//! Builds a request for OpenAI's chat completions API.

use serde_json::{Value, json};

use super::super::{Prompt, sanitize};
use crate::message::{CallResult, Message, ToolCall};

/// The body of the request. `extensions`: whether to send the non-standard fields of other servers back.
pub(super) fn request_body(model: &str, limit: Option<(&str, u32)>, extensions: bool, prompt: &Prompt<'_>) -> Value {
    let mut messages = Vec::new();
    if !prompt.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": prompt.system}));
    }
    for message in prompt.messages {
        match message {
            Message::User { content } => messages.push(json!({"role": "user", "content": content})),
            Message::Assistant { content, reasoning, calls } => {
                let mut message = assistant_message(content, calls, extensions);
                // DeepSeek rejects calls of a reasoning model without their reasoning.
                if extensions && !calls.is_empty() && !reasoning.is_empty() {
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
    // An empty `tools` list is rejected, and so is `tool_choice` without `tools`.
    if !prompt.tools.is_empty() {
        body["tools"] = prompt.tools.into();
        if !prompt.may_call {
            body["tool_choice"] = "none".into();
        }
    }
    body
}

fn assistant_message(content: &str, calls: &[ToolCall], with_extra: bool) -> Value {
    if calls.is_empty() {
        return json!({"role": "assistant", "content": content});
    }
    let call = |call: &ToolCall| {
        let function = json!({"name": sanitize::tool_name(&call.tool), "arguments": call.arguments.to_string()});
        let mut tool_call = json!({"id": call.id, "type": "function", "function": function});
        // Gemini rejects its own calls without their signature.
        if let Some(extra) = call.extra.as_ref().filter(|_| with_extra) {
            tool_call["extra_content"] = extra.clone();
        }
        tool_call
    };
    let content = if content.is_empty() { Value::Null } else { content.into() };
    json!({"role": "assistant", "content": content, "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
}

fn tool_message(result: &CallResult) -> Value {
    let mut content = result.text.clone();
    for _ in &result.images {
        sanitize::push_line(&mut content, sanitize::IMAGE_OMITTED);
    }
    json!({"role": "tool", "tool_call_id": result.id, "content": content})
}
