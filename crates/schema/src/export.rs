//! Exports tools in the formats of model providers.
//!
//! In: tool definitions and a format. Out: one JSON value per tool, sorted by name, ready for that provider's
//! `tools` list. A provider rejects the whole list for one schema it does not support, so each format omits unsupported
//! constraints; the registry still validates every call against the full schema.
//! Sends no requests and parses no responses.

mod anthropic;
mod arguments;
mod flatten;
mod gemini;
mod mcp;
mod merge;
mod normalization;
mod openai;
mod refs;

use serde_json::{Map, Value};

pub use toolhub_types::export_format::{Format, UnknownFormat};

use toolhub_types::tool::Definition;

/// The tools in this format: one value each, sorted by name.
pub fn export<'a>(format: Format, tools: impl IntoIterator<Item = &'a Definition>) -> Vec<Value> {
    let convert = match format {
        Format::Anthropic => anthropic::tool,
        Format::OpenAi => openai::chat_tool,
        Format::OpenAiResponses => openai::responses_tool,
        Format::Gemini => gemini::tool,
        Format::Mcp => mcp::tool,
    };
    let mut tools: Vec<&Definition> = tools.into_iter().collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.into_iter().map(|tool| Value::Object(convert(tool))).collect()
}

/// Adds the description, if there is one; it is optional for these providers.
fn insert_description(entry: &mut Map<String, Value>, tool: &Definition) {
    if !tool.description.trim().is_empty() {
        entry.insert("description".into(), tool.description.as_str().into());
    }
}

/// Appends a line to the description of a schema.
fn append_description(schema: &mut Map<String, Value>, line: &str) {
    let text = match schema.get("description").and_then(Value::as_str) {
        Some(description) if !description.is_empty() => format!("{description}\n{line}"),
        _ => line.to_owned(),
    };
    schema.insert("description".into(), text.into());
}

#[cfg(test)]
mod tests;
