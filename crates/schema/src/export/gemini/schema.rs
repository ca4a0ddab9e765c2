//! Converts JSON Schema to Gemini's schema dialect.
//!
//! In: the keywords of a schema without references. Out: only the fields of Gemini's `Schema` message, because
//! an unknown one fails the whole request. Every schema has exactly one type, in upper case, or is an `anyOf` with
//! nothing beside it. Constraints without a field go into the description (`constraints.rs`); `unions.rs` resolves unions.

use serde_json::{Map, Value, json};

use super::{constraints, unions};
use crate::export::append_description;

/// The keywords of each type that have the same name and meaning in Gemini's dialect.
const FIELDS_BY_TYPE: [(&str, &[&str]); 6] = [
    ("string", &["pattern", "minLength", "maxLength"]),
    ("integer", &["minimum", "maximum"]),
    ("number", &["minimum", "maximum"]),
    ("boolean", &[]),
    ("array", &["minItems", "maxItems"]),
    ("object", &["minProperties", "maxProperties"]),
];

/// Converts the argument schema. The result has no `properties` if there are no arguments.
pub(super) fn convert_object(schema: &Map<String, Value>) -> Map<String, Value> {
    convert_typed("object", schema)
}

/// Converts any schema below the root.
pub(super) fn convert(value: &Value) -> Value {
    let Some(keywords) = value.as_object() else { return any_type(&Map::new(), false) };
    let (keywords, mut nullable) = unions::split_off_null(keywords.clone());
    if let Some(branches) = unions::branches(&keywords) {
        return any_of(&keywords, branches.iter().map(convert).collect(), nullable);
    }
    nullable |= keywords.get("type").is_some_and(|kind| kind == "null");
    let kinds = type_names(&keywords);
    match kinds[..] {
        [] => any_type(&keywords, nullable),
        [kind] => set_nullable(convert_typed(kind, &keywords), nullable),
        _ => {
            let mut undescribed = keywords.clone();
            undescribed.remove("description");
            any_of(&keywords, kinds.iter().map(|kind| convert_typed(kind, &undescribed).into()).collect(), nullable)
        }
    }
}

fn convert_typed(kind: &str, keywords: &Map<String, Value>) -> Map<String, Value> {
    let mut converted = Map::new();
    converted.insert("type".into(), kind.to_uppercase().into());
    let fields = FIELDS_BY_TYPE.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, fields)| fields);
    for field in ["title", "description", "default"].iter().chain(fields) {
        if let Some(value) = keywords.get(*field).filter(|value| !value.is_null() && constraints::is_exact(value)) {
            converted.insert((*field).into(), value.clone());
        }
    }
    match kind {
        "array" => {
            converted.insert("items".into(), convert_items(keywords));
        }
        "object" => list_properties(&mut converted, keywords),
        _ => constraints::write_value_constraints(&mut converted, kind, keywords),
    }
    for sentence in constraints::describe_unsupported(kind, keywords) {
        append_description(&mut converted, &sentence);
    }
    converted
}

fn list_properties(converted: &mut Map<String, Value>, keywords: &Map<String, Value>) {
    let Some(Value::Object(properties)) = keywords.get("properties").filter(|all| **all != json!({})) else { return };
    // Gemini rejects a required property that is not listed.
    let required: Vec<&Value> = keywords
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|name| name.as_str().is_some_and(|name| properties.contains_key(name)))
        .collect();
    if !required.is_empty() {
        converted.insert("required".into(), json!(required));
    }
    let properties: Map<_, _> = properties.iter().map(|(name, inner)| (name.clone(), convert(inner))).collect();
    converted.insert("properties".into(), properties.into());
}

