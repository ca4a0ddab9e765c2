//! Flattens an argument schema into one object schema without a union at the root.
//!
//! In: a schema without references. Out: the keywords of an object with its properties listed; at the root
//! providers reject `anyOf`, `oneOf`, `allOf`, `not` and `enum`. The valid combinations of properties go into the description.
//! Schemas inside properties are unchanged.

use serde_json::{Map, Value, json};

use super::{append_description, merge::intersect};

/// A longer list of combinations costs more tokens than it is worth.
const MAX_COMBINATIONS: usize = 24;

/// One object that accepts every combination of arguments the schema accepts.
pub(super) fn object(schema: &Value) -> Map<String, Value> {
    let mut flat = schema.as_object().and_then(flatten_object).unwrap_or_default();
    flat.insert("type".into(), "object".into());
    flat.entry("properties").or_insert_with(|| json!({}));
    flat
}

/// `None` if no object can match; such a branch of a union is dropped, because arguments are always an object.
fn flatten_object(schema: &Map<String, Value>) -> Option<Map<String, Value>> {
    match schema.get("type") {
        None => {}
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {}
        Some(kind) if kind == "object" => {}
        Some(_) => return None,
    }
    let mut base = schema.clone();
    let parts = take_list(&mut base, "allOf");
    let unions = [take_list(&mut base, "anyOf"), take_list(&mut base, "oneOf")];
    for unsupported in ["enum", "const", "not"] {
        base.remove(unsupported);
    }
    if base.contains_key("type") {
        base.insert("type".into(), "object".into());
    }
    for part in parts.iter().filter_map(Value::as_object).filter_map(flatten_object) {
        base = intersect(base, part);
    }
    for union in unions {
        let branches: Vec<_> = union.iter().filter_map(Value::as_object).filter_map(flatten_object).collect();
        if branches.is_empty() {
            continue;
        }
        let combinations = describe_combinations(&branches);
        base = intersect(base, unite(&branches));
        if let Some(combinations) = combinations {
            append_description(&mut base, &combinations);
        }
    }
    Some(base)
}

fn take_list(schema: &mut Map<String, Value>, keyword: &str) -> Vec<Value> {
    match schema.remove(keyword) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// One object that accepts whatever any of the branches accepts.
fn unite(branches: &[Map<String, Value>]) -> Map<String, Value> {
    let Some((first, others)) = branches.split_first() else { return Map::new() };
    if others.is_empty() {
        return first.clone();
    }
    // A keyword that all branches share applies in any case; the others are dropped, because they would restrict other branches.
    let mut united: Map<String, Value> = first
        .iter()
        .filter(|(keyword, value)| others.iter().all(|other| other.get(*keyword) == Some(value)))
        .map(|(keyword, value)| (keyword.clone(), value.clone()))
        .collect();
    let mut properties = Map::new();
    for name in branches.iter().flat_map(|branch| properties_of(branch).keys()) {
        if !properties.contains_key(name) {
            let schemas = branches.iter().filter_map(|branch| properties_of(branch).get(name));
            properties.insert(name.clone(), any_of(schemas));
        }
    }
    if !properties.is_empty() {
        united.insert("properties".into(), properties.into());
    }
    let required: Vec<_> = required(first)
        .filter(|name| others.iter().all(|other| required(other).any(|theirs| theirs == *name)))
        .collect();
    if required.is_empty() {
        united.remove("required");
    } else {
        united.insert("required".into(), required.into());
    }
    united
}

/// One schema that accepts whatever any of these accepts; constants are merged into one `enum`.
fn any_of<'a>(schemas: impl Iterator<Item = &'a Value>) -> Value {
    let mut distinct: Vec<&Value> = Vec::new();
    for schema in schemas {
        if !distinct.contains(&schema) {
            distinct.push(schema);
        }
    }
    if let [single] = distinct[..] {
        return single.clone();
    }
    let Some(lists) = distinct.iter().map(|schema| fixed_values(schema)).collect::<Option<Vec<_>>>() else {
        return json!({ "anyOf": distinct });
    };
    let mut values: Vec<Value> = Vec::new();
    for value in lists.into_iter().flatten() {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let mut schema = Map::new();
    if values.iter().all(Value::is_string) {
        schema.insert("type".into(), "string".into());
    }
    schema.insert("enum".into(), values.into());
    Value::Object(schema)
}

/// The values of `const` or `enum`, if the schema has one of them.
pub(super) fn fixed_values(schema: &Value) -> Option<Vec<Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    }
}

