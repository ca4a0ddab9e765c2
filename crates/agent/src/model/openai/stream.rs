//! Decodes a streamed response of OpenAI's chat completions API.
//!
//! Servers differ most in how they stream calls: with an index, with the same index for all, or without one; with the
//! id once, in each chunk, or never. A chunk belongs to the call with its index, unless it starts another one.

use serde_json::Value;
use toolhub_core::json::{self, JsonLimits};
use toolhub_net::{Secret, SseEvent};

use super::{
    super::{
        Reply, Usage,
        attempt_error::{self, AttemptError},
        exchange::StreamDecoder,
        provider_json,
        tool_calls::{self, MAX_CALLS, RawArguments, RawToolCall},
    },
    response,
};

/// The response so far.
#[derive(Debug, Default)]
pub(in crate::model) struct ChunkDecoder {
    text: String,
    reasoning: String,
    refused: bool,
    calls: Vec<PartialToolCall>,
    /// The deprecated `function_call`.
    legacy_call: Option<RawToolCall>,
    reason: Option<String>,
    usage: Usage,
    done: bool,
}

#[derive(Debug)]
struct PartialToolCall {
    index: Option<u64>,
    call: RawToolCall,
}

impl StreamDecoder for ChunkDecoder {
    fn push_event(
        &mut self,
        event: &SseEvent,
        key: Option<&Secret>,
        on_text: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, AttemptError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(false);
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        let chunk: Value = json::parse(data.as_bytes(), JsonLimits::default())
            .map_err(|_| provider_json::malformed_response("a chunk is not JSON"))?;
        let has_error = chunk.get("error").is_some_and(|error| !error.is_null());
        if has_error || event.name == "error" || chunk.get("object").is_some_and(|object| object == "error") {
            return Err(attempt_error::from_error_event(&chunk, key));
        }
        if let Some(usage) = response::parse_usage(&chunk) {
            self.usage = usage;
        }
        // The chunk that reports the usage has no choices.
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(false) };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.reason = Some(reason.to_owned());
        }
        if let Some(delta) = choice.get("delta") {
            self.apply_delta(delta, on_text)?;
        }
        Ok(false)
    }

    fn finish(mut self) -> Result<Reply, AttemptError> {
        if !self.done && self.reason.is_none() {
            return Err(provider_json::malformed_response("the stream ended early"));
        }
        if self.calls.iter().all(|partial| partial.index.is_some()) {
            self.calls.sort_by_key(|partial| partial.index);
        }
        let legacy_call = self.legacy_call.filter(|_| self.calls.is_empty());
        let calls = self.calls.into_iter().map(|partial| partial.call).chain(legacy_call);
        let reply =
            response::build_reply(self.text, self.refused, calls.collect(), self.reason.as_deref(), self.usage)?;
        Ok(Reply { reasoning: self.reasoning, ..reply })
    }
}

impl ChunkDecoder {
    fn apply_delta(&mut self, delta: &Value, on_text: &mut (dyn FnMut(&str) + Send)) -> Result<(), AttemptError> {
        let refusal = provider_json::text(delta.get("refusal"));
        self.refused |= !refusal.is_empty();
        self.reasoning.push_str(provider_json::text(delta.get("reasoning_content")));
        for text in [response::content_text(delta.get("content")).as_str(), refusal] {
            self.text.push_str(text);
            on_text(text);
        }
        for chunk in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let id = provider_json::text(chunk.get("id"));
            let name = provider_json::text(chunk.pointer("/function/name"));
            let index = chunk.get("index").and_then(Value::as_u64);
            let arguments = chunk.pointer("/function/arguments").filter(|json| !json.is_null() && *json != "");
            let may_start = !name.is_empty() && (!id.is_empty() || arguments.is_some());
            let call = self.call_for_chunk(index, id, may_start)?;
            if call.id.is_empty() {
                call.id.push_str(id);
            }
            append_chunk(call, name, arguments);
            call.extra = response::extra_content(chunk).or(call.extra.take());
        }
        if let Some(chunk) = delta.get("function_call").filter(|chunk| chunk.is_object()) {
            let arguments = chunk.get("arguments").filter(|json| !json.is_null());
            append_chunk(self.legacy_call.get_or_insert_default(), provider_json::text(chunk.get("name")), arguments);
        }
        Ok(())
    }

    /// The call that a chunk belongs to.
    fn call_for_chunk(
        &mut self,
        index: Option<u64>,
        id: &str,
        may_start: bool,
    ) -> Result<&mut RawToolCall, AttemptError> {
        let position = match index {
            // The latest with this index: some servers give all calls the same one.
            Some(_) => self.calls.iter().rposition(|partial| partial.index == index),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|partial| partial.call.id == id),
        };
        // Some servers give all calls the same index and no id: then a call ends when its arguments are complete.
        let has_ended = |partial: &PartialToolCall| match id.is_empty() || partial.call.id.is_empty() {
            true => partial.call.arguments.is_complete(),
            false => partial.call.id != id,
        };
        let starts_new = |partial: &PartialToolCall| may_start && has_ended(partial);
        let position = position.filter(|&position| !starts_new(&self.calls[position]));
        let position = match position {
            Some(position) => position,
            None if self.calls.len() == MAX_CALLS => return Err(tool_calls::too_many_calls()),
            None => {
                self.calls.push(PartialToolCall { index, call: RawToolCall::default() });
                self.calls.len() - 1
            }
        };
        Ok(&mut self.calls[position].call)
    }
}

/// Adds a chunk to a call.
fn append_chunk(call: &mut RawToolCall, name: &str, arguments: Option<&Value>) {
    // Some servers send the name with every chunk, others split it.
    if call.tool != name {
        call.tool.push_str(name);
    }
    match (&mut call.arguments, arguments) {
        (_, None) => {}
        (RawArguments::Text(text), Some(Value::String(more))) => text.push_str(more),
        (arguments, Some(json)) => *arguments = RawArguments::Json(json.clone()),
    }
}
