//! Understands an answer of chat completions that comes in pieces.
//!
//! Servers differ most in how they send calls: with an index, with the same one for all, without; with the id once, in each piece, or
//! never. A piece belongs to the call its index names, unless it begins another one.

use serde_json::Value;
use toolhub_net::{Secret, SseEvent};

use super::{
    super::{
        Reply, Usage,
        calls::{self, MOST_CALLS, Wanted, Written},
        exchange::Ear,
        trouble::{self, Failed},
    },
    read,
};

/// What has come so far.
#[derive(Debug, Default)]
pub(in crate::model) struct Pieces {
    text: String,
    reasoning: String,
    refused: bool,
    calls: Vec<Growing>,
    /// The one call that older servers know.
    only: Option<Wanted>,
    reason: Option<String>,
    usage: Usage,
    done: bool,
}

#[derive(Debug)]
struct Growing {
    index: Option<u64>,
    call: Wanted,
}

impl Ear for Pieces {
    fn hear(
        &mut self,
        event: &SseEvent,
        key: Option<&Secret>,
        say: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, Failed> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(false);
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        let chunk: Value = serde_json::from_str(data).map_err(|_| read::broken("a piece of it is not JSON"))?;
        let wrong = chunk.get("error").is_some_and(|error| !error.is_null());
        if wrong || event.name == "error" || chunk.get("object").is_some_and(|object| object == "error") {
            return Err(trouble::of_event(&chunk, key));
        }
        if let Some(usage) = read::usage(&chunk) {
            self.usage = usage;
        }
        // The piece that tells the usage has no choices.
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(false) };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.reason = Some(reason.to_owned());
        }
        if let Some(delta) = choice.get("delta") {
            self.grow(delta, say)?;
        }
        Ok(false)
    }

    fn reply(mut self) -> Result<Reply, Failed> {
        if !self.done && self.reason.is_none() {
            return Err(read::broken("it was cut off before its end"));
        }
        if self.calls.iter().all(|one| one.index.is_some()) {
            self.calls.sort_by_key(|one| one.index);
        }
        let only = self.only.filter(|_| self.calls.is_empty());
        let calls = self.calls.into_iter().map(|one| one.call).chain(only);
        let reply = read::reply(self.text, self.refused, calls.collect(), self.reason.as_deref(), self.usage)?;
        Ok(Reply { reasoning: self.reasoning, ..reply })
    }
}

impl Pieces {
    fn grow(&mut self, delta: &Value, say: &mut (dyn FnMut(&str) + Send)) -> Result<(), Failed> {
        let refusal = read::text(delta.get("refusal"));
        self.refused |= !refusal.is_empty();
        self.reasoning.push_str(read::text(delta.get("reasoning_content")));
        for text in [read::words(delta.get("content")).as_str(), refusal] {
            self.text.push_str(text);
            say(text);
        }
        for piece in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let id = read::text(piece.get("id"));
            let name = read::text(piece.pointer("/function/name"));
            let index = piece.get("index").and_then(Value::as_u64);
            let arguments = piece.pointer("/function/arguments").filter(|json| !json.is_null() && *json != "");
            let may_begin = !name.is_empty() && (!id.is_empty() || arguments.is_some());
            let call = self.call(index, id, may_begin)?;
            if call.id.is_empty() {
                call.id.push_str(id);
            }
            add(call, name, arguments);
            call.extra = read::extra(piece).or(call.extra.take());
        }
        if let Some(piece) = delta.get("function_call").filter(|piece| piece.is_object()) {
            let arguments = piece.get("arguments").filter(|json| !json.is_null());
            add(self.only.get_or_insert_default(), read::text(piece.get("name")), arguments);
        }
        Ok(())
    }

    /// The call a piece belongs to.
    fn call(&mut self, index: Option<u64>, id: &str, may_begin: bool) -> Result<&mut Wanted, Failed> {
        let known = match index {
            // The newest of this index: some give all calls the same one.
            Some(_) => self.calls.iter().rposition(|one| one.index == index),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|one| one.call.id == id),
        };
        // Some give all calls the same index and no id: there a call is over when its arguments are whole.
        let over = |one: &Growing| match id.is_empty() || one.call.id.is_empty() {
            true => one.call.arguments.is_whole(),
            false => one.call.id != id,
        };
        let another = |one: &Growing| may_begin && over(one);
        let known = known.filter(|&at| !another(&self.calls[at]));
        let at = match known {
            Some(at) => at,
            None if self.calls.len() == MOST_CALLS => return Err(calls::too_many()),
            None => {
                self.calls.push(Growing { index, call: Wanted::default() });
                self.calls.len() - 1
            }
        };
        Ok(&mut self.calls[at].call)
    }
}

/// Adds a piece to a call.
fn add(call: &mut Wanted, name: &str, arguments: Option<&Value>) {
    // Some send the name with every piece, others in pieces.
    if call.tool != name {
        call.tool.push_str(name);
    }
    match (&mut call.arguments, arguments) {
        (_, None) => {}
        (Written::Text(text), Some(Value::String(more))) => text.push_str(more),
        (arguments, Some(json)) => *arguments = Written::Json(json.clone()),
    }
}
