//! Validates state data: a JSON object within the limits of size and depth. Also the typed shapes of two kinds.
//!
//! In: a value from outside. Out: its JSON text, or the reason why it is refused.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{StateError, StateKind};
use toolhub_types::timestamp::Timestamp;

/// Maximum nesting depth of a state. A written state must stay readable, also inside an export line, and JSON parsers
/// stop at 128 levels.
const MAX_DEPTH: usize = 100;

/// The state of a live connection. Other members are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionState {
    /// Whether the connection can be used.
    pub active: bool,
    /// When the connection was last used.
    pub last_used: Option<Timestamp>,
    /// Number of errors.
    pub error_count: u64,
    /// The message of the last error.
    pub last_error: Option<String>,
    /// Whether a session is open on it.
    pub session_active: bool,
}

/// Usage of a context. Other members are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionState {
    /// When the context was created.
    pub created: Timestamp,
    /// When the context was last used.
    pub last_activity: Timestamp,
    /// Number of calls that have used the context.
    pub calls: u64,
}

/// The members of a value that is a state or a patch of one; refuses other JSON types.
pub fn into_object(value: Value) -> Result<Map<String, Value>, StateError> {
    match value {
        Value::Object(members) => Ok(members),
        other => Err(StateError::Refused(format!("a state is a JSON object, not {}", json_type_in_words(&other)))),
    }
}

/// The JSON text of a state, if it is valid.
pub fn encode_state(kind: StateKind, data: &Map<String, Value>, limit: usize) -> Result<Arc<[u8]>, StateError> {
    let shape = match kind {
        StateKind::Connection => check_shape::<ConnectionState>(data),
        StateKind::Session => check_shape::<SessionState>(data),
        StateKind::Business | StateKind::Cache => Ok(()),
    };
    shape.map_err(|error| StateError::Refused(format!("not a valid state of kind `{kind}`: {error}")))?;
    if data.values().any(|value| is_deeper_than(value, MAX_DEPTH - 1)) {
        return Err(too_deep());
    }
    encode_within_limit(data, limit)
}

/// The JSON text of an imported state. It need not be an object: a typed tool may have written any JSON type.
pub(crate) fn encode_imported(data: &Value, limit: usize) -> Result<Arc<[u8]>, StateError> {
    if is_deeper_than(data, MAX_DEPTH) { Err(too_deep()) } else { encode_within_limit(data, limit) }
}

/// Refuses the text of a typed state that is nested too deeply. Counts brackets in the JSON text without parsing it.
pub fn check_depth(text: &[u8]) -> Result<(), StateError> {
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

fn encode_within_limit(data: &impl Serialize, limit: usize) -> Result<Arc<[u8]>, StateError> {
    let text = serde_json::to_vec(data).map_err(|error| StateError::Refused(error.to_string()))?;
    if text.len() > limit {
        return Err(StateError::TooLarge { bytes: text.len(), limit });
    }
    Ok(text.into())
}

fn check_shape<'a, T: Deserialize<'a>>(data: &'a Map<String, Value>) -> Result<(), serde_json::Error> {
    T::deserialize(data).map(|_| ())
}

/// The name of the JSON type of a value.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The JSON type of a value with its article, for messages.
fn json_type_in_words(value: &Value) -> String {
    let article = match value {
        Value::Null => "",
        Value::Array(_) | Value::Object(_) => "an ",
        _ => "a ",
    };
    format!("{article}{}", json_type(value))
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
        assert_eq!(refused, Err(StateError::TooLarge { bytes: 51, limit: 50 }));
    }

    #[test]
    fn known_members_have_their_sorts_and_others_may_stand_beside_them() {
        assert!(check(StateKind::Connection, json!({"active": true, "host": "a"})).is_ok());
        assert!(check(StateKind::Connection, json!({"active": "yes"})).is_err());
        assert!(check(StateKind::Session, json!({"calls": -1})).is_err());
        assert!(check(StateKind::Business, json!({"active": "yes"})).is_ok());
    }
}
