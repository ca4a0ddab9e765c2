//! Understands an answer of messages that comes in pieces: blocks that begin, grow and stop, each with its index.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhub_net::{Secret, SseEvent};

use super::{
    super::{
        Reply,
        calls::{self, MOST_CALLS, Wanted, Written},
        exchange::Ear,
        trouble::{self, Failed},
    },
    read::{self, Cost},
};

/// What has come so far.
#[derive(Debug, Default)]
pub(in crate::model) struct Pieces {
    text: String,
    calls: BTreeMap<u64, Growing>,
    reason: Option<String>,
    cost: Cost,
    done: bool,
}

#[derive(Debug)]
struct Growing {
    id: String,
    tool: String,
    /// What the block began with; it counts where no pieces follow.
    whole: Value,
    pieces: String,
}

impl Ear for Pieces {
    fn hear(
        &mut self,
        event: &SseEvent,
        key: Option<&Secret>,
        say: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, Failed> {
        let data: Value = serde_json::from_str(&event.data).map_err(|_| read::broken("a piece of it is not JSON"))?;
        // The type in the data is what counts; the event's name only repeats it.
        match read::text(data.get("type")) {
            "message_start" => self.cost.hear(data.pointer("/message/usage")),
            "content_block_start" => self.begin(&data, say)?,
            "content_block_delta" => self.grow(&data, say),
            "message_delta" => {
                self.cost.hear(data.get("usage"));
                if let Some(reason) = data.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.reason = Some(reason.to_owned());
                }
            }
            "message_stop" => self.done = true,
            "error" => return Err(trouble::of_event(&data, key)),
            // Signs of life, ends of blocks, and events to come.
            _ => {}
        }
        Ok(self.done)
    }

    fn reply(self) -> Result<Reply, Failed> {
        if !self.done {
            return Err(read::broken("it was cut off before its end"));
        }
        let wanted = self.calls.into_values().map(|one| Wanted {
            id: one.id,
            tool: one.tool,
            arguments: if one.pieces.is_empty() { Written::Json(one.whole) } else { Written::Text(one.pieces) },
            extra: None,
        });
        read::reply(self.text, wanted.collect(), self.reason.as_deref(), &self.cost)
    }
}

impl Pieces {
    fn begin(&mut self, data: &Value, say: &mut (dyn FnMut(&str) + Send)) -> Result<(), Failed> {
        let Some(block) = data.get("content_block") else { return Ok(()) };
        match read::text(block.get("type")) {
            "text" => self.add(read::text(block.get("text")), say),
            "tool_use" => {
                if self.calls.len() == MOST_CALLS {
                    return Err(calls::too_many());
                }
                let one = Growing {
                    id: read::text(block.get("id")).to_owned(),
                    tool: read::text(block.get("name")).to_owned(),
                    whole: block.get("input").cloned().unwrap_or_default(),
                    pieces: String::new(),
                };
                self.calls.insert(index(data), one);
            }
            _ => {}
        }
        Ok(())
    }

    fn grow(&mut self, data: &Value, say: &mut (dyn FnMut(&str) + Send)) {
        let Some(delta) = data.get("delta") else { return };
        match read::text(delta.get("type")) {
            "text_delta" => self.add(read::text(delta.get("text")), say),
            "input_json_delta" => {
                if let Some(one) = self.calls.get_mut(&index(data)) {
                    one.pieces.push_str(read::text(delta.get("partial_json")));
                }
            }
            // What it thinks, and the seals on that.
            _ => {}
        }
    }

    fn add(&mut self, text: &str, say: &mut (dyn FnMut(&str) + Send)) {
        self.text.push_str(text);
        say(text);
    }
}

fn index(data: &Value) -> u64 {
    data.get("index").and_then(Value::as_u64).unwrap_or_default()
}
