//! Parses a request in the format of OpenAI's chat completions API.

use serde_json::Value;

use super::{
    ConversationBuilder, ModelRequest, RequestError, build_request, list, reject, text, tool_call, tool_names,
};
use crate::{
    message::{Message, ToolCall},
    script::Conversation,
};

pub(in crate::stub) fn parse_openai(body: &Value) -> Result<ModelRequest, RequestError> {
    let (mut builder, mut system) = (ConversationBuilder::default(), Vec::new());
    for message in list(body, "messages")? {
        match text(message, "role") {
            Some("system" | "developer") => system.push(content_text(message, "content")?),
            Some("user") => builder.push_message(Message::User { content: content_text(message, "content")? })?,
            Some("assistant") => builder.push_message(assistant_message(message)?)?,
            Some("tool") => {
                let Some(id) = text(message, "tool_call_id") else { return reject("a result has no `tool_call_id`") };
                builder.push_result(id, content_text(message, "content")?, false)?;
            }
            other => return reject(format!("unknown role `{}`", other.unwrap_or_default())),
        }
    }
    let conversation = Conversation {
        system: system.join("\n\n"),
        messages: builder.finish()?,
        tools: tool_names(body, "/function/name")?,
        may_call: text(body, "tool_choice") != Some("none"),
    };
    let usage = body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or_default();
    build_request(body, conversation, usage)
}

fn assistant_message(message: &Value) -> Result<Message, RequestError> {
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) if !calls.is_empty() => {
            calls.iter().map(parse_call).collect::<Result<_, RequestError>>()?
        }
        Some(_) => return reject("`tool_calls` must be a non-empty list"),
    };
    let content = match message.get("content") {
        None | Some(Value::Null) if calls.is_empty() => return reject("an assistant message has no `content`"),
        None | Some(Value::Null) => String::new(),
        Some(_) => content_text(message, "content")?,
    };
    Ok(Message::Assistant { content, reasoning: String::new(), calls })
}

fn parse_call(call: &Value) -> Result<ToolCall, RequestError> {
    let function = |name: &str| call.pointer(&format!("/function/{name}")).and_then(Value::as_str);
    let (Some(name), Some(arguments)) = (function("name"), function("arguments")) else {
        return reject("a call has no `function` with `name` and `arguments`");
    };
    tool_call(text(call, "id").unwrap_or_default(), name, serde_json::from_str(arguments).unwrap_or_default())
}

/// The text of a string or of a list of parts.
fn content_text(message: &Value, name: &str) -> Result<String, RequestError> {
    match message.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => Ok(parts.iter().filter_map(|part| text(part, "text")).collect()),
        _ => reject(format!("a message has no `{name}`")),
    }
}
