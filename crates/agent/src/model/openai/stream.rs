//! Understands an answer of chat completions that comes in pieces.
//!
//! Servers differ most in how they send calls: with an index, with the same one for all, without; with the id once, in each piece, or
//! never. A piece belongs to the call its index names, unless it begins another one.

use serde_json::Value;
use toolhub_net::{Secret, SseEvent};

use super::{
    super::{
        Reply, Usage,
        attempt_error::{self, AttemptError},
        exchange::StreamDecoder,
        tool_calls::{self, MAX_CALLS, RawArguments, RawToolCall},
    },
    response,
};

/// What has come so far.
#[derive(Debug, Default)]
pub(in crate::model) struct ChunkDecoder {
    text: String,
    reasoning: String,
    refused: bool,
    calls: Vec<PartialToolCall>,
    /// The one call that older servers know.
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
        say: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, AttemptError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(false);
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        let chunk: Value =
            serde_json::from_str(data).map_err(|_| response::malformed_response("a piece of it is not JSON"))?;
        let wrong = chunk.get("error").is_some_and(|error| !error.is_null());
        if wrong || event.name == "error" || chunk.get("object").is_some_and(|object| object == "error") {
            return Err(attempt_error::from_error_event(&chunk, key));
        }
        if let Some(usage) = response::parse_usage(&chunk) {
            self.usage = usage;
        }
        // The piece that tells the usage has no choices.
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(false) };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.reason = Some(reason.to_owned());
        }
        if let Some(delta) = choice.get("delta") {
            self.apply_delta(delta, say)?;
        }
        Ok(false)
    }

    fn finish(mut self) -> Result<Reply, AttemptError> {
        if !self.done && self.reason.is_none() {
            return Err(response::malformed_response("it was cut off before its end"));
        }
        if self.calls.iter().all(|one| one.index.is_some()) {
            self.calls.sort_by_key(|one| one.index);
        }
        let only = self.legacy_call.filter(|_| self.calls.is_empty());
        let calls = self.calls.into_iter().map(|one| one.call).chain(only);
        let reply =
            response::build_reply(self.text, self.refused, calls.collect(), self.reason.as_deref(), self.usage)?;
        Ok(Reply { reasoning: self.reasoning, ..reply })
    }
}

impl ChunkDecoder {
    fn apply_delta(&mut self, delta: &Value, say: &mut (dyn FnMut(&str) + Send)) -> Result<(), AttemptError> {
        let refusal = response::text(delta.get("refusal"));
        self.refused |= !refusal.is_empty();
        self.reasoning.push_str(response::text(delta.get("reasoning_content")));
        for text in [response::content_text(delta.get("content")).as_str(), refusal] {
            self.text.push_str(text);
            say(text);
        }
        for piece in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let id = response::text(piece.get("id"));
            let name = response::text(piece.pointer("/function/name"));
            let index = piece.get("index").and_then(Value::as_u64);
            let arguments = piece.pointer("/function/arguments").filter(|json| !json.is_null() && *json != "");
            let may_begin = !name.is_empty() && (!id.is_empty() || arguments.is_some());
            let call = self.call_for_chunk(index, id, may_begin)?;
            if call.id.is_empty() {
                call.id.push_str(id);
            }
            append_chunk(call, name, arguments);
            call.extra = response::extra_content(piece).or(call.extra.take());
        }
        if let Some(piece) = delta.get("function_call").filter(|piece| piece.is_object()) {
            let arguments = piece.get("arguments").filter(|json| !json.is_null());
            append_chunk(self.legacy_call.get_or_insert_default(), response::text(piece.get("name")), arguments);
        }
        Ok(())
    }

    /// The call a piece belongs to.
    fn call_for_chunk(
        &mut self,
        index: Option<u64>,
        id: &str,
        may_begin: bool,
    ) -> Result<&mut RawToolCall, AttemptError> {
        let known = match index {
            // The newest of this index: some give all calls the same one.
            Some(_) => self.calls.iter().rposition(|one| one.index == index),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|one| one.call.id == id),
        };
        // Some give all calls the same index and no id: there a call is over when its arguments are whole.
        let over = |one: &PartialToolCall| match id.is_empty() || one.call.id.is_empty() {
            true => one.call.arguments.is_complete(),
            false => one.call.id != id,
        };
        let another = |one: &PartialToolCall| may_begin && over(one);
        let known = known.filter(|&at| !another(&self.calls[at]));
        let at = match known {
            Some(at) => at,
            None if self.calls.len() == MAX_CALLS => return Err(tool_calls::too_many_calls()),
            None => {
                self.calls.push(PartialToolCall { index, call: RawToolCall::default() });
                self.calls.len() - 1
            }
        };
        Ok(&mut self.calls[at].call)
    }
}

/// Adds a piece to a call.
fn append_chunk(call: &mut RawToolCall, name: &str, arguments: Option<&Value>) {
    // Some send the name with every piece, others in pieces.
    if call.tool != name {
        call.tool.push_str(name);
    }
    match (&mut call.arguments, arguments) {
        (_, None) => {}
        (RawArguments::Text(text), Some(Value::String(more))) => text.push_str(more),
        (arguments, Some(json)) => *arguments = RawArguments::Json(json.clone()),
    }
}
