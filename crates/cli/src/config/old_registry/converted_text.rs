//! Writes the sections of an old registry as TOML.
//!
//! In: the sections. Out: text that loads as the same sections, with comments on what was adjusted in each. Every text is on one line and
//! escaped, because the files of a registry may hold anything.

use std::collections::BTreeMap;

use super::{
    super::{
        toml_text::{toml_key, toml_string},
        tree::{Node, Value},
    },
    tool_section::ToolSection,
};

/// Keys that come first, in this order.
const FIRST: [&str; 11] = [
    "kind",
    "description",
    "function_path",
    "url",
    "base_url",
    "path",
    "method",
    "server",
    "server_url",
    "tool",
    "enabled",
];
/// Tables with a section of their own.
const TABLES: [&str; 2] = ["parameters", "metadata"];

pub(super) fn write(tools: &[ToolSection], sets: &[(String, Node)]) -> String {
    let mut text = String::new();
    for tool in tools {
        write_tool(tool, &mut text);
    }
    for (name, node) in sets {
        text += &format!("[toolsets.{}]\n", toml_key(name));
        write_keys(node, &mut text);
        text.push('\n');
    }
    for tool in tools.iter().filter(|tool| tool.risk.is_some()) {
        let (name, risk) = (comment(&toml_string(&tool.name)), comment(tool.risk.as_deref().unwrap_or_default()));
        text += &format!("# Its risk level was \"{risk}\". Remove the `#` to have its calls approved by a person.\n");
        text += &format!("# [[policy]]\n# tool = {name}\n# decision = \"ask\"\n\n");
    }
    format!("{}\n", text.trim_end())
}

fn write_tool(tool: &ToolSection, text: &mut String) {
    *text += &format!("# From {}\n", comment(&tool.file));
    for note in &tool.notes {
        *text += &format!("# - {}\n", comment(note));
    }
    let name = toml_key(&tool.name);
    *text += &format!("[tools.{name}]\n");
    write_keys(&tool.node, text);
    let Value::Table(keys) = &tool.node.value else { return };
    for table in TABLES {
        let Some(Node { value: Value::Table(inner), .. }) = keys.get(table) else { continue };
        *text += &format!("[tools.{name}.{table}]\n");
        for (key, node) in inner {
            match &node.value {
                Value::Table(members) if key == "properties" && !members.is_empty() => {
                    for (member, node) in members {
                        *text += &format!("properties.{} = {}\n", toml_key(member), inline(node));
                    }
                }
                _ => *text += &format!("{} = {}\n", toml_key(key), inline(node)),
            }
        }
    }
    text.push('\n');
}

/// The keys of a section that need no section of their own.
fn write_keys(node: &Node, text: &mut String) {
    let Value::Table(keys) = &node.value else { return };
    let first = FIRST.iter().filter_map(|key| keys.get_key_value(*key));
    let is_first = |key: &str| FIRST.contains(&key);
    let others = keys.iter().filter(|(key, _)| !is_first(key));
    for (key, node) in first.chain(others) {
        let has_section = TABLES.contains(&key.as_str()) && matches!(node.value, Value::Table(_));
        if !has_section {
            *text += &format!("{} = {}\n", toml_key(key), inline(node));
        }
    }
}

fn inline(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => toml_string(text),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::Bool(boolean) => boolean.to_string(),
        Value::Datetime(text) => text.clone(),
        Value::List(list) => format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) => inline_table(table),
    }
}

fn inline_table(table: &BTreeMap<String, Node>) -> String {
    let members: Vec<String> =
        table.iter().map(|(key, node)| format!("{} = {}", toml_key(key), inline(node))).collect();
    if members.is_empty() { "{}".into() } else { format!("{{ {} }}", members.join(", ")) }
}

/// A number with a point, so that it stays a float.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    format!("{number:?}")
}

/// A text for a comment, on one line.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
