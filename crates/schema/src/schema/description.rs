//! Short descriptions of what a schema expects.
//!
//! In: a schema that passed the limits. Out: `string: City name`, `one of "s", "m"`, `array of integer`.

use serde_json::Value;

use super::refs::{AppliesTo, RefResolver, subschemas};
use toolhub_types::problem::quote;

/// The expected kind of value and its description; empty if the schema has neither.
pub(super) fn describe_expected<'a>(schema: &'a Value, refs: &RefResolver<'a>) -> String {
    let resolved = refs.resolve_chain(schema);
    let kind = describe_kind(schema, refs, 2);
    let purpose = [schema, resolved].into_iter().find_map(|schema| schema.get("description")?.as_str());
    let purpose = purpose.and_then(|text| text.lines().next()).map(|line| quote::truncate(line, 100));
    match (kind.is_empty(), purpose) {
        (_, None) => kind,
        (true, Some(purpose)) => purpose,
        (false, Some(purpose)) => format!("{kind}: {purpose}"),
    }
}

/// The expected kind of value. `depth` bounds the recursion into items and branches.
fn describe_kind<'a>(schema: &'a Value, refs: &RefResolver<'a>, depth: usize) -> String {
    let schema = refs.resolve_chain(schema);
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        let prefix = if options.len() == 1 { "" } else { "one of " };
        return format!("{prefix}{}", quote::list(options.iter()));
    }
    if let Some(constant) = schema.get("const") {
        return quote::value(constant);
    }
    if let Some(branches) = branches(schema) {
        let mut kinds: Vec<String> = Vec::new();
        if depth > 0 {
            kinds.extend(branches.iter().take(4).map(|branch| describe_kind(branch, refs, depth - 1)));
            kinds.retain(|kind| !kind.is_empty() && kind != "null");
            kinds.dedup();
        }
        return kinds.join(" or ");
    }
    let mut names = match schema.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if names.len() > 1 {
        // `null` only says how to omit a value, not what to write.
        names.retain(|name| *name != "null");
    }
    let items = schema.get("items").filter(|_| depth > 0 && names == ["array"]);
    match items.map(|items| describe_kind(items, refs, depth - 1)).filter(|kind| !kind.is_empty()) {
        Some(kind) => format!("array of {kind}"),
        None => names.join(" or "),
    }
}

/// One branch of a union: its kind, or its required properties.
pub(super) fn describe_branch<'a>(schema: &'a Value, refs: &RefResolver<'a>) -> String {
    let schema = refs.resolve_chain(schema);
    let required = schema.get("required").and_then(Value::as_array);
    let named = required.into_iter().flatten().filter_map(Value::as_str).take(4).map(|name| {
        let constant = schema.get("properties").and_then(|properties| properties.get(name)?.get("const"));
        match constant {
            Some(constant) => format!("`{}` = {}", quote::text(name), quote::value(constant)),
            None => format!("`{}`", quote::text(name)),
        }
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { describe_kind(schema, refs, 2) } else { format!("an object with {}", named.join(", ")) }
}

/// The branches of a union.
pub(super) fn branches(schema: &Value) -> Option<&Vec<Value>> {
    schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()
}

/// The properties that a schema describes for the value itself, including those of its branches and references.
pub(super) fn known_properties<'a>(schema: &'a Value, refs: &RefResolver<'a>) -> Vec<(&'a str, &'a Value)> {
    // Circular references are refused, but a wide schema may repeat itself, so the result is bounded.
    const MAX_PROPERTIES: usize = 500;
    let mut found: Vec<(&str, &Value)> = Vec::new();
    let mut pending = vec![schema];
    while let Some(schema) = pending.pop() {
        if found.len() > MAX_PROPERTIES || pending.len() > MAX_PROPERTIES {
            break;
        }
        let named = schema.get("properties").and_then(Value::as_object);
        found.extend(named.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema)));
        let applies_here = |applies| matches!(applies, AppliesTo::SameValue | AppliesTo::Branch);
        let same_value =
            subschemas(schema).into_iter().filter(|part| part.keyword != "not" && applies_here(part.applies));
        pending.extend(same_value.map(|part| part.schema));
        pending.extend(schema.get("$ref").and_then(Value::as_str).and_then(|reference| refs.resolve(reference)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Value, expected: &str) {
        assert_eq!(describe_expected(schema, &RefResolver::new(schema)), expected);
    }

    #[test]
    fn a_schema_is_said_in_a_few_words() {
        check(&json!({"type": "string", "description": "City name\nas on a map"}), "string: City name");
        check(&json!({"type": ["integer", "null"]}), "integer");
        check(&json!({"type": "array", "items": {"type": "string"}}), "array of string");
        check(&json!({"enum": ["s", "m"]}), "one of \"s\", \"m\"");
        check(&json!({"enum": ["s"]}), "\"s\"");
        check(&json!({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}), "string or number");
        check(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "description": "A"}}}), "object: A");
        check(&json!({"description": "free"}), "free");
        check(&json!({"items": {"$ref": "#"}, "type": "array"}), "array of array of array");
        check(&json!(true), "");
    }
}
