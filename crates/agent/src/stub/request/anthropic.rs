//! Parses a request in the format of Anthropic's messages API.

use serde_json::Value;

use super::{
    ConversationBuilder, ModelRequest, RequestError, build_request, list, reject, text, tool_call, tool_names,
};
use crate::{message::Message, script::Conversation};

pub(in crate::stub) fn parse_anthropic(body: &Value) -> Result<ModelRequest, RequestError> {
    if body.get("max_tokens").and_then(Value::as_u64).is_none_or(|tokens| tokens == 0) {
        return reject("max_tokens: Field required");
    }
    let mut builder = ConversationBuilder::default();
    for message in list(body, "messages")? {
        let blocks = content_blocks(message)?;
        match text(message, "role") {
            Some("user") => push_user_blocks(&mut builder, &blocks)?,
            Some("assistant") if builder.messages.is_empty() => {
                return reject("the first message must have the role `user`");
            }
            Some("assistant") => builder.push_message(assistant_message(&blocks)?)?,
            other => return reject(format!("unknown role `{}`", other.unwrap_or_default())),
        }
    }
    let system = match body.get("system") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| text(part, "text")).collect(),
        _ => String::new(),
    };
    let may_call = body.pointer("/tool_choice/type").and_then(Value::as_str) != Some("none");
    let conversation =
        Conversation { system, messages: builder.finish()?, tools: tool_names(body, "/name")?, may_call };
    build_request(body, conversation, true)
}

/// The content blocks of a message; a plain string becomes one text block.
fn content_blocks(message: &Value) -> Result<Vec<Value>, RequestError> {
    let blocks = match message.get("content") {
        Some(Value::String(text)) => vec![serde_json::json!({"type": "text", "text": text})],
        Some(Value::Array(blocks)) => blocks.clone(),
        _ => return reject("a message has no `content`"),
    };
    let is_empty = |block: &Value| {
        text(block, "type") == Some("text") && text(block, "text").unwrap_or_default().trim().is_empty()
    };
    if blocks.is_empty() || blocks.iter().any(is_empty) {
        return reject("text content blocks must be non-empty");
    }
    Ok(blocks)
}

fn push_user_blocks(builder: &mut ConversationBuilder, blocks: &[Value]) -> Result<(), RequestError> {
    let mut content_so_far = String::new();
    for block in blocks {
        match text(block, "type") {
            Some("text") => content_so_far.push_str(text(block, "text").unwrap_or_default()),
            Some("tool_result") if !content_so_far.is_empty() => return reject("tool results must come before text"),
            Some("tool_result") => {
                let Some(id) = text(block, "tool_use_id") else { return reject("a result has no `tool_use_id`") };
                let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or_default();
                builder.push_result(id, result_text(block)?, is_error)?;
            }
            Some("image" | "document") => {}
            other => return reject(format!("unknown content block `{}`", other.unwrap_or_default())),
        }
    }
    if content_so_far.is_empty() {
        return Ok(());
    }
    // Consecutive user messages are merged.
    match builder.messages.last_mut() {
        Some(Message::User { content }) => {
            content.push('\n');
            content.push_str(&content_so_far);
            Ok(())
        }
        _ => builder.push_message(Message::User { content: content_so_far }),
    }
}

fn assistant_message(blocks: &[Value]) -> Result<Message, RequestError> {
    let (mut content, mut calls) = (String::new(), Vec::new());
    for block in blocks {
        match text(block, "type") {
            Some("text") => content.push_str(text(block, "text").unwrap_or_default()),
            Some("tool_use") => {
                let id = text(block, "id").unwrap_or_default();
                if !id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
                    return reject(format!("`{id}` is not a valid call id"));
                }
                let Some(input @ Value::Object(_)) = block.get("input") else {
                    return reject("the `input` of a call must be an object");
                };
                calls.push(tool_call(id, text(block, "name").unwrap_or_default(), input.clone())?);
            }
            Some("thinking" | "redacted_thinking") => {}
            other => return reject(format!("unknown content block `{}`", other.unwrap_or_default())),
        }
    }
    Ok(Message::Assistant { content, reasoning: String::new(), calls })
}

/// The text of a result.
fn result_text(result: &Value) -> Result<String, RequestError> {
    match result.get("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let is_empty =
                |part: &Value| text(part, "type") == Some("text") && text(part, "text").unwrap_or_default().is_empty();
            if parts.iter().any(is_empty) {
                return reject("text content blocks must be non-empty");
            }
            Ok(parts.iter().filter_map(|part| text(part, "text")).collect())
        }
        Some(_) => reject("the `content` of a result must be a string or a list"),
    }
}
