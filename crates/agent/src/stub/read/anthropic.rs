//! Understands a request for messages.

use serde_json::Value;

use super::{Asked, Growing, Refused, asked, call, list, refused, text, tools};
use crate::{message::Message, script::Conversation};

/// What is asked.
pub(in crate::stub) fn anthropic(body: &Value) -> Result<Asked, Refused> {
    if body.get("max_tokens").and_then(Value::as_u64).is_none_or(|tokens| tokens == 0) {
        return refused("max_tokens: Field required");
    }
    let mut growing = Growing::default();
    for message in list(body, "messages")? {
        let blocks = blocks(message)?;
        match text(message, "role") {
            Some("user") => user(&mut growing, &blocks)?,
            Some("assistant") if growing.messages.is_empty() => {
                return refused("the first message must be of the user");
            }
            Some("assistant") => growing.say(assistant(&blocks)?)?,
            other => return refused(format!("there is no role `{}`", other.unwrap_or_default())),
        }
    }
    let system = match body.get("system") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| text(part, "text")).collect(),
        _ => String::new(),
    };
    let may_call = body.pointer("/tool_choice/type").and_then(Value::as_str) != Some("none");
    let conversation = Conversation { system, messages: growing.end()?, tools: tools(body, "/name")?, may_call };
    asked(body, conversation, true)
}

/// The blocks of a message; a text is one of them.
fn blocks(message: &Value) -> Result<Vec<Value>, Refused> {
    let blocks = match message.get("content") {
        Some(Value::String(text)) => vec![serde_json::json!({"type": "text", "text": text})],
        Some(Value::Array(blocks)) => blocks.clone(),
        _ => return refused("a message has no `content`"),
    };
    let empty = |block: &Value| {
        text(block, "type") == Some("text") && text(block, "text").unwrap_or_default().trim().is_empty()
    };
    if blocks.is_empty() || blocks.iter().any(empty) {
        return refused("text content blocks must be non-empty");
    }
    Ok(blocks)
}

fn user(growing: &mut Growing, blocks: &[Value]) -> Result<(), Refused> {
    let mut said = String::new();
    for block in blocks {
        match text(block, "type") {
            Some("text") => said.push_str(text(block, "text").unwrap_or_default()),
            Some("tool_result") if !said.is_empty() => return refused("results come before everything else"),
            Some("tool_result") => {
                let Some(id) = text(block, "tool_use_id") else { return refused("a result has no `tool_use_id`") };
                let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or_default();
                growing.result(id, words(block)?, is_error)?;
            }
            Some("image" | "document") => {}
            other => return refused(format!("there is no block `{}`", other.unwrap_or_default())),
        }
    }
    if said.is_empty() {
        return Ok(());
    }
    // Two messages of the user in a row are one.
    match growing.messages.last_mut() {
        Some(Message::User { content }) => {
            content.push('\n');
            content.push_str(&said);
            Ok(())
        }
        _ => growing.say(Message::User { content: said }),
    }
}

fn assistant(blocks: &[Value]) -> Result<Message, Refused> {
    let (mut content, mut calls) = (String::new(), Vec::new());
    for block in blocks {
        match text(block, "type") {
            Some("text") => content.push_str(text(block, "text").unwrap_or_default()),
            Some("tool_use") => {
                let id = text(block, "id").unwrap_or_default();
                if !id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
                    return refused(format!("`{id}` cannot be the id of a call"));
                }
                let Some(input @ Value::Object(_)) = block.get("input") else {
                    return refused("the `input` of a call is no object");
                };
                calls.push(call(id, text(block, "name").unwrap_or_default(), input.clone())?);
            }
            Some("thinking" | "redacted_thinking") => {}
            other => return refused(format!("there is no block `{}`", other.unwrap_or_default())),
        }
    }
    Ok(Message::Assistant { content, reasoning: String::new(), calls })
}

/// What a result says.
fn words(result: &Value) -> Result<String, Refused> {
    match result.get("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let empty =
                |part: &Value| text(part, "type") == Some("text") && text(part, "text").unwrap_or_default().is_empty();
            if parts.iter().any(empty) {
                return refused("text content blocks must be non-empty");
            }
            Ok(parts.iter().filter_map(|part| text(part, "text")).collect())
        }
        Some(_) => refused("the `content` of a result is no text and no list"),
    }
}
