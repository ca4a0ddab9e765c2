//! Export format of MCP.
//!
//! In: a definition. Out: an entry of a `tools/list` result, valid in every protocol version.
//! MCP supports full JSON Schema, so nothing is flattened or removed.

use serde_json::{Map, Value, json};

use super::{insert_description, refs};
use toolhub_types::tool::Definition;

/// The entry of this tool in `tools`.
pub(super) fn tool(tool: &Definition) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), tool.name.as_str().into());
    if let Some(title) = &tool.annotations.title {
        entry.insert("title".into(), title.as_str().into());
    }
    insert_description(&mut entry, tool);
    let mut input = inline_if_lossless(&tool.parameters);
    // Required at the root in every version, even if a union already implies it.
    input.insert("type".into(), "object".into());
    entry.insert("inputSchema".into(), input.into());
    // Clients before protocol version 2026-07-28 reject an output schema that is not an object.
    if let Some(output) = tool.output_schema.as_ref().filter(|output| output["type"] == "object") {
        entry.insert("outputSchema".into(), inline_if_lossless(output).into());
    }
    entry.insert("annotations".into(), hints(tool));
    entry
}

/// Inlines references, because many clients pass schemas to models without resolving them. Only if that is lossless: a client also
/// validates arguments and results against this schema.
fn inline_if_lossless(schema: &Value) -> Map<String, Value> {
    let inlined = refs::inline(schema);
    let chosen = if inlined.lossless { &inlined.schema } else { schema };
    let mut exported = chosen.as_object().cloned().unwrap_or_default();
    if let Some(draft) = schema.get("$schema") {
        exported.insert("$schema".into(), draft.clone());
    }
    exported
}

fn hints(tool: &Definition) -> Value {
    let annotations = &tool.annotations;
    let mut hints = json!({
        "readOnlyHint": annotations.read_only,
        "destructiveHint": annotations.destructive,
        "idempotentHint": annotations.idempotent,
        "openWorldHint": annotations.open_world,
    });
    if let Some(title) = &annotations.title {
        hints["title"] = title.as_str().into();
    }
    hints
}
