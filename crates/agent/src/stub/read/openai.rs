//! Understands a request for chat completions.

use serde_json::Value;

use super::{Asked, Growing, Refused, asked, call, list, refused, text, tools};
use crate::{
    message::{AskedCall, Message},
    script::Conversation,
};

/// What is asked.
pub(in crate::stub) fn openai(body: &Value) -> Result<Asked, Refused> {
    let (mut growing, mut system) = (Growing::default(), Vec::new());
    for message in list(body, "messages")? {
        match text(message, "role") {
            Some("system" | "developer") => system.push(words(message, "content")?),
            Some("user") => growing.say(Message::User { content: words(message, "content")? })?,
            Some("assistant") => growing.say(assistant(message)?)?,
            Some("tool") => {
                let Some(id) = text(message, "tool_call_id") else { return refused("a result has no `tool_call_id`") };
                growing.result(id, words(message, "content")?, false)?;
            }
            other => return refused(format!("there is no role `{}`", other.unwrap_or_default())),
        }
    }
    let conversation = Conversation {
        system: system.join("\n\n"),
        messages: growing.end()?,
        tools: tools(body, "/function/name")?,
        may_call: text(body, "tool_choice") != Some("none"),
    };
    let usage = body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or_default();
    asked(body, conversation, usage)
}

fn assistant(message: &Value) -> Result<Message, Refused> {
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) if !calls.is_empty() => {
            calls.iter().map(asked_call).collect::<Result<_, Refused>>()?
        }
        Some(_) => return refused("`tool_calls` is no list, or is empty"),
    };
    let content = match message.get("content") {
        None | Some(Value::Null) if calls.is_empty() => return refused("a message of the model has no `content`"),
        None | Some(Value::Null) => String::new(),
        Some(_) => words(message, "content")?,
    };
    Ok(Message::Assistant { content, reasoning: String::new(), calls })
}

fn asked_call(one: &Value) -> Result<AskedCall, Refused> {
    let function = |name: &str| one.pointer(&format!("/function/{name}")).and_then(Value::as_str);
    let (Some(name), Some(written)) = (function("name"), function("arguments")) else {
        return refused("a call has no `function` with `name` and `arguments`");
    };
    call(text(one, "id").unwrap_or_default(), name, serde_json::from_str(written).unwrap_or_default())
}

/// A text, or the texts of a list of parts.
fn words(message: &Value, name: &str) -> Result<String, Refused> {
    match message.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => Ok(parts.iter().filter_map(|part| text(part, "text")).collect()),
        _ => refused(format!("a message has no `{name}`")),
    }
}
