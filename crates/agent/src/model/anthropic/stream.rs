//! Decodes a streamed response of Anthropic's messages API: blocks that start, grow by deltas and stop, by index.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhub_core::json::{self, JsonLimits};
use toolhub_net::{Secret, SseEvent};

use super::{
    super::{
        Reply,
        attempt_error::{self, AttemptError},
        exchange::StreamDecoder,
        provider_json,
        tool_calls::{self, MAX_CALLS, RawArguments, RawToolCall},
    },
    response::{self, TokenCounts},
};

/// The response so far.
#[derive(Debug, Default)]
pub(in crate::model) struct MessageDecoder {
    text: String,
    calls: BTreeMap<u64, PartialToolUse>,
    reason: Option<String>,
    token_counts: TokenCounts,
    done: bool,
}

#[derive(Debug)]
struct PartialToolUse {
    id: String,
    tool: String,
    /// The input in the block's start event; used if no deltas follow.
    initial_input: Value,
    input_json: String,
}

impl StreamDecoder for MessageDecoder {
    fn push_event(
        &mut self,
        event: &SseEvent,
        key: Option<&Secret>,
        on_text: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, AttemptError> {
        let data: Value = json::parse(event.data.as_bytes(), JsonLimits::default())
            .map_err(|_| provider_json::malformed_response("an event is not JSON"))?;
        // The `type` field is authoritative; the event name only repeats it.
        match provider_json::text(data.get("type")) {
            "message_start" => self.token_counts.update(data.pointer("/message/usage")),
            "content_block_start" => self.start_block(&data, on_text)?,
            "content_block_delta" => self.apply_delta(&data, on_text),
            "message_delta" => {
                self.token_counts.update(data.get("usage"));
                if let Some(reason) = data.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.reason = Some(reason.to_owned());
                }
            }
            "message_stop" => self.done = true,
            "error" => return Err(attempt_error::from_error_event(&data, key)),
            // Pings, ends of blocks, and future event types.
            _ => {}
        }
        Ok(self.done)
    }

    fn finish(self) -> Result<Reply, AttemptError> {
        if !self.done {
            return Err(provider_json::malformed_response("the stream ended early"));
        }
        let raw_calls = self.calls.into_values().map(|tool_use| RawToolCall {
            id: tool_use.id,
            tool: tool_use.tool,
            arguments: if tool_use.input_json.is_empty() {
                RawArguments::Json(tool_use.initial_input)
            } else {
                RawArguments::Text(tool_use.input_json)
            },
            extra: None,
        });
        response::build_reply(self.text, raw_calls.collect(), self.reason.as_deref(), &self.token_counts)
    }
}

impl MessageDecoder {
    fn start_block(&mut self, data: &Value, on_text: &mut (dyn FnMut(&str) + Send)) -> Result<(), AttemptError> {
        let Some(block) = data.get("content_block") else { return Ok(()) };
        match provider_json::text(block.get("type")) {
            "text" => self.push_text(provider_json::text(block.get("text")), on_text),
            "tool_use" => {
                if self.calls.len() == MAX_CALLS {
                    return Err(tool_calls::too_many_calls());
                }
                let tool_use = PartialToolUse {
                    id: provider_json::text(block.get("id")).to_owned(),
                    tool: provider_json::text(block.get("name")).to_owned(),
                    initial_input: block.get("input").cloned().unwrap_or_default(),
                    input_json: String::new(),
                };
                self.calls.insert(block_index(data), tool_use);
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_delta(&mut self, data: &Value, on_text: &mut (dyn FnMut(&str) + Send)) {
        let Some(delta) = data.get("delta") else { return };
        match provider_json::text(delta.get("type")) {
            "text_delta" => self.push_text(provider_json::text(delta.get("text")), on_text),
            "input_json_delta" => {
                if let Some(tool_use) = self.calls.get_mut(&block_index(data)) {
                    tool_use.input_json.push_str(provider_json::text(delta.get("partial_json")));
                }
            }
            // Thinking and signature deltas.
            _ => {}
        }
    }

    fn push_text(&mut self, text: &str, on_text: &mut (dyn FnMut(&str) + Send)) {
        self.text.push_str(text);
        on_text(text);
    }
}

fn block_index(data: &Value) -> u64 {
    data.get("index").and_then(Value::as_u64).unwrap_or_default()
}
