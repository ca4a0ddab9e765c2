//! Understands an answer of chat completions that came whole.

use serde_json::Value;
use toolhub_net::Secret;

use super::super::{
    ModelFault, Reply, Stop, Usage,
    attempt_error::{self, AttemptError},
    tool_calls::{self, RawArguments, RawToolCall},
};

/// The reply.
pub(super) fn parse_response(answer: &Value, key: Option<&Secret>) -> Result<Reply, AttemptError> {
    if answer.get("error").is_some_and(|error| !error.is_null()) {
        return Err(attempt_error::from_error_event(answer, key));
    }
    let choice = answer.pointer("/choices/0").ok_or_else(|| malformed_response("it holds no choice"))?;
    let message = choice.get("message").ok_or_else(|| malformed_response("it holds no message"))?;
    let calls = message.get("tool_calls").and_then(Value::as_array).filter(|calls| !calls.is_empty());
    let wanted: Vec<RawToolCall> = match calls {
        Some(calls) => calls
            .iter()
            .map(|call| RawToolCall {
                extra: extra_content(call),
                ..parse_call(text(call.get("id")), call.get("function"))
            })
            .collect(),
        // Older servers know one call, without an id.
        None => message
            .get("function_call")
            .filter(|call| call.is_object())
            .map(|call| parse_call("", Some(call)))
            .into_iter()
            .collect(),
    };
    let refusal = text(message.get("refusal"));
    let mut said = content_text(message.get("content"));
    said.push_str(refusal);
    let reason = choice.get("finish_reason").and_then(Value::as_str);
    let mut reply = build_reply(said, !refusal.is_empty(), wanted, reason, parse_usage(answer).unwrap_or_default())?;
    text(message.get("reasoning_content")).clone_into(&mut reply.reasoning);
    Ok(reply)
}

fn parse_call(id: &str, function: Option<&Value>) -> RawToolCall {
    let part = |name: &str| function.and_then(|function| function.get(name));
    let arguments = match part("arguments") {
        Some(Value::String(text)) => RawArguments::Text(text.clone()),
        Some(json) => RawArguments::Json(json.clone()),
        None => RawArguments::default(),
    };
    RawToolCall { id: id.to_owned(), tool: text(part("name")).to_owned(), arguments, extra: None }
}

/// What stands beside a call and must be told again with it.
pub(super) fn extra_content(call: &Value) -> Option<Value> {
    call.get("extra_content").filter(|extra| extra.is_object()).cloned()
}

/// A reply of its parts.
pub(super) fn build_reply(
    text: String,
    refused: bool,
    wanted: Vec<RawToolCall>,
    reason: Option<&str>,
    usage: Usage,
) -> Result<Reply, AttemptError> {
    let calls = tool_calls::to_tool_calls(wanted)?;
    let stop = match reason {
        // DeepSeek says so when it had to stop for want of machines.
        Some("insufficient_system_resource") => {
            return Err(AttemptError::transient(
                ModelFault::Failed,
                "the model's provider broke its answer off: it is overloaded",
            ));
        }
        Some("length") => Stop::Length,
        Some("content_filter") => Stop::Refusal,
        _ if refused => Stop::Refusal,
        // Many say `stop`, or nothing at all, and ask for calls.
        _ if calls.is_empty() => Stop::End,
        _ => Stop::Calls,
    };
    Ok(Reply { text, reasoning: String::new(), calls, stop, usage })
}

/// What it cost, where that is said. What came from a cache is part of what was read.
pub(super) fn parse_usage(answer: &Value) -> Option<Usage> {
    let usage = answer.get("usage").filter(|usage| usage.is_object())?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
    Some(Usage { input_tokens: count("prompt_tokens"), output_tokens: count("completion_tokens") })
}

/// A text, or the texts of a list of parts.
pub(super) fn content_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().map(|part| text(part.get("text"))).collect(),
        _ => String::new(),
    }
}

pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn malformed_response(why: &str) -> AttemptError {
    AttemptError::transient(ModelFault::Broken, format!("the model's answer cannot be understood: {why}"))
}
