//! A tool as an MCP client reads it.
//!
//! In: a definition. Out: an entry of a `tools/list` result, understood by clients of every protocol version.
//! MCP takes JSON Schema whole, so nothing is flattened or taken out here.

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
    // Demanded at the root in every version, also where a union below already implies it.
    input.insert("type".into(), "object".into());
    entry.insert("inputSchema".into(), input.into());
    // Clients before the protocol of 2026 refuse an output that is no object.
    if let Some(output) = tool.output_schema.as_ref().filter(|output| output["type"] == "object") {
        entry.insert("outputSchema".into(), inline_if_lossless(output).into());
    }
    entry.insert("annotations".into(), hints(tool));
    entry
}

/// Many clients hand schemas on to models without following references, so these are written out here — but only
/// if that loses nothing, because a client also checks arguments and results against what it was told.
fn inline_if_lossless(schema: &Value) -> Map<String, Value> {
    let inlined = refs::inline(schema);
    let whole = if inlined.lossless { &inlined.schema } else { schema };
    let mut readable = whole.as_object().cloned().unwrap_or_default();
    if let Some(draft) = schema.get("$schema") {
        readable.insert("$schema".into(), draft.clone());
    }
    readable
}

fn hints(tool: &Definition) -> Value {
    let said = &tool.annotations;
    let mut hints = json!({
        "readOnlyHint": said.read_only,
        "destructiveHint": said.destructive,
        "idempotentHint": said.idempotent,
        "openWorldHint": said.open_world,
    });
    if let Some(title) = &said.title {
        hints["title"] = title.as_str().into();
    }
    hints
}
