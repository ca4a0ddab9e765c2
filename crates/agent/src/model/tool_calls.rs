//! Normalizes the tool calls of a model reply.
//!
//! In: id, name and raw arguments of each call, as received. Out: calls that keep the promises of [`super::Model`]:
//! unique ids, and arguments that are an object.

use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use smol_str::{SmolStr, format_smolstr};
use toolhub_core::json::{self, JsonLimits};

use super::{ModelFault, attempt_error::AttemptError};
use crate::message::ToolCall;

/// Malformed arguments are truncated to this.
const MAX_MALFORMED_CHARS: usize = 4096;
/// Tool names and ids are truncated to this; no valid one is longer.
const MAX_NAME_CHARS: usize = 256;

/// Larger extra data of a call is dropped.
const MAX_EXTRA_BYTES: usize = 64 * 1024;

/// A reply with more calls than this is rejected.
pub(super) const MAX_CALLS: usize = 1024;

/// A call, as received.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RawToolCall {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: RawArguments,
    /// Extra data of the provider that must be sent back.
    pub(super) extra: Option<Value>,
}

/// Arguments, as received.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RawArguments {
    /// Text that should be JSON.
    Text(String),
    /// Parsed JSON.
    Json(Value),
}

impl Default for RawArguments {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// The error for a reply with too many calls.
pub(super) fn too_many_calls() -> AttemptError {
    AttemptError::transient(ModelFault::Broken, "cannot parse the model's response: too many tool calls")
}

/// The calls, in their order.
///
/// # Errors
/// When there are too many of them.
pub(super) fn to_tool_calls(raw_calls: Vec<RawToolCall>) -> Result<Vec<ToolCall>, AttemptError> {
    if raw_calls.len() > MAX_CALLS {
        return Err(too_many_calls());
    }
    let mut taken: HashSet<SmolStr> = raw_calls.iter().map(|call| truncate_name(&call.id)).collect();
    let mut seen = HashSet::new();
    let mut unique_id = |id: &str| {
        let id = truncate_name(id);
        if !id.is_empty() && seen.insert(id.clone()) {
            return id;
        }
        let mut number = seen.len();
        loop {
            let id = if id.is_empty() { format_smolstr!("call_{number}") } else { format_smolstr!("{id}_{number}") };
            if taken.insert(id.clone()) {
                seen.insert(id.clone());
                return id;
            }
            number += 1;
        }
    };
    let tool_call = |call: RawToolCall| {
        let (arguments, malformed) = call.arguments.parse();
        let extra = call.extra.filter(|extra| extra.to_string().len() <= MAX_EXTRA_BYTES);
        ToolCall { id: unique_id(&call.id), tool: truncate_name(call.tool.trim()), arguments, malformed, extra }
    };
    Ok(raw_calls.into_iter().map(tool_call).collect())
}

impl RawArguments {
    /// Whether the arguments are a complete JSON object, which nothing can follow.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Text(text) => text.trim_end().ends_with('}') && is_object(text),
            Self::Json(_) => true,
        }
    }

    /// The arguments; or an empty object, and the malformed text.
    fn parse(self) -> (Value, Option<String>) {
        let empty = || Value::Object(Map::new());
        match self {
            Self::Json(Value::Null) => (empty(), None),
            Self::Json(Value::Object(object)) => (object.into(), None),
            Self::Json(other) => (empty(), Some(truncate_malformed(&other.to_string()))),
            Self::Text(text) if text.trim().is_empty() => (empty(), None),
            Self::Text(text) => match json::parse::<Value>(text.as_bytes(), JsonLimits::default()) {
                Ok(Value::Object(object)) => (object.into(), None),
                // Some servers send `null` for a tool without arguments.
                Ok(Value::Null) => (empty(), None),
                _ => (empty(), Some(truncate_malformed(&text))),
            },
        }
    }
}

/// Whether a text is a complete JSON object.
fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn truncate_name(text: &str) -> SmolStr {
    text.chars().take(MAX_NAME_CHARS).collect()
}

fn truncate_malformed(text: &str) -> String {
    match text.char_indices().nth(MAX_MALFORMED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw_call(id: &str, text: &str) -> RawToolCall {
        RawToolCall { id: id.into(), tool: "add".into(), arguments: RawArguments::Text(text.into()), extra: None }
    }

    #[test]
    fn every_call_has_an_id_of_its_own_also_beside_ids_that_look_made_up() {
        let ids = |ids: &[&str]| -> Vec<String> {
            let calls = to_tool_calls(ids.iter().map(|id| raw_call(id, "")).collect()).unwrap();
            calls.into_iter().map(|call| call.id.to_string()).collect()
        };
        assert_eq!(ids(&["a", "b"]), ["a", "b"]);
        assert_eq!(ids(&["a", "a", "a"]), ["a", "a_1", "a_2"]);
        assert_eq!(ids(&["", "", "call_0"]), ["call_1", "call_2", "call_0"]);
        assert_eq!(ids(&["a", "a", "a_1"]), ["a", "a_2", "a_1"]);
    }

    #[test]
    fn arguments_are_an_object_or_said_to_be_none() {
        let read = |text: &str| {
            let call = to_tool_calls(vec![raw_call("a", text)]).unwrap().remove(0);
            (call.arguments, call.malformed)
        };
        assert_eq!(read(r#"{"a": 1}"#), (json!({"a": 1}), None));
        assert_eq!(read(" "), (json!({}), None));
        assert_eq!(read("null"), (json!({}), None));
        assert_eq!(read(r#"{"a": 1"#), (json!({}), Some(r#"{"a": 1"#.into())));
        assert_eq!(read("[1]"), (json!({}), Some("[1]".into())));
        let (_, malformed) = read(&"é".repeat(10_000));
        assert_eq!(malformed.unwrap().chars().count(), MAX_MALFORMED_CHARS + 1);
    }
}
