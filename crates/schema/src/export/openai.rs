//! A tool as OpenAI reads it, in its two APIs.
//!
//! In: a definition. Out: for Chat Completions the function inside `function`, for Responses the same laid flat.
//! Never strict: strict mode wants every argument required, which would turn optional arguments into answers the
//! model has to make up. Descriptions are not cut: the API takes a million characters.

use serde_json::{Map, Value, json};

use super::{flatten, insert_description, normalization::normalize, refs};
use toolhub_types::tool::Definition;

/// The entry of this tool in `tools` of Chat Completions.
pub(super) fn chat_tool(tool: &Definition) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("type".into(), "function".into());
    entry.insert("function".into(), function(tool).into());
    entry
}

/// The entry of this tool in `tools` of Responses.
pub(super) fn responses_tool(tool: &Definition) -> Map<String, Value> {
    let mut entry = function(tool);
    entry.insert("type".into(), "function".into());
    entry
}

fn function(tool: &Definition) -> Map<String, Value> {
    let schema = flatten::object(&refs::inline(&tool.parameters).schema);
    let mut function = Map::new();
    function.insert("name".into(), tool.name.as_str().into());
    insert_description(&mut function, tool);
    function.insert("parameters".into(), normalize(&schema).into());
    // Said aloud, because Responses takes silence for strict.
    function.insert("strict".into(), json!(false));
    function
}
