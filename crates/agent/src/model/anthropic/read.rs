//! Understands an answer of messages that came whole.

use serde_json::Value;
use toolhub_net::Secret;

use super::super::{
    ModelFault, Reply, Stop, Usage,
    calls::{self, Wanted, Written},
    trouble::{self, Failed},
};

/// The reply.
pub(super) fn whole(answer: &Value, key: Option<&Secret>) -> Result<Reply, Failed> {
    if answer.get("error").is_some_and(|error| !error.is_null()) {
        return Err(trouble::of_event(answer, key));
    }
    let blocks = answer.get("content").and_then(Value::as_array).ok_or_else(|| broken("it holds no content"))?;
    let (mut said, mut wanted) = (String::new(), Vec::new());
    for block in blocks {
        match text(block.get("type")) {
            "text" => said.push_str(text(block.get("text"))),
            "tool_use" => wanted.push(Wanted {
                id: text(block.get("id")).to_owned(),
                tool: text(block.get("name")).to_owned(),
                arguments: Written::Json(block.get("input").cloned().unwrap_or_default()),
                extra: None,
            }),
            // What it thought, and blocks to come.
            _ => {}
        }
    }
    let mut cost = Cost::default();
    cost.hear(answer.get("usage"));
    reply(said, wanted, answer.get("stop_reason").and_then(Value::as_str), &cost)
}

/// A reply of its parts.
pub(super) fn reply(text: String, wanted: Vec<Wanted>, reason: Option<&str>, cost: &Cost) -> Result<Reply, Failed> {
    let calls = calls::calls(wanted)?;
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
pub(super) struct Cost {
    fresh: u64,
    kept: u64,
    cached: u64,
    output: u64,
}

impl Cost {
    pub(super) fn hear(&mut self, usage: Option<&Value>) {
        let numbers = [
            ("input_tokens", &mut self.fresh),
            ("cache_creation_input_tokens", &mut self.kept),
            ("cache_read_input_tokens", &mut self.cached),
            ("output_tokens", &mut self.output),
        ];
        for (name, number) in numbers {
            if let Some(told) = usage.and_then(|usage| usage.get(name)).and_then(Value::as_u64) {
                *number = told;
            }
        }
    }

    fn usage(&self) -> Usage {
        let input = self.fresh.saturating_add(self.kept).saturating_add(self.cached);
        Usage { input_tokens: input, output_tokens: self.output }
    }
}

pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn broken(why: &str) -> Failed {
    Failed::for_now(ModelFault::Broken, format!("the model's answer cannot be understood: {why}"))
}
