//! Reads the JSON of provider responses leniently: providers omit members, or send `null` for them.
//!
//! In: members of a response. Out: their text, or the error for a response without a member that it needs.

use serde_json::Value;

use super::{ModelFault, attempt_error::AttemptError};

/// The text of a member; empty if it is missing or of another type.
pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The error for a response that has another form than the provider documents; another attempt may succeed.
pub(super) fn malformed_response(reason: &str) -> AttemptError {
    AttemptError::transient(ModelFault::Broken, format!("cannot parse the model's response: {reason}"))
}
