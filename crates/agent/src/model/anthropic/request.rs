//! Builds a request for Anthropic's messages API.
//!
//! Anthropic rejects blank text blocks, allows only certain characters in ids, and expects tool results and the user's
//! text in one user message.

use serde_json::{Value, json};

use super::super::{Prompt, sanitize};
use crate::message::{CallResult, Image, Message, ToolCall};

/// The image types that Anthropic accepts.
const SUPPORTED_IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The body of the request.
pub(super) fn request_body(model: &str, max_tokens: u32, prompt: &Prompt<'_>) -> Value {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in prompt.messages {
        let (role, blocks) = match message {
            Message::User { content } => ("user", text_block(content).into_iter().collect()),
            Message::Assistant { content, calls, .. } => (
                "assistant",
                text_block(content).into_iter().chain(calls.iter().map(tool_use_block)).collect::<Vec<_>>(),
            ),
            Message::Tool { results } => ("user", results.iter().map(tool_result_block).collect()),
        };
        match messages.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last_role, last_blocks)) if *last_role == role => last_blocks.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    let messages: Vec<Value> =
        messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    let mut body = json!({"model": model, "max_tokens": max_tokens, "messages": messages, "stream": prompt.stream});
    if !prompt.system.trim().is_empty() {
        body["system"] = prompt.system.into();
    }
    if !prompt.tools.is_empty() {
        body["tools"] = prompt.tools.into();
        if !prompt.may_call {
            body["tool_choice"] = json!({"type": "none"});
        }
    }
    body
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn tool_use_block(call: &ToolCall) -> Value {
    json!({"type": "tool_use", "id": sanitize_id(&call.id), "name": sanitize::tool_name(&call.tool), "input": call.arguments})
}

fn tool_result_block(result: &CallResult) -> Value {
    let (supported, omitted): (Vec<_>, Vec<_>) =
        result.images.iter().partition(|image| SUPPORTED_IMAGE_TYPES.contains(&image.mime_type.as_str()));
    let mut text = result.text.clone();
    for _ in omitted {
        sanitize::push_line(&mut text, sanitize::IMAGE_OMITTED);
    }
    let image_block = |image: &Image| json!({"type": "image", "source": {"type": "base64", "media_type": image.mime_type, "data": image.data}});
    let content: Vec<Value> = text_block(&text).into_iter().chain(supported.into_iter().map(image_block)).collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": sanitize_id(&result.id)});
    if !content.is_empty() {
        block["content"] = content.into();
    }
    if result.is_error {
        block["is_error"] = true.into();
    }
    block
}

/// An id that Anthropic accepts. One from another provider may contain invalid characters; they are replaced, and a
/// hash suffix (FNV-1a) keeps ids apart that differ only in those.
fn sanitize_id(id: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if id.chars().all(valid) {
        return id.to_owned();
    }
    let plain: String = id.chars().map(|c| if valid(c) { c } else { '_' }).collect();
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{plain}_{hash:08x}")
}
