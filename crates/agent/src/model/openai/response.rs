//! Parses a complete response of OpenAI's chat completions API.

use serde_json::Value;
use toolhub_net::Secret;

use super::super::{
    ModelFault, Reply, StopReason, Usage,
    attempt_error::{self, AttemptError},
    provider_json::{malformed_response, text},
    tool_calls::{self, RawArguments, RawToolCall},
};

pub(super) fn parse_response(response: &Value, key: Option<&Secret>) -> Result<Reply, AttemptError> {
    if response.get("error").is_some_and(|error| !error.is_null()) {
        return Err(attempt_error::from_error_event(response, key));
    }
    let choice = response.pointer("/choices/0").ok_or_else(|| malformed_response("it has no `choices`"))?;
    let message = choice.get("message").ok_or_else(|| malformed_response("its choice has no `message`"))?;
    let calls = message.get("tool_calls").and_then(Value::as_array).filter(|calls| !calls.is_empty());
    let raw_calls: Vec<RawToolCall> = match calls {
        Some(calls) => calls
            .iter()
            .map(|call| RawToolCall {
                extra: extra_content(call),
                ..parse_call(text(call.get("id")), call.get("function"))
            })
            .collect(),
        // The deprecated `function_call`: a single call without an id.
        None => message
            .get("function_call")
            .filter(|call| call.is_object())
            .map(|call| parse_call("", Some(call)))
            .into_iter()
            .collect(),
    };
    let refusal = text(message.get("refusal"));
    let mut reply_text = content_text(message.get("content"));
    reply_text.push_str(refusal);
    let reason = choice.get("finish_reason").and_then(Value::as_str);
    let usage = parse_usage(response).unwrap_or_default();
    let mut reply = build_reply(reply_text, !refusal.is_empty(), raw_calls, reason, usage)?;
    text(message.get("reasoning_content")).clone_into(&mut reply.reasoning);
    Ok(reply)
}

fn parse_call(id: &str, function: Option<&Value>) -> RawToolCall {
    let field = |name: &str| function.and_then(|function| function.get(name));
    let arguments = match field("arguments") {
        Some(Value::String(text)) => RawArguments::Text(text.clone()),
        Some(json) => RawArguments::Json(json.clone()),
        None => RawArguments::default(),
    };
    RawToolCall { id: id.to_owned(), tool: text(field("name")).to_owned(), arguments, extra: None }
}

/// Extra data of a call that must be sent back with it.
pub(super) fn extra_content(call: &Value) -> Option<Value> {
    call.get("extra_content").filter(|extra| extra.is_object()).cloned()
}

/// Assembles a reply.
pub(super) fn build_reply(
    text: String,
    refused: bool,
    raw_calls: Vec<RawToolCall>,
    reason: Option<&str>,
    usage: Usage,
) -> Result<Reply, AttemptError> {
    let calls = tool_calls::to_tool_calls(raw_calls)?;
    let stop = match reason {
        // DeepSeek's finish reason when its servers are overloaded.
        Some("insufficient_system_resource") => {
            return Err(AttemptError::transient(
                ModelFault::Failed,
                "the model provider aborted its response: it is overloaded",
            ));
        }
        Some("length") => StopReason::Length,
        Some("content_filter") => StopReason::Refusal,
        _ if refused => StopReason::Refusal,
        // Many servers send `stop`, or no reason, with a reply that has calls.
        _ if calls.is_empty() => StopReason::End,
        _ => StopReason::Calls,
    };
    Ok(Reply { text, reasoning: String::new(), calls, stop, usage })
}

/// The token usage, if it is reported. Cached input tokens are part of the input.
pub(super) fn parse_usage(response: &Value) -> Option<Usage> {
    let usage = response.get("usage").filter(|usage| usage.is_object())?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
    Some(Usage { input_tokens: count("prompt_tokens"), output_tokens: count("completion_tokens") })
}

/// The text of a string or of a list of parts.
pub(super) fn content_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().map(|part| text(part.get("text"))).collect(),
        _ => String::new(),
    }
}
