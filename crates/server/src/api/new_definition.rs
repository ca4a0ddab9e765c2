//! What routes share that change tools and MCP servers through the host program.

use serde_json::{Map, Value, json};
use toolhub_core::ToolName;

use crate::problem::{ApiResult, Code, Problem};

/// A field that is refused.
pub(super) fn field_problem(pointer: &str, detail: impl Into<String>) -> Problem {
    let detail = detail.into();
    let field_error = json!({"pointer": pointer, "detail": detail});
    Problem::new(Code::INVALID_REQUEST, detail).with("errors", [field_error])
}

/// The name in a definition, if there is one. `noun` is what is defined.
pub(super) fn sent_name(definition: &Map<String, Value>, noun: &str) -> ApiResult<Option<String>> {
    match definition.get("name") {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(name.clone())),
        Some(_) => Err(field_problem("/name", format!("the name of {noun} must be a string"))),
    }
}

/// Checks the name of what is defined; `what` is what the name is called.
pub(super) fn check_name(name: &str, what: &str) -> ApiResult<()> {
    ToolName::new(name).map(drop).map_err(|error| field_problem("/name", error.describe(what)))
}

/// The host program defines everything in code.
pub(super) fn not_supported(nouns: &str) -> Problem {
    let why = format!("this server accepts no {nouns} through the API; its host program defines them in code");
    Problem::new(Code::INVALID_REQUEST, why)
}

/// A change that could not be stored. `why` is for the log.
pub(super) fn not_stored(noun: &str, name: &str, why: &str) -> Problem {
    tracing::error!(name, why, "could not store the change of {noun}");
    Problem::new(Code::STORE_UNAVAILABLE, "the change could not be stored; nothing was changed")
}
