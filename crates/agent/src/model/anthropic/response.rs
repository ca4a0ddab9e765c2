//! Understands an answer of messages that came whole.

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
    let blocks =
        answer.get("content").and_then(Value::as_array).ok_or_else(|| malformed_response("it holds no content"))?;
    let (mut said, mut wanted) = (String::new(), Vec::new());
    for block in blocks {
        match text(block.get("type")) {
            "text" => said.push_str(text(block.get("text"))),
            "tool_use" => wanted.push(RawToolCall {
                id: text(block.get("id")).to_owned(),
                tool: text(block.get("name")).to_owned(),
                arguments: RawArguments::Json(block.get("input").cloned().unwrap_or_default()),
                extra: None,
            }),
            // What it thought, and blocks to come.
            _ => {}
        }
    }
    let mut cost = TokenCounts::default();
    cost.update(answer.get("usage"));
    build_reply(said, wanted, answer.get("stop_reason").and_then(Value::as_str), &cost)
}

/// A reply of its parts.
pub(super) fn build_reply(
    text: String,
    wanted: Vec<RawToolCall>,
    reason: Option<&str>,
    cost: &TokenCounts,
) -> Result<Reply, AttemptError> {
    let calls = tool_calls::to_tool_calls(wanted)?;
    let stop = match reason {
        Some("max_tokens" | "model_context_window_exceeded") => Stop::Length,
        Some("refusal") => Stop::Refusal,
        // `pause_turn` is about tools that Anthropic runs itself; none of these is ever offered.
        _ if calls.is_empty() => Stop::End,
        _ => Stop::Calls,
    };
    Ok(Reply { text, reasoning: String::new(), calls, stop, usage: cost.usage() })
}

/// The newest of each number; a stream tells them more than once.
#[derive(Debug, Default)]
pub(super) struct TokenCounts {
    input: u64,
    cache_creation: u64,
    cache_read: u64,
    output: u64,
}

impl TokenCounts {
    pub(super) fn update(&mut self, usage: Option<&Value>) {
        let numbers = [
            ("input_tokens", &mut self.input),
            ("cache_creation_input_tokens", &mut self.cache_creation),
            ("cache_read_input_tokens", &mut self.cache_read),
            ("output_tokens", &mut self.output),
        ];
        for (name, number) in numbers {
            if let Some(told) = usage.and_then(|usage| usage.get(name)).and_then(Value::as_u64) {
                *number = told;
            }
        }
    }

    fn usage(&self) -> Usage {
        let input = self.input.saturating_add(self.cache_creation).saturating_add(self.cache_read);
        Usage { input_tokens: input, output_tokens: self.output }
    }
}

pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn malformed_response(why: &str) -> AttemptError {
    AttemptError::transient(ModelFault::Broken, format!("the model's answer cannot be understood: {why}"))
}
