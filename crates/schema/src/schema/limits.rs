//! Refuses schemas that could hurt us, before the engine sees them.
//!
//! In: a schema from anywhere. Out: nothing, or the limit it breaks and what its author can do.
//! Patterns are judged by compiling them, which `check.rs` does; what references multiply to, by `tangle.rs`.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    SchemaError, ref_blowup,
    refs::{RefResolver, all_schemas, references},
};

const MAX_BYTES: usize = 64 * 1024;
const MAX_DEPTH: usize = 32;
/// A compiled pattern may take a megabyte, whatever the length of its text.
const MAX_PATTERNS: usize = 64;

/// Refuses a schema that is too large, too deep, not self-contained, too tangled or no object.
pub(super) fn check_arguments_schema(schema: &Value) -> Result<(), SchemaError> {
    check_schema(schema)?;
    let refs = RefResolver::new(schema);
    if allows_only_objects(schema, &refs) { Ok(()) } else { Err(SchemaError::NotAnObject(describe_type(schema))) }
}

/// The same for a schema that need not describe an object.
pub(super) fn check_schema(schema: &Value) -> Result<(), SchemaError> {
    // Depth first: printing and every later walk recurse as deep as the schema goes.
    if !is_depth_within(schema, MAX_DEPTH) {
        return Err(SchemaError::TooDeep { most: MAX_DEPTH });
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES {
        return Err(SchemaError::TooLarge { bytes, most: MAX_BYTES });
    }
    for (at, part) in all_schemas(schema).into_iter().enumerate() {
        if let Some(away) = references(part).find(|reference| !reference.starts_with('#')) {
            return Err(SchemaError::RemoteRef(away.to_owned()));
        }
        // A nested `$id` changes what `#` means below it, and nobody needs that in a tool.
        if let (1.., Some(id)) = (at, part.get("$id").and_then(Value::as_str)) {
            return Err(SchemaError::NestedId(id.to_owned()));
        }
    }
    if count_patterns(schema) > MAX_PATTERNS {
        return Err(SchemaError::TooComplex { what: "too many different patterns", most: MAX_PATTERNS });
    }
    ref_blowup::check_references(schema, &RefResolver::new(schema))
}

fn count_patterns(schema: &Value) -> usize {
    let mut found = HashSet::new();
    for part in all_schemas(schema) {
        found.extend(part.get("pattern").and_then(Value::as_str));
        let named = part.get("patternProperties").and_then(Value::as_object);
        found.extend(named.into_iter().flat_map(|named| named.keys().map(String::as_str)));
    }
    found.len()
}

/// Whether a value is nested at most `most` levels; recurses no deeper than that itself.
pub fn is_depth_within(value: &Value, most: usize) -> bool {
    let fits = |inner: &Value| !(inner.is_object() || inner.is_array()) || most > 1 && is_depth_within(inner, most - 1);
    match value {
        Value::Object(members) => members.values().all(fits),
        Value::Array(items) => items.iter().all(fits),
        _ => true,
    }
}

/// Whether only objects fit. Endless references are refused before, so this comes to an end.
fn allows_only_objects<'a>(schema: &'a Value, refs: &RefResolver<'a>) -> bool {
    if schema.get("type").is_some_and(|kind| kind == "object") {
        return true;
    }
    let target = schema.get("$ref").and_then(Value::as_str);
    if let Some(target) = target.and_then(|reference| refs.resolve(reference)) {
        return allows_only_objects(target, refs);
    }
    ["oneOf", "anyOf"].into_iter().any(|keyword| {
        let forms = schema.get(keyword).and_then(Value::as_array);
        forms.is_some_and(|forms| !forms.is_empty() && forms.iter().all(|form| allows_only_objects(form, refs)))
    })
}

fn describe_type(schema: &Value) -> String {
    match schema.get("type") {
        Some(kind) => format!("{kind}"),
        None if schema.get("oneOf").or_else(|| schema.get("anyOf")).is_some() => {
            "forms that are not all objects".into()
        }
        None => "anything; add \"type\": \"object\"".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Value, expected: &str) {
        let got = match check_arguments_schema(schema) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(got.contains(expected), "{got:?} instead of {expected:?}");
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({"type": "object"}), |inner, _| json!({"type": "object", "not": inner}))
    }

    #[test]
    fn size_and_depth_have_limits() {
        check(&json!({"type": "object", "description": "x".repeat(65_000)}), "fine");
        check(&json!({"type": "object", "description": "x".repeat(66_000)}), "at most 65536");
        check(&json!({"type": "object", "default": nested(28)}), "fine");
        check(&nested(32), "deeper than 32");
    }

    #[test]
    fn patterns_are_counted_once_each() {
        let with = |count: usize, distinct: usize| {
            let one = |at: usize| (format!("p{at}"), json!({"pattern": format!("^a{}$", at % distinct)}));
            json!({"type": "object", "properties": (0..count).map(one).collect::<serde_json::Map<_, _>>()})
        };
        check(&with(200, 10), "fine");
        check(&with(65, 65), "too many different patterns");
    }

    #[test]
    fn values_are_measured_by_their_nesting() {
        assert!(is_depth_within(&json!(1), 1) && is_depth_within(&json!([1]), 1) && is_depth_within(&json!([[1]]), 2));
        assert!(!is_depth_within(&json!([[1]]), 1) && !is_depth_within(&json!({"a": [{}]}), 2));
    }

    #[test]
    fn a_schema_stands_alone() {
        let with = |reference: &str| json!({"type": "object", "properties": {"x": {"$ref": reference}}});
        check(&with("#"), "fine");
        check(&with("https://example.com/s.json"), "another document");
        check(&with("other.json#/a"), "another document");
        check(&json!({"type": "object", "$defs": {"a": {"$dynamicRef": "file:///etc/passwd"}}}), "another document");
        check(&json!({"type": "object", "properties": {"x": {"$id": "urn:x"}}}), "only at the root");
        check(
            &json!({"type": "object", "properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}}),
            "fine",
        );
    }

    #[test]
    fn arguments_are_objects_also_behind_choices_and_references() {
        let object = json!({"type": "object"});
        check(&json!({"oneOf": [object, object]}), "fine");
        check(&json!({"$ref": "#/$defs/a", "$defs": {"a": object}}), "fine");
        check(&json!({"anyOf": [object, {"type": "null"}]}), "not all objects");
        check(&json!({"type": "string"}), "describes \"string\"");
        check(&json!({"type": ["object", "null"]}), "wrap it");
        check(&json!({}), "add \"type\"");
        check(&json!(true), "anything");
    }
}
