//! Export format of the Gemini API.
//!
//! In: a definition. Out: a `FunctionDeclaration` with `parameters` in Gemini's schema dialect, omitted if
//! there are no arguments. The newer `parametersJsonSchema` would keep more, but only `parameters` is supported by every
//! version of the API. `gemini/schema.rs` converts the schema.

mod constraints;
mod schema;
mod unions;

use serde_json::{Map, Value};

use super::{append_description, arguments, flatten, normalization::normalize, refs};
use toolhub_types::tool::Definition;

/// The declaration of this tool in `functionDeclarations`.
pub(super) fn tool(tool: &Definition) -> Map<String, Value> {
    let mut schema = flatten::object(&refs::inline(&tool.parameters).schema);
    arguments::unlist_illegal_names(&mut schema, is_legal_name);
    let parameters = schema::convert_object(&normalize(&schema));
    let mut entry = Map::new();
    entry.insert("name".into(), tool.name.as_str().into());
    entry.insert("description".into(), description(tool).into());
    if parameters.contains_key("properties") {
        entry.insert("parameters".into(), parameters.into());
    } else if let Some(text) = parameters.get("description").and_then(Value::as_str) {
        // The API rejects an object without properties; the description of the arguments moves to the function.
        append_description(&mut entry, text);
    }
    entry
}

/// The API requires a description of every function; without one, the title or the name serves as description.
fn description(tool: &Definition) -> &str {
    let title = tool.annotations.title.as_deref().unwrap_or(&tool.name);
    if tool.description.trim().is_empty() { title } else { &tool.description }
}

/// Letters, digits and `_`, not beginning with a digit, at most 64.
fn is_legal_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