/// The valid combinations of arguments, one line each; `None` if there are fewer than two.
fn describe_combinations(branches: &[Map<String, Value>]) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in branches.iter().map(describe_combination) {
        if !line.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.len() < 2 {
        return None;
    }
    let ellipsis = if lines.len() > MAX_COMBINATIONS { "\n- …" } else { "" };
    lines.truncate(MAX_COMBINATIONS);
    Some(format!("Give one of these combinations:\n- {}{ellipsis}", lines.join("\n- ")))
}

fn describe_combination(branch: &Map<String, Value>) -> String {
    let properties = properties_of(branch);
    let required_names =
        required(branch).map(|name| match properties.get(name).and_then(|schema| schema.get("const")) {
            Some(value) => format!("{name} = {value}"),
            None => name.to_owned(),
        });
    let optional = properties.keys().filter(|name| !required(branch).any(|required| required == *name));
    let optional_names = optional.map(|name| format!("{name} (optional)"));
    let mut line = required_names.chain(optional_names).collect::<Vec<_>>().join(", ");
    if let Some(text) = branch.get("description").and_then(Value::as_str).and_then(|text| text.lines().next()) {
        line = if line.is_empty() { text.to_owned() } else { format!("{line}: {text}") };
    }
    line
}

fn properties_of(schema: &Map<String, Value>) -> &Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    schema.get("properties").and_then(Value::as_object).unwrap_or(&NONE)
}

fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(schema: Value, expected: Value) {
        assert_eq!(Value::Object(object(&schema)), expected);
    }

    #[test]
    fn a_tagged_enum_becomes_one_object_that_says_what_goes_together() {
        check(
            json!({"description": "A shape.", "oneOf": [
                {"type": "object", "description": "Round.", "properties": {"kind": {"type": "string", "const": "circle"}, "size": {"type": "number"}}, "required": ["kind", "size"]},
                {"type": "object", "properties": {"kind": {"type": "string", "const": "square"}, "size": {"type": "string"}, "name": {"type": "string"}}, "required": ["kind"]},
            ]}),
            json!({
                "type": "object",
                "description": "A shape.\nGive one of these combinations:\n- kind = \"circle\", size: Round.\n- kind = \"square\", name (optional), size (optional)",
                "properties": {
                    "kind": {"type": "string", "enum": ["circle", "square"]},
                    "name": {"type": "string"},
                    "size": {"anyOf": [{"type": "number"}, {"type": "string"}]},
                },
                "required": ["kind"],
            }),
        );
    }

    #[test]
    fn at_least_one_of_two_arguments_is_said_in_words() {
        check(
            json!({"type": "object", "properties": {"id": {}, "name": {}}, "additionalProperties": false, "anyOf": [{"required": ["id"]}, {"required": ["name"]}]}),
            json!({"type": "object", "properties": {"id": {}, "name": {}}, "additionalProperties": false,
                   "description": "Give one of these combinations:\n- id\n- name"}),
        );
    }

    #[test]
    fn parts_that_all_hold_are_joined_and_branches_that_are_no_objects_are_left_out() {
        check(
            json!({"allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"anyOf": [{"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"]}, {"type": "null"}]},
            ]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"const": 1}}, "required": ["a", "b"]}),
        );
    }

    #[test]
    fn whatever_comes_in_an_object_with_properties_goes_out() {
        let empty = json!({"type": "object", "properties": {}});
        for schema in [
            json!(true),
            json!(false),
            json!({}),
            json!({"type": "string"}),
            json!({"type": ["object", "null"]}),
            json!({"not": {}}),
        ] {
            check(schema, empty.clone());
        }
    }
}
