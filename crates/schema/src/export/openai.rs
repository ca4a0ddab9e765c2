//! Export formats of OpenAI's Chat Completions and Responses APIs.
//!
//! In: a definition. Out: for Chat Completions the function nested in `function`, for Responses the same at the top level.
//! Never strict: strict mode requires every argument, so that the model would have to make up values of optional
//! ones. Descriptions are not truncated: the API accepts a million characters.

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
    // Explicit, because Responses defaults to strict.
    function.insert("strict".into(), json!(false));
    function
}