/// The schema of all items. Gemini has no tuples, so the items of a tuple become alternatives.
fn convert_items(keywords: &Map<String, Value>) -> Value {
    let mut distinct: Vec<Value> = Vec::new();
    for item in keywords.get("prefixItems").and_then(Value::as_array).into_iter().flatten().map(convert) {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    match (distinct.len(), keywords.get("items")) {
        (0, Some(items)) => convert(items),
        (0, None) => any_type(&Map::new(), false),
        _ => any_of(&Map::new(), distinct, false),
    }
}

/// Gemini rejects a schema without a type, so an unrestricted value is an `anyOf` of all types.
fn any_type(keywords: &Map<String, Value>, nullable: bool) -> Value {
    let of_type = |kind: &str| json!({"type": kind});
    let array = json!({"type": "ARRAY", "items": {"type": "STRING"}});
    let all = vec![of_type("STRING"), of_type("NUMBER"), of_type("BOOLEAN"), of_type("OBJECT"), array];
    any_of(keywords, all, nullable)
}

/// Gemini allows nothing beside an `anyOf`, so the description beside it is repeated in each branch.
fn any_of(siblings: &Map<String, Value>, branches: Vec<Value>, nullable: bool) -> Value {
    let outer = siblings.get("description").and_then(Value::as_str);
    let mut distinct: Vec<Value> = Vec::new();
    for branch in branches {
        let inner = match branch {
            Value::Object(mut branch) => match branch.remove("anyOf") {
                Some(Value::Array(inner)) => inner,
                _ => vec![branch.into()],
            },
            _ => continue,
        };
        for branch in inner {
            let Value::Object(mut branch) = branch else { continue };
            if let Some(outer) = outer {
                let own = branch.get("description").and_then(Value::as_str).map(|own| format!("{outer}\n{own}"));
                branch.insert("description".into(), own.unwrap_or_else(|| outer.to_owned()).into());
            }
            let branch = set_nullable(branch, nullable);
            if !distinct.contains(&branch) {
                distinct.push(branch);
            }
        }
    }
    if distinct.len() == 1 { distinct.remove(0) } else { json!({ "anyOf": distinct }) }
}

fn set_nullable(mut converted: Map<String, Value>, nullable: bool) -> Value {
    if nullable {
        converted.insert("nullable".into(), true.into());
    }
    converted.into()
}

/// The types of a schema, or those implied by its other keywords.
fn type_names(keywords: &Map<String, Value>) -> Vec<&str> {
    let mut kinds = match keywords.get("type") {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => constraints::implied_types(keywords),
    };
    kinds.retain(|kind| FIELDS_BY_TYPE.iter().any(|(known, _)| known == kind));
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(schema: Value, expected: Value) {
        assert_eq!(convert(&schema), expected);
    }

    #[test]
    fn null_among_the_types_becomes_a_mark() {
        let nullable = json!({"type": "STRING", "nullable": true});
        check(json!({"type": ["string", "null"]}), nullable.clone());
        check(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), nullable.clone());
        check(json!({"oneOf": [{"allOf": [{"type": "string"}]}, {"const": null}], "default": null}), nullable);
        check(
            json!({"type": ["string", "null"], "enum": ["a", null]}),
            json!({"type": "STRING", "enum": ["a"], "nullable": true}),
        );
    }

    #[test]
    fn formats_of_rust_numbers_go_and_their_bounds_stay() {
        check(
            json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}),
            json!({"type": "INTEGER", "minimum": 0, "maximum": 255}),
        );
        check(
            json!({"type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX}),
            json!({"type": "INTEGER", "minimum": 0}),
        );
        check(json!({"type": "integer", "format": "int64"}), json!({"type": "INTEGER", "format": "int64"}));
        check(json!({"type": "number", "format": "double"}), json!({"type": "NUMBER", "format": "double"}));
        check(json!({"type": "string", "format": "date-time"}), json!({"type": "STRING", "format": "date-time"}));
        check(json!({"type": "string", "format": "uuid"}), json!({"type": "STRING", "description": "Format: uuid."}));
    }

    #[test]
    fn only_strings_are_listed_and_other_values_are_said() {
        check(json!({"const": "a"}), json!({"type": "STRING", "enum": ["a"]}));
        check(json!({"enum": ["", "x"]}), json!({"type": "STRING", "enum": ["x"]}));
        check(json!({"enum": [1, 2]}), json!({"type": "INTEGER", "description": "One of 1, 2."}));
        check(
            json!({"enum": ["auto", 1, 2, null]}),
            json!({"anyOf": [
                {"type": "STRING", "enum": ["auto"], "nullable": true},
                {"type": "INTEGER", "description": "One of 1, 2.", "nullable": true},
            ]}),
        );
        check(json!({"const": true}), json!({"type": "BOOLEAN", "description": "Always true."}));
    }

    #[test]
    fn a_documented_enum_is_one_list_with_its_words_kept() {
        check(
            json!({"description": "Where to.", "oneOf": [{"const": "up", "description": "To the sky."}, {"type": "string", "enum": ["left", "right"]}]}),
            json!({"type": "STRING", "enum": ["up", "left", "right"], "description": "Where to.\n\"up\": To the sky."}),
        );
    }

    #[test]
    fn a_union_stands_alone_and_each_branch_carries_what_was_beside_it() {
        check(
            json!({"description": "Id or name.", "oneOf": [{"type": "integer"}, {"type": ["string", "null"]}]}),
            json!({"anyOf": [{"type": "INTEGER", "description": "Id or name."}, {"type": "STRING", "description": "Id or name.", "nullable": true}]}),
        );
        check(
            json!({"type": ["integer", "string"], "minimum": 1, "maxLength": 4}),
            json!({"anyOf": [{"type": "INTEGER", "minimum": 1}, {"type": "STRING", "maxLength": 4}]}),
        );
    }

    #[test]
    fn a_union_beside_properties_becomes_one_object() {
        check(
            json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}}}),
        );
    }

    #[test]
    fn parts_are_joined_and_what_has_no_field_is_left_out_or_said() {
        check(
            json!({"allOf": [{"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": 0}}}], "required": ["n", "gone"], "additionalProperties": false, "not": {}}),
            json!({"type": "OBJECT", "properties": {"n": {"type": "NUMBER", "description": "More than 0."}}, "required": ["n"]}),
        );
        check(
            json!({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}),
            json!({"type": "INTEGER", "minimum": 1, "maximum": 9}),
        );
        check(
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"type": "OBJECT", "description": "Takes any key, each with a value of type integer."}),
        );
    }

    #[test]
    fn every_array_has_items_and_every_schema_a_type() {
        check(
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}, {"type": "string"}], "minItems": 3}),
            json!({"type": "ARRAY", "minItems": 3, "items": {"anyOf": [{"type": "STRING"}, {"type": "NUMBER"}]}}),
        );
        let any = convert(&json!(true));
        assert_eq!(any["anyOf"].as_array().map(Vec::len), Some(5));
        check(json!({}), any.clone());
        check(json!({"type": "array"}), json!({"type": "ARRAY", "items": any}));
    }
}
