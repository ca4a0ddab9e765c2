//! Understands a request for chat completions.

use serde_json::Value;

use super::{
    ConversationBuilder, ModelRequest, RequestError, build_request, list, reject, text, tool_call, tool_names,
};
use crate::{
    message::{AskedCall, Message},
    script::Conversation,
};

/// What is asked.
pub(in crate::stub) fn parse_openai(body: &Value) -> Result<ModelRequest, RequestError> {
    let (mut growing, mut system) = (ConversationBuilder::default(), Vec::new());
    for message in list(body, "messages")? {
        match text(message, "role") {
            Some("system" | "developer") => system.push(content_text(message, "content")?),
            Some("user") => growing.push_message(Message::User { content: content_text(message, "content")? })?,
            Some("assistant") => growing.push_message(assistant_message(message)?)?,
            Some("tool") => {
                let Some(id) = text(message, "tool_call_id") else { return reject("a result has no `tool_call_id`") };
                growing.push_result(id, content_text(message, "content")?, false)?;
            }
            other => return reject(format!("there is no role `{}`", other.unwrap_or_default())),
        }
    }
    let conversation = Conversation {
        system: system.join("\n\n"),
        messages: growing.finish()?,
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
        Some(_) => return reject("`tool_calls` is no list, or is empty"),
    };
    let content = match message.get("content") {
        None | Some(Value::Null) if calls.is_empty() => return reject("a message of the model has no `content`"),
        None | Some(Value::Null) => String::new(),
        Some(_) => content_text(message, "content")?,
    };
    Ok(Message::Assistant { content, reasoning: String::new(), calls })
}

fn parse_call(one: &Value) -> Result<AskedCall, RequestError> {
    let function = |name: &str| one.pointer(&format!("/function/{name}")).and_then(Value::as_str);
    let (Some(name), Some(written)) = (function("name"), function("arguments")) else {
        return reject("a call has no `function` with `name` and `arguments`");
    };
    tool_call(text(one, "id").unwrap_or_default(), name, serde_json::from_str(written).unwrap_or_default())
}

/// A text, or the texts of a list of parts.
fn content_text(message: &Value, name: &str) -> Result<String, RequestError> {
    match message.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => Ok(parts.iter().filter_map(|part| text(part, "text")).collect()),
        _ => reject(format!("a message has no `{name}`")),
    }
}
