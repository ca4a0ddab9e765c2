//! Moves keys that landed in the wrong table back to where they were meant.
//!
//! In: the root table of a tool file. Out: the same with keys hoisted, each with a note. TOML adds a key to the table that was opened
//! last: `retry_count` after `[headers]` is a header, and `parameters_schema.required` after `[parameters_schema.properties]` is a
//! property.

use std::collections::BTreeMap;

use super::{
    super::tree::{Node, Value},
    findings::Findings,
    keys::{text_node, with_value},
};

type Table = BTreeMap<String, Node>;

/// Keys of a tool that are no names of headers.
const TOOL_KEYS: [&str; 9] = [
    "retry_count",
    "retry_delay",
    "refresh_interval",
    "dynamic_schema",
    "auth_method",
    "function_path",
    "mcp_server_url",
    "api_url",
    "tool_type",
];
/// Keys of a tool that may be names of headers, unless their value is no text.
const TYPED_TOOL_KEYS: [&str; 3] = ["timeout", "ttl", "enabled"];
/// Keys of `[config]` that are no names of headers.
const CONFIG_KEYS: [&str; 4] = ["maxRetries", "retryDelay", "timeout", "baseUrl"];
/// Keywords of a schema that are written beside its properties.
const SCHEMA_KEYWORDS: [&str; 3] = ["required", "additionalProperties", "type"];
const SCHEMA: &str = "parameters_schema";

pub(super) fn hoist(root: &mut Table, findings: &mut Findings) {
    hoist_from_headers(root, findings);
    for settings in ["config", "customFields"] {
        let table = match settings {
            "config" => root.get_mut(settings),
            _ => table_in(root, "metadata").and_then(|metadata| metadata.get_mut(settings)),
        };
        if let Some(Value::Table(table)) = table.map(|node| &mut node.value) {
            hoist_to_config(table, settings, findings);
        }
    }
    for schema in [SCHEMA, "parameters"] {
        if let Some(table) = table_in(root, schema) {
            hoist_from_properties(table, schema, findings);
        }
    }
}

fn table_in<'a>(root: &'a mut Table, key: &str) -> Option<&'a mut Table> {
    match root.get_mut(key).map(|node| &mut node.value) {
        Some(Value::Table(table)) => Some(table),
        _ => None,
    }
}

/// Keys of the tool after `[headers]`.
fn hoist_from_headers(root: &mut Table, findings: &mut Findings) {
    let Some(headers) = table_in(root, "headers") else { return };
    let is_text = |node: &Node| matches!(node.value, Value::Text(_));
    let mut keys: Vec<String> = headers
        .iter()
        .filter(|(key, node)| {
            TOOL_KEYS.contains(&key.as_str()) || TYPED_TOOL_KEYS.contains(&key.as_str()) && !is_text(node)
        })
        .map(|(key, _)| key.clone())
        .collect();
    // A header may be named so, but not beside the method that uses the key.
    let has_method = keys.iter().any(|key| key == "auth_method");
    if has_method && headers.contains_key("api_key") {
        keys.push("api_key".into());
    }
    let moved: Vec<(String, Node)> = keys.into_iter().filter_map(|key| headers.remove_entry(&key)).collect();
    for (key, node) in moved {
        move_to(root, &key, node, "[headers]", "a key of the tool", findings);
    }
}

/// Keys of `[config]` after `[config.headers]`.
fn hoist_to_config(config: &mut Table, name: &str, findings: &mut Findings) {
    let Some(headers) = table_in(config, "headers") else { return };
    let is_text = |node: &Node| matches!(node.value, Value::Text(_));
    let moved: Vec<String> = headers
        .iter()
        .filter(|(key, node)| CONFIG_KEYS.contains(&key.as_str()) && (!is_text(node) || key.as_str() != "timeout"))
        .map(|(key, _)| key.clone())
        .collect();
    let moved: Vec<(String, Node)> = moved.into_iter().filter_map(|key| headers.remove_entry(&key)).collect();
    for (key, node) in moved {
        let (place, meaning) = (format!("[{name}.headers]"), format!("a key of [{name}]"));
        move_to(config, &key, node, &place, &meaning, findings);
    }
}

