//! Limits on untrusted schemas, enforced before the validator sees them.
//!
//! In: an untrusted schema. Out: success, or the exceeded limit and what its author can do.
//! `check.rs` checks patterns by compiling them; `ref_blowup.rs` checks how far references multiply.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    SchemaError, ref_blowup,
    refs::{RefResolver, all_schemas, references},
};

const MAX_BYTES: usize = 64 * 1024;
const MAX_DEPTH: usize = 32;
/// Bounds memory: a compiled pattern may take a megabyte, whatever the length of its text.
const MAX_PATTERNS: usize = 64;

/// Refuses a schema that is too large, too deep, not self-contained, too complex or does not describe an object.
pub(super) fn check_arguments_schema(schema: &Value) -> Result<(), SchemaError> {
    check_schema(schema)?;
    let refs = RefResolver::new(schema);
    if allows_only_objects(schema, &refs) { Ok(()) } else { Err(SchemaError::NotAnObject(describe_type(schema))) }
}

/// The same for a schema that need not describe an object.
pub(super) fn check_schema(schema: &Value) -> Result<(), SchemaError> {
    // Check the depth first: serialization and all later walks recurse with the depth of the schema.
    if !is_depth_within(schema, MAX_DEPTH) {
        return Err(SchemaError::TooDeep { limit: MAX_DEPTH });
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES {
        return Err(SchemaError::TooLarge { bytes, limit: MAX_BYTES });
    }
    for (index, part) in all_schemas(schema).into_iter().enumerate() {
        if let Some(remote) = references(part).find(|reference| !reference.starts_with('#')) {
            return Err(SchemaError::RemoteRef(remote.to_owned()));
        }
        // A nested `$id` changes what `#` means below it; tools do not need that.
        if let (1.., Some(id)) = (index, part.get("$id").and_then(Value::as_str)) {
            return Err(SchemaError::NestedId(id.to_owned()));
        }
    }
    if count_patterns(schema) > MAX_PATTERNS {
        return Err(SchemaError::TooComplex { what: "too many different patterns", limit: MAX_PATTERNS });
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

/// Whether a value is nested at most `max_depth` levels; the recursion itself goes no deeper.
pub fn is_depth_within(value: &Value, max_depth: usize) -> bool {
    let is_within = |inner: &Value| {
        !(inner.is_object() || inner.is_array()) || max_depth > 1 && is_depth_within(inner, max_depth - 1)
    };
    match value {
        Value::Object(members) => members.values().all(is_within),
        Value::Array(items) => items.iter().all(is_within),
        _ => true,
    }
}

/// Whether only objects are valid. Terminates, because circular references have been refused before.
fn allows_only_objects<'a>(schema: &'a Value, refs: &RefResolver<'a>) -> bool {
    if schema.get("type").is_some_and(|kind| kind == "object") {
        return true;
    }
    let target = schema.get("$ref").and_then(Value::as_str);
    if let Some(target) = target.and_then(|reference| refs.resolve(reference)) {
        return allows_only_objects(target, refs);
    }
    ["oneOf", "anyOf"].into_iter().any(|keyword| {
        let branches = schema.get(keyword).and_then(Value::as_array);
        branches.is_some_and(|branches| {
            !branches.is_empty() && branches.iter().all(|branch| allows_only_objects(branch, refs))
        })
    })
}

fn describe_type(schema: &Value) -> String {
    match schema.get("type") {
        Some(kind) => format!("{kind}"),
        None if schema.get("oneOf").or_else(|| schema.get("anyOf")).is_some() => {
            "alternatives that are not all objects".into()
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
        let result = match check_arguments_schema(schema) {
            Ok(()) => "valid".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(result.contains(expected), "{result:?} instead of {expected:?}");
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({"type": "object"}), |inner, _| json!({"type": "object", "not": inner}))
    }

    #[test]
    fn size_and_depth_have_limits() {
        check(&json!({"type": "object", "description": "x".repeat(65_000)}), "valid");
        check(&json!({"type": "object", "description": "x".repeat(66_000)}), "at most 65536");
        check(&json!({"type": "object", "default": nested(28)}), "valid");
        check(&nested(32), "deeper than 32");
    }

    #[test]
    fn patterns_are_counted_once_each() {
        let with = |count: usize, distinct: usize| {
            let property = |index: usize| (format!("p{index}"), json!({"pattern": format!("^a{}$", index % distinct)}));
            json!({"type": "object", "properties": (0..count).map(property).collect::<serde_json::Map<_, _>>()})
        };
        check(&with(200, 10), "valid");
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
        check(&with("#"), "valid");
        check(&with("https://example.com/s.json"), "another document");
        check(&with("other.json#/a"), "another document");
        check(&json!({"type": "object", "$defs": {"a": {"$dynamicRef": "file:///etc/passwd"}}}), "another document");
        check(&json!({"type": "object", "properties": {"x": {"$id": "urn:x"}}}), "only at the root");
        check(
            &json!({"type": "object", "properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}}),
            "valid",
        );
    }

    #[test]
    fn arguments_are_objects_also_behind_choices_and_references() {
        let object = json!({"type": "object"});
        check(&json!({"oneOf": [object, object]}), "valid");
        check(&json!({"$ref": "#/$defs/a", "$defs": {"a": object}}), "valid");
        check(&json!({"anyOf": [object, {"type": "null"}]}), "not all objects");
        check(&json!({"type": "string"}), "describes \"string\"");
        check(&json!({"type": ["object", "null"]}), "wrap it");
        check(&json!({}), "add \"type\"");
        check(&json!(true), "anything");
    }
}
