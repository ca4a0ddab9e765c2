//! Says a prompt as a request for messages.
//!
//! Anthropic refuses texts without a letter in them, wants ids of a few letters only, and takes what a person says and what came of
//! calls in one message of the user.

use serde_json::{Value, json};

use super::super::{Prompt, sanitize};
use crate::message::{AskedCall, CallResult, Message, Picture};

/// The pictures it can see.
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
            Some((last, before)) if *last == role => before.extend(blocks),
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

fn tool_use_block(call: &AskedCall) -> Value {
    json!({"type": "tool_use", "id": sanitize_id(&call.id), "name": sanitize::tool_name(&call.tool), "input": call.arguments})
}

fn tool_result_block(result: &CallResult) -> Value {
    let (seen, unseen): (Vec<_>, Vec<_>) =
        result.pictures.iter().partition(|picture| SUPPORTED_IMAGE_TYPES.contains(&picture.mime_type.as_str()));
    let mut words = result.text.clone();
    for _ in unseen {
        sanitize::push_line(&mut words, sanitize::IMAGE_OMITTED);
    }
    let picture = |picture: &Picture| json!({"type": "image", "source": {"type": "base64", "media_type": picture.mime_type, "data": picture.data}});
    let content: Vec<Value> = text_block(&words).into_iter().chain(seen.into_iter().map(picture)).collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": sanitize_id(&result.id)});
    if !content.is_empty() {
        block["content"] = content.into();
    }
    if result.is_error {
        block["is_error"] = true.into();
    }
    block
}

/// An id it takes. One from another provider may have letters in it that are refused here; then a number of its own keeps it apart from
/// others that look alike without them.
fn sanitize_id(id: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if id.chars().all(legal) {
        return id.to_owned();
    }
    let plain: String = id.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    let number = id.bytes().fold(0x811c_9dc5_u32, |number, byte| (number ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{plain}_{number:08x}")
}
