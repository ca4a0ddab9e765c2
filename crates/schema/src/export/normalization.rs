//! Normalizes a JSON Schema for providers that accept JSON Schema.
//!
//! In: the keywords of a schema without references. Out: equivalent keywords, without constructs that providers'
//! validators reject: boolean schemas, arrays without `items`, keywords of older drafts.

use serde_json::{Map, Value, json};

use crate::{draft, walk};

/// An equivalent schema in the normalized form.
pub(super) fn normalize(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut modern = schema.clone();
    draft::upgrade_keywords(&mut modern);
    let mut normalized = walk::map_subschemas(modern.iter(), |keyword, inner| match inner {
        Value::Object(inner) => Value::Object(normalize(inner)),
        // Boolean schemas are common here, and every provider supports them.
        _ if keyword == "additionalProperties" || keyword.starts_with("unevaluated") => inner.clone(),
        Value::Bool(false) => json!({"not": {}}),
        _ => json!({}),
    });
    if allows_type(&normalized, "array") {
        normalized.entry("items").or_insert_with(|| json!({}));
    }
    normalized
}

/// Whether `type` includes this type.
fn allows_type(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|allowed| allowed == kind),
        Some(single) => single == kind,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(schema: Value, expected: Value) {
        assert_eq!(Value::Object(normalize(schema.as_object().unwrap())), expected);
    }

    #[test]
    fn booleans_as_schemas_are_written_out_except_where_they_are_usual() {
        check(
            json!({"properties": {"any": true, "none": false}, "additionalProperties": false}),
            json!({"properties": {"any": {}, "none": {"not": {}}}, "additionalProperties": false}),
        );
        check(json!({"type": ["array", "null"], "items": true}), json!({"type": ["array", "null"], "items": {}}));
    }

    #[test]
    fn an_array_always_says_something_of_its_items() {
        check(
            json!({"properties": {"a": {"type": "array"}}}),
            json!({"properties": {"a": {"type": "array", "items": {}}}}),
        );
    }

    #[test]
    fn words_of_older_drafts_become_those_of_today() {
        check(
            json!({"type": "array", "items": [{"type": "string"}], "additionalItems": false}),
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"not": {}}}),
        );
        check(json!({"minimum": 0, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 0}));
        check(json!({"maximum": 9, "exclusiveMaximum": false, "required": true}), json!({"maximum": 9}));
    }
}
