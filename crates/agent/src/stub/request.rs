//! Parses requests to the scripted model in either wire format, and rejects what the providers reject.
//!
//! In: the body of a request. Out: a conversation, or an error. Real providers return 400 for a call without a result
//! or a result without a call; a stub that did not would hide exactly these mistakes.

mod anthropic;
mod openai;

use std::collections::HashMap;

use serde_json::Value;
use smol_str::SmolStr;

use crate::{
    message::{CallResult, Message, ToolCall},
    script::Conversation,
};
pub(super) use anthropic::parse_anthropic;
pub(super) use openai::parse_openai;

/// A parsed request.
#[derive(Debug, PartialEq)]
pub(super) struct ModelRequest {
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether a streamed response reports its usage.
    pub(super) include_usage: bool,
    pub(super) conversation: Conversation,
    /// The tools of the request, to estimate their tokens.
    pub(super) tools: Value,
}

/// Why a request is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestError(pub(super) String);

fn reject<T>(reason: impl Into<String>) -> Result<T, RequestError> {
    Err(RequestError(reason.into()))
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn list<'a>(body: &'a Value, name: &str) -> Result<&'a [Value], RequestError> {
    match body.get(name) {
        Some(Value::Array(list)) => Ok(list),
        _ => reject(format!("`{name}` is missing or not a list")),
    }
}

/// Reads the fields that both formats share.
fn build_request(body: &Value, conversation: Conversation, usage: bool) -> Result<ModelRequest, RequestError> {
    let Some(model) = text(body, "model") else { return reject("`model` is missing") };
    let stream = body.get("stream").and_then(Value::as_bool).unwrap_or_default();
    let tools = body.get("tools").cloned().unwrap_or_default();
    Ok(ModelRequest { model: model.to_owned(), stream, include_usage: usage, conversation, tools })
}

/// The names of the tools; an empty list is rejected.
fn tool_names(body: &Value, pointer: &str) -> Result<Vec<String>, RequestError> {
    let Some(tools) = body.get("tools") else {
        return if body.get("tool_choice").is_some() {
            reject("`tool_choice` without `tools`")
        } else {
            Ok(Vec::new())
        };
    };
    let tools = tools.as_array().filter(|tools| !tools.is_empty());
    let Some(tools) = tools else { return reject("`tools` must be a non-empty list") };
    let name = |tool: &Value| tool.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    tools.iter().map(name).collect::<Option<_>>().ok_or_else(|| RequestError(format!("a tool has no `{pointer}`")))
}

/// Builds a conversation and checks that the results of all calls follow immediately.
#[derive(Default)]
struct ConversationBuilder {
    messages: Vec<Message>,
    /// The calls without a result, by their ids.
    pending_calls: HashMap<SmolStr, SmolStr>,
}

impl ConversationBuilder {
    fn push_message(&mut self, message: Message) -> Result<(), RequestError> {
        if let Some(id) = self.pending_calls.keys().next() {
            return reject(format!("the call `{id}` is not followed by its result"));
        }
        if let Message::Assistant { calls, .. } = &message {
            self.pending_calls = calls.iter().map(|call| (call.id.clone(), call.tool.clone())).collect();
            if self.pending_calls.len() < calls.len() {
                return reject("two calls of one message have the same id");
            }
        }
        self.messages.push(message);
        Ok(())
    }

    fn push_result(&mut self, id: &str, text: String, is_error: bool) -> Result<(), RequestError> {
        let Some((id, tool)) = self.pending_calls.remove_entry(id) else {
            return reject(format!("the result `{id}` matches no call of the message before it"));
        };
        let result = CallResult { id, call_id: None, tool, text, is_error, images: Vec::new() };
        match self.messages.last_mut() {
            Some(Message::Tool { results }) => results.push(result),
            _ => self.messages.push(Message::Tool { results: vec![result] }),
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<Message>, RequestError> {
        match self.pending_calls.keys().next() {
            Some(id) => reject(format!("the call `{id}` is not followed by its result")),
            None if self.messages.is_empty() => reject("`messages` is empty"),
            None => Ok(self.messages),
        }
    }
}

fn tool_call(id: &str, tool: &str, arguments: Value) -> Result<ToolCall, RequestError> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if tool.is_empty() || tool.len() > 64 || !tool.chars().all(valid) {
        return reject(format!("`{tool}` is not a valid tool name"));
    }
    if id.is_empty() {
        return reject(format!("a call of `{tool}` has no id"));
    }
    Ok(ToolCall { id: id.into(), tool: tool.into(), arguments, malformed: None, extra: None })
}
