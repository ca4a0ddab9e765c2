//! Parses a complete response of Anthropic's messages API.

use serde_json::Value;
use toolhub_net::Secret;

use super::super::{
    Reply, StopReason, Usage,
    attempt_error::{self, AttemptError},
    provider_json::{malformed_response, text},
    tool_calls::{self, RawArguments, RawToolCall},
};

pub(super) fn parse_response(response: &Value, key: Option<&Secret>) -> Result<Reply, AttemptError> {
    if response.get("error").is_some_and(|error| !error.is_null()) {
        return Err(attempt_error::from_error_event(response, key));
    }
    let blocks =
        response.get("content").and_then(Value::as_array).ok_or_else(|| malformed_response("it has no `content`"))?;
    let (mut reply_text, mut raw_calls) = (String::new(), Vec::new());
    for block in blocks {
        match text(block.get("type")) {
            "text" => reply_text.push_str(text(block.get("text"))),
            "tool_use" => raw_calls.push(RawToolCall {
                id: text(block.get("id")).to_owned(),
                tool: text(block.get("name")).to_owned(),
                arguments: RawArguments::Json(block.get("input").cloned().unwrap_or_default()),
                extra: None,
            }),
            // Thinking blocks, and future block types.
            _ => {}
        }
    }
    let mut token_counts = TokenCounts::default();
    token_counts.update(response.get("usage"));
    build_reply(reply_text, raw_calls, response.get("stop_reason").and_then(Value::as_str), &token_counts)
}

/// Assembles a reply.
pub(super) fn build_reply(
    text: String,
    raw_calls: Vec<RawToolCall>,
    reason: Option<&str>,
    token_counts: &TokenCounts,
) -> Result<Reply, AttemptError> {
    let calls = tool_calls::to_tool_calls(raw_calls)?;
    let stop = match reason {
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
        Some("refusal") => StopReason::Refusal,
        // `pause_turn` concerns Anthropic's server-side tools, which are never offered.
        _ if calls.is_empty() => StopReason::End,
        _ => StopReason::Calls,
    };
    Ok(Reply { text, reasoning: String::new(), calls, stop, usage: token_counts.usage() })
}

/// The latest token counts; a stream reports them more than once.
#[derive(Debug, Default)]
pub(super) struct TokenCounts {
    input: u64,
    cache_creation: u64,
    cache_read: u64,
    output: u64,
}

impl TokenCounts {
    pub(super) fn update(&mut self, usage: Option<&Value>) {
        let counts = [
            ("input_tokens", &mut self.input),
            ("cache_creation_input_tokens", &mut self.cache_creation),
            ("cache_read_input_tokens", &mut self.cache_read),
            ("output_tokens", &mut self.output),
        ];
        for (name, count) in counts {
            if let Some(reported) = usage.and_then(|usage| usage.get(name)).and_then(Value::as_u64) {
                *count = reported;
            }
        }
    }

    fn usage(&self) -> Usage {
        let input = self.input.saturating_add(self.cache_creation).saturating_add(self.cache_read);
        Usage { input_tokens: input, output_tokens: self.output }
    }
}