fn move_to(target: &mut Table, key: &str, node: Node, place: &str, meaning: &str, findings: &mut Findings) {
    let origin = node.key_origin.clone();
    if target.contains_key(key) {
        findings.note(&origin, format!("`{key}` in {place} was left out, because the key is also at its own place"));
        return;
    }
    findings.note(&origin, format!("`{key}` in {place} is read as {meaning}"));
    target.insert(key.to_owned(), node);
}

/// Keywords of the schema among the properties, and `required` of single properties.
fn hoist_from_properties(schema: &mut Table, name: &str, findings: &mut Findings) {
    let mut required: Vec<Node> = Vec::new();
    let mut first_place = None;
    let Some(properties) = table_in(schema, "properties") else { return };
    let mut moved: Vec<(String, Node)> = Vec::new();
    // `parameters_schema.required = […]` is the property `parameters_schema` here.
    if let Some(Value::Table(inner)) = properties.get(name).map(|node| &node.value)
        && inner.keys().all(|key| SCHEMA_KEYWORDS.contains(&key.as_str()))
        && let Some(Node { value: Value::Table(inner), .. }) = properties.remove(name)
    {
        moved.extend(inner);
    }
    let keywords: Vec<String> = properties
        .iter()
        .filter(|(key, node)| SCHEMA_KEYWORDS.contains(&key.as_str()) && !matches!(node.value, Value::Table(_)))
        .map(|(key, _)| key.clone())
        .collect();
    moved.extend(keywords.into_iter().filter_map(|key| properties.remove_entry(&key)));
    let names: Vec<String> = properties.keys().cloned().collect();
    for (property, node) in properties.iter_mut() {
        expand_type_name(property, node, findings);
        let Value::Table(keywords) = &mut node.value else { continue };
        let is_object = keywords.contains_key("properties");
        match keywords.get("required").map(|node| &node.value) {
            Some(Value::Bool(is_required)) => {
                let is_required = *is_required;
                let Some(flag) = keywords.remove("required") else { continue };
                findings.note(
                    &flag.key_origin,
                    format!("`required` of the property `{property}` became a part of the schema's `required`"),
                );
                if is_required {
                    required.push(text_node(property, &flag));
                    first_place.get_or_insert(flag);
                }
            }
            Some(Value::List(list)) if !is_object && list.iter().all(|item| is_one_of(item, &names)) => {
                let Some(list) = keywords.remove("required") else { continue };
                findings.note(
                    &list.key_origin,
                    format!("`required` in the property `{property}` is read as that of the schema"),
                );
                if let Value::List(items) = &list.value {
                    required.extend(items.iter().cloned());
                }
                first_place.get_or_insert(list);
            }
            _ => {}
        }
    }
    for (key, node) in moved {
        match &node.value {
            Value::List(items) if key == "required" => {
                let text = format!("`required` in [{name}.properties] is read as that of the schema");
                findings.note(&node.key_origin, text);
                required.extend(items.iter().cloned());
                first_place.get_or_insert(node);
            }
            _ => move_to(schema, &key, node, &format!("[{name}.properties]"), "a keyword of the schema", findings),
        }
    }
    if let Some(place) = first_place {
        add_required(schema, required, &place);
    }
}

/// `city = "string"` is short for `city = { type = "string" }`.
fn expand_type_name(property: &str, node: &mut Node, findings: &mut Findings) {
    const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];
    let is_type = matches!(&node.value, Value::Text(text) if TYPES.contains(&text.as_str()));
    if is_type {
        findings.note(&node.key_origin, format!("the property `{property}` is a schema with that type"));
        let schema = Table::from([("type".to_owned(), node.clone())]);
        node.value = Value::Table(schema);
    }
}

fn is_one_of(item: &Node, names: &[String]) -> bool {
    matches!(&item.value, Value::Text(text) if names.contains(text))
}

/// Adds names to `required`, each once.
fn add_required(schema: &mut Table, names: Vec<Node>, place: &Node) {
    let list = schema.entry("required".into()).or_insert_with(|| with_value(Value::List(Vec::new()), place));
    let Value::List(list) = &mut list.value else { return };
    for name in names {
        let is_new =
            !list.iter().any(|item| matches!((&item.value, &name.value), (Value::Text(a), Value::Text(b)) if a == b));
        if is_new {
            list.push(name);
        }
    }
}
