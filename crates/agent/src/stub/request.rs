//! Understands what a scripted model is asked, in either wire format, and refuses what the providers refuse.
//!
//! In: the body of a request. Out: a conversation, or why there is none. Real providers answer 400 to a call without a result or a
//! result without a call; a stub that did not would hide just these mistakes.

mod anthropic;
mod openai;

use std::collections::HashMap;

use serde_json::Value;
use smol_str::SmolStr;

use crate::{
    message::{AskedCall, CallResult, Message},
    script::Conversation,
};
pub(super) use anthropic::parse_anthropic;
pub(super) use openai::parse_openai;

/// What was asked.
#[derive(Debug, PartialEq)]
pub(super) struct ModelRequest {
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether a streamed answer tells what it cost.
    pub(super) include_usage: bool,
    pub(super) conversation: Conversation,
    /// The tools as they were told, to count them.
    pub(super) tools: Value,
}

/// Why a question is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestError(pub(super) String);

fn reject<T>(why: impl Into<String>) -> Result<T, RequestError> {
    Err(RequestError(why.into()))
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn list<'a>(body: &'a Value, name: &str) -> Result<&'a [Value], RequestError> {
    match body.get(name) {
        Some(Value::Array(list)) => Ok(list),
        _ => reject(format!("`{name}` is missing, or is no list")),
    }
}

/// The members both formats have.
fn build_request(body: &Value, conversation: Conversation, usage: bool) -> Result<ModelRequest, RequestError> {
    let Some(model) = text(body, "model") else { return reject("`model` is missing") };
    let stream = body.get("stream").and_then(Value::as_bool).unwrap_or_default();
    let tools = body.get("tools").cloned().unwrap_or_default();
    Ok(ModelRequest { model: model.to_owned(), stream, include_usage: usage, conversation, tools })
}

/// The names of the tools; a list that is there is not empty.
fn tool_names(body: &Value, place: &str) -> Result<Vec<String>, RequestError> {
    let Some(tools) = body.get("tools") else {
        return if body.get("tool_choice").is_some() {
            reject("`tool_choice` without `tools`")
        } else {
            Ok(Vec::new())
        };
    };
    let tools = tools.as_array().filter(|tools| !tools.is_empty());
    let Some(tools) = tools else { return reject("`tools` is no list, or is empty") };
    let name = |tool: &Value| tool.pointer(place).and_then(Value::as_str).map(str::to_owned);
    tools.iter().map(name).collect::<Option<_>>().ok_or_else(|| RequestError(format!("a tool has no `{place}`")))
}

/// A conversation as it grows, in which every call is answered before anything else is said.
#[derive(Default)]
struct ConversationBuilder {
    messages: Vec<Message>,
    /// The calls without a result, by their ids.
    pending_calls: HashMap<SmolStr, SmolStr>,
}

impl ConversationBuilder {
    fn push_message(&mut self, message: Message) -> Result<(), RequestError> {
        if let Some(id) = self.pending_calls.keys().next() {
            return reject(format!("the call `{id}` has no result right after it"));
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
            return reject(format!("the result `{id}` answers no call of the message before it"));
        };
        let result = CallResult { id, call_id: None, tool, text, is_error, pictures: Vec::new() };
        match self.messages.last_mut() {
            Some(Message::Tool { results }) => results.push(result),
            _ => self.messages.push(Message::Tool { results: vec![result] }),
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<Message>, RequestError> {
        match self.pending_calls.keys().next() {
            Some(id) => reject(format!("the call `{id}` has no result right after it")),
            None if self.messages.is_empty() => reject("`messages` is empty"),
            None => Ok(self.messages),
        }
    }
}

fn tool_call(id: &str, tool: &str, arguments: Value) -> Result<AskedCall, RequestError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if tool.is_empty() || tool.len() > 64 || !tool.chars().all(legal) {
        return reject(format!("`{tool}` cannot be the name of a tool"));
    }
    if id.is_empty() {
        return reject(format!("a call of `{tool}` has no id"));
    }
    Ok(AskedCall { id: id.into(), tool: tool.into(), arguments, malformed: None, extra: None })
}
