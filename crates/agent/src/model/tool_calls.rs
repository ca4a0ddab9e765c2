//! Makes calls of what a model wrote.
//!
//! In: an id, a name and a text of arguments for each call, as they came. Out: calls that keep what [`super::Model`] promises: ids of
//! their own, arguments that are an object.

use std::collections::HashSet;

use serde_json::{Map, Value};
use smol_str::{SmolStr, format_smolstr};

use super::{ModelFault, attempt_error::AttemptError};
use crate::message::AskedCall;

/// So much of arguments that cannot be read is kept.
const MAX_MALFORMED_CHARS: usize = 4096;
/// No name of a tool and no id is longer; what a model wrote beyond it is of no use to anybody.
const MAX_NAME_CHARS: usize = 256;

/// What stands beside a call and is longer is not kept.
const MAX_EXTRA_BYTES: usize = 64 * 1024;

/// More calls than this in one answer are no calls any more.
pub(super) const MAX_CALLS: usize = 1024;

/// A call, as it came.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RawToolCall {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: RawArguments,
    /// What stands beside it and must be told again.
    pub(super) extra: Option<Value>,
}

/// Arguments, as they came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RawArguments {
    /// A text that should be JSON.
    Text(String),
    /// JSON already.
    Json(Value),
}

impl Default for RawArguments {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// An answer that asks for more calls than anybody could make.
pub(super) fn too_many_calls() -> AttemptError {
    AttemptError::transient(ModelFault::Broken, "the model's answer cannot be understood: it asks for too many calls")
}

/// The calls, in their order.
///
/// # Errors
/// When there are too many of them.
pub(super) fn to_tool_calls(wanted: Vec<RawToolCall>) -> Result<Vec<AskedCall>, AttemptError> {
    if wanted.len() > MAX_CALLS {
        return Err(too_many_calls());
    }
    let mut taken: HashSet<SmolStr> = wanted.iter().map(|call| truncate_name(&call.id)).collect();
    let mut seen = HashSet::new();
    let mut own_id = |id: &str| {
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
    let asked = |call: RawToolCall| {
        let (arguments, malformed) = call.arguments.parse();
        let extra = call.extra.filter(|extra| extra.to_string().len() <= MAX_EXTRA_BYTES);
        AskedCall { id: own_id(&call.id), tool: truncate_name(call.tool.trim()), arguments, malformed, extra }
    };
    Ok(wanted.into_iter().map(asked).collect())
}

impl RawArguments {
    /// Whether nothing can follow: an object that has come to its end.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Text(text) => text.trim_end().ends_with('}') && serde_json::from_str::<Map<_, _>>(text).is_ok(),
            Self::Json(_) => true,
        }
    }

    /// The arguments; or none, and what was written instead.
    fn parse(self) -> (Value, Option<String>) {
        let none = || Value::Object(Map::new());
        match self {
            Self::Json(Value::Null) => (none(), None),
            Self::Json(Value::Object(object)) => (object.into(), None),
            Self::Json(other) => (none(), Some(truncate_malformed(&other.to_string()))),
            Self::Text(text) if text.trim().is_empty() => (none(), None),
            Self::Text(text) => match serde_json::from_str::<Value>(&text) {
                Ok(Value::Object(object)) => (object.into(), None),
                // Some servers write `null` for a tool that takes nothing.
                Ok(Value::Null) => (none(), None),
                _ => (none(), Some(truncate_malformed(&text))),
            },
        }
    }
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
            let made = to_tool_calls(ids.iter().map(|id| raw_call(id, "")).collect()).unwrap();
            made.into_iter().map(|call| call.id.to_string()).collect()
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
