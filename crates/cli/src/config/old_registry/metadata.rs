//! `[metadata]` and `[[examples]]` of a tool.
//!
//! In: the keys of its file. Out: category, tags, version and metadata of its section, and a risk that suggests a rule.

use std::collections::BTreeMap;

use super::{
    super::tree::{Node, Value},
    keys::{text, text_node, with_value},
    secrets::without_secrets,
    tool_section::ToolReader,
    units,
};

/// The name of the key in which settings leave what is metadata.
const PREFIX: &str = "metadata.";
/// Levels of risk whose calls should be approved.
const HIGH_RISKS: [&str; 3] = ["high", "critical", "dangerous"];

/// Reads the metadata. Returns the level of risk if it is a high one.
pub(super) fn read(reader: &mut ToolReader<'_, '_>) -> Option<String> {
    let own = ["category", "tags", "version", "author"];
    let mut metadata: BTreeMap<String, Node> =
        own.into_iter().filter_map(|key| Some((key.to_owned(), reader.keys.take(key)?))).collect();
    let names: Vec<String> = reader.keys.0.keys().filter(|key| key.starts_with(PREFIX)).cloned().collect();
    for name in names {
        if let Some(node) = reader.keys.take(&name) {
            metadata.insert(name[PREFIX.len()..].to_owned(), node);
        }
    }
    for key in ["category", "version"] {
        if let Some(node) = metadata.remove(key) {
            let value = match &node.value {
                Value::Integer(number) => Some(number.to_string()),
                Value::Float(number) => Some(number.to_string()),
                _ => None,
            };
            let node = value.map_or_else(|| node.clone(), |value| text_node(value, &node));
            let node = without_secrets(&node, "", reader.findings);
            node.into_iter().for_each(|node| reader.set(key, node));
        }
    }
    if let Some(tags) = metadata.remove("tags") {
        let tags = match &tags.value {
            Value::Text(_) => with_value(Value::List(vec![tags.clone()]), &tags),
            _ => tags,
        };
        let tags = without_secrets(&tags, "", reader.findings);
        tags.into_iter().for_each(|tags| reader.set("tags", tags));
    }
    let risk = note_risk(&metadata, reader);
    if let Some(examples) = reader.keys.take("examples") {
        reader.findings.note(&examples.key_origin, "the examples are metadata here");
        metadata.insert("examples".into(), examples);
    }
    let mut written = BTreeMap::new();
    for (key, node) in metadata {
        if units::is_duration_name(&key) && matches!(node.value, Value::Integer(_) | Value::Float(_)) {
            let text = format!(
                "`metadata.{key}` stays metadata, which limits nothing; write it above the tables if a limit is meant"
            );
            reader.findings.note(&node.key_origin, text);
        }
        let Some(node) = without_secrets(&node, &key, reader.findings) else { continue };
        written.insert(key, node);
    }
    if let Some(place) = written.values().next().cloned() {
        reader.set("metadata", with_value(Value::Table(written), &place));
    }
    risk
}

/// Suggests a rule for a tool with a high risk. None is made: it would stop calls that ran before.
fn note_risk(metadata: &BTreeMap<String, Node>, reader: &mut ToolReader<'_, '_>) -> Option<String> {
    let node = metadata.get("risk_level")?;
    let level = text(node)?.to_ascii_lowercase();
    if !HIGH_RISKS.contains(&level.as_str()) {
        return None;
    }
    let text = format!(
        "`risk_level = \"{level}\"` is only metadata; to have the calls approved by a person, add [[policy]] with tool = \"{}\" and \
         decision = \"ask\"",
        reader.name
    );
    reader.findings.note(&node.key_origin, text);
    Some(level)
}
