//! Export format of Anthropic's Messages API.
//!
//! In: a definition. Out: `name`, `description` and `input_schema`: an object, no union at its root, no references.

use serde_json::{Map, Value};

use super::{arguments, flatten, insert_description, normalization::normalize, refs};
use toolhub_types::tool::Definition;

/// The entry of this tool in `tools`.
pub(super) fn tool(tool: &Definition) -> Map<String, Value> {
    let mut schema = flatten::object(&refs::inline(&tool.parameters).schema);
    arguments::unlist_illegal_names(&mut schema, is_legal_name);
    let mut entry = Map::new();
    entry.insert("name".into(), tool.name.as_str().into());
    insert_description(&mut entry, tool);
    entry.insert("input_schema".into(), normalize(&schema).into());
    entry
}

/// `^[a-zA-Z0-9_.-]{1,64}$`, which the API requires of every argument name; undocumented, stated only in its error.
fn is_legal_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}
