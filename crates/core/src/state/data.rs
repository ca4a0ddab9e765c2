//! What may be kept as a state: a JSON object that is not too large and can be read again.
//!
//! In: a value from outside. Out: its text, or why it is refused. Also the members two kinds are known by.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{StateError, StateKind};
use toolhub_types::timestamp::Timestamp;

/// How deeply a state may be nested. What is written must be readable again, also inside an export, and readers of JSON
/// stop at 128.
const MAX_DEPTH: usize = 100;

/// What is remembered about a live connection. More members may stand beside these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionState {
    /// Whether the connection can be used.
    pub active: bool,
    /// When it was used last.
    pub last_used: Option<Timestamp>,
    /// How many errors there were.
    pub error_count: u64,
    /// What the last of them said.
    pub last_error: Option<String>,
    /// Whether a session is open on it.
    pub session_active: bool,
}

/// What is remembered about the use of a context. More members may stand beside these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionState {
    /// When the context was made.
    pub created: Timestamp,
    /// When it was used last.
    pub last_activity: Timestamp,
    /// How many calls have used it.
    pub calls: u64,
}

/// The members of a value that is to be a state or a patch of one.
pub(crate) fn into_object(value: Value) -> Result<Map<String, Value>, StateError> {
    match value {
        Value::Object(members) => Ok(members),
        other => Err(StateError::Refused(format!("a state is a JSON object, not {}", json_type_name(&other)))),
    }
}

/// The text of a state, if it may be kept.
pub(crate) fn encode_state(kind: StateKind, data: &Map<String, Value>, most: usize) -> Result<Arc<[u8]>, StateError> {
    let known = match kind {
        StateKind::Connection => check_shape::<ConnectionState>(data),
        StateKind::Session => check_shape::<SessionState>(data),
        StateKind::Business | StateKind::Cache => Ok(()),
    };
    known.map_err(|error| StateError::Refused(format!("this is no state of kind `{kind}`: {error}")))?;
    if data.values().any(|value| is_deeper_than(value, MAX_DEPTH - 1)) {
        return Err(too_deep());
    }
    encode_within_limit(data, most)
}

/// The text of a state as it comes from another store. A typed tool may have written something else than an object.
pub(crate) fn encode_imported(data: &Value, most: usize) -> Result<Arc<[u8]>, StateError> {
    if is_deeper_than(data, MAX_DEPTH) { Err(too_deep()) } else { encode_within_limit(data, most) }
}

/// Refuses the text of a typed state that is nested too deeply. The text is JSON; it is looked at, not read.
pub(crate) fn check_depth(text: &[u8]) -> Result<(), StateError> {
    // Each level takes two brackets.
    if text.len() <= 2 * MAX_DEPTH {
        return Ok(());
    }
    let (mut levels, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => levels += 1,
            b'}' | b']' if !quoted => levels = levels.saturating_sub(1),
            _ => {}
        }
        if levels > MAX_DEPTH {
            return Err(too_deep());
        }
    }
    Ok(())
}

fn too_deep() -> StateError {
    StateError::Refused(format!("a state may be nested {MAX_DEPTH} levels deep at most"))
}

fn encode_within_limit(data: &impl Serialize, most: usize) -> Result<Arc<[u8]>, StateError> {
    let text = serde_json::to_vec(data).map_err(|error| StateError::Refused(error.to_string()))?;
    if text.len() > most {
        return Err(StateError::TooLarge { bytes: text.len(), most });
    }
    Ok(text.into())
}

fn check_shape<'a, T: Deserialize<'a>>(data: &'a Map<String, Value>) -> Result<(), serde_json::Error> {
    T::deserialize(data).map(|_| ())
}

/// What sort of JSON a value is, in words.
pub(crate) fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn is_deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper_than(item, levels - 1)),
        Value::Object(members) => levels == 0 || members.values().any(|member| is_deeper_than(member, levels - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: StateKind, data: Value) -> Result<usize, StateError> {
        encode_state(kind, &into_object(data)?, 50).map(|text| text.len())
    }

    #[test]
    fn only_objects_that_can_be_read_again_are_kept() {
        assert_eq!(check(StateKind::Business, json!({"a": 1})), Ok(7));
        for no_object in [json!(null), json!(1), json!("a"), json!([{}]), json!(true)] {
            assert!(matches!(check(StateKind::Business, no_object), Err(StateError::Refused(_))));
        }
        let deep = |levels| (1..levels).fold(json!({}), |inner, _| json!({"a": inner}));
        assert!(encode_state(StateKind::Business, &into_object(deep(MAX_DEPTH)).unwrap(), 9_999).is_ok());
        assert!(encode_state(StateKind::Business, &into_object(deep(MAX_DEPTH + 1)).unwrap(), 9_999).is_err());
        assert!(check_depth(deep(MAX_DEPTH).to_string().as_bytes()).is_ok());
        assert!(check_depth(deep(MAX_DEPTH + 1).to_string().as_bytes()).is_err());
        assert!(check_depth(json!({"\\\"": "[{\"".repeat(MAX_DEPTH)}).to_string().as_bytes()).is_ok());
    }

    #[test]
    fn the_size_of_the_text_counts() {
        assert_eq!(check(StateKind::Business, json!({"a": "x".repeat(42)})), Ok(50));
        let refused = check(StateKind::Business, json!({"a": "x".repeat(43)}));
        assert_eq!(refused, Err(StateError::TooLarge { bytes: 51, most: 50 }));
    }

    #[test]
    fn known_members_have_their_sorts_and_others_may_stand_beside_them() {
        assert!(check(StateKind::Connection, json!({"active": true, "host": "a"})).is_ok());
        assert!(check(StateKind::Connection, json!({"active": "yes"})).is_err());
        assert!(check(StateKind::Session, json!({"calls": -1})).is_err());
        assert!(check(StateKind::Business, json!({"active": "yes"})).is_ok());
    }
}
