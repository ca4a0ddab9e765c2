//! The body of a message in JSON: type, time and data, as the Standard Webhooks specification recommends.
//!
//! In: a message. Out: the body. It has the alerts as they are stored, and the texts for people beside them.

use serde_json::{Value, json};
use toolhub_core::alerts::AlertMessage;

/// The body of a message.
pub(super) fn body(message: &AlertMessage) -> Value {
    let mut data = serde_json::to_value(message).unwrap_or_default();
    data["summary"] = message.summary().into();
    data["advice"] = message.advice().into();
    json!({"type": format!("alert.{}", message.phase.as_str()), "timestamp": message.at, "data": data})
}
