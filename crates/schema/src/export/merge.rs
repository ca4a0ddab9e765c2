//! Intersects two schemas.
//!
//! In: the keywords of two schemas. Out: keywords that accept what both accept, or more if one schema cannot
//! express that. Annotations are taken from the first. References and unions are not touched.

use serde_json::{Map, Value};

/// The keywords of a schema that accepts what both accept.
pub(super) fn intersect(mut first: Map<String, Value>, mut second: Map<String, Value>) -> Map<String, Value> {
    reopen_object(&mut first, &second);
    reopen_object(&mut second, &first);
    for (keyword, theirs) in second {
        let intersection = match first.get(&keyword) {
            Some(ours) => intersect_keyword(&keyword, ours, theirs),
            None => theirs,
        };
        first.insert(keyword, intersection);
    }
    first
}

/// Removes `additionalProperties` if the other schema adds properties: the keyword refers only to the `properties` next to it, so
/// its meaning would change.
fn reopen_object(closed: &mut Map<String, Value>, other: &Map<String, Value>) {
    let properties = |schema: &Map<String, Value>| schema.get("properties").and_then(Value::as_object).cloned();
    let known = properties(closed).unwrap_or_default();
    if properties(other).unwrap_or_default().keys().any(|name| !known.contains_key(name)) {
        closed.remove("additionalProperties");
        closed.remove("unevaluatedProperties");
    }
}

fn intersect_keyword(keyword: &str, ours: &Value, theirs: Value) -> Value {
    match (keyword, ours, theirs) {
        ("properties" | "patternProperties", Value::Object(ours), Value::Object(theirs)) => {
            let mut all = ours.clone();
            for (name, theirs) in theirs {
                let intersection = match ours.get(&name) {
                    Some(ours) => intersect_values(ours, theirs),
                    None => theirs,
                };
                all.insert(name, intersection);
            }
            Value::Object(all)
        }
        ("items" | "additionalProperties", ours, theirs) => intersect_values(ours, theirs),
        ("required" | "allOf", Value::Array(ours), Value::Array(theirs)) => {
            let mut all = ours.clone();
            all.extend(theirs.into_iter().filter(|element| !ours.contains(element)));
            Value::Array(all)
        }
        ("enum", Value::Array(ours), Value::Array(theirs)) => intersect_lists(ours, |value| theirs.contains(value)),
        ("type", ours, theirs) => {
            let common = intersect_lists(&to_list(ours), |kind| {
                let theirs = to_list(&theirs);
                theirs.contains(kind) || (kind == "integer" && theirs.iter().any(|other| other == "number"))
            });
            // `number` intersected with `integer` is `integer`.
            if ours == "number" && theirs == "integer" { theirs } else { unwrap_single(common) }
        }
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", ours, theirs) => {
            if theirs.as_f64() > ours.as_f64() { theirs } else { ours.clone() }
        }
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", ours, theirs) => {
            if theirs.as_f64() < ours.as_f64() { theirs } else { ours.clone() }
        }
        _ => ours.clone(),
    }
}

fn intersect_values(ours: &Value, theirs: Value) -> Value {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => Value::Object(intersect(ours.clone(), theirs)),
        (Value::Bool(true), theirs) => theirs,
        (_, Value::Bool(false)) => Value::Bool(false),
        _ => ours.clone(),
    }
}

/// The elements of both lists. If there are none, the schemas contradict each other and the first list is kept, because an empty one
/// is invalid.
fn intersect_lists(ours: &[Value], in_theirs: impl Fn(&Value) -> bool) -> Value {
    let common: Vec<Value> = ours.iter().filter(|element| in_theirs(element)).cloned().collect();
    if common.is_empty() { ours.to_vec().into() } else { common.into() }
}

fn to_list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
}

fn unwrap_single(value: Value) -> Value {
    match value {
        Value::Array(mut list) if list.len() == 1 => list.remove(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(first: Value, second: Value, expected: Value) {
        let keywords = |schema: Value| schema.as_object().cloned().unwrap();
        assert_eq!(Value::Object(intersect(keywords(first), keywords(second))), expected);
    }

    #[test]
    fn properties_are_united_and_bounds_become_the_tighter_of_the_two() {
        check(
            json!({"type": "object", "properties": {"n": {"type": "number", "minimum": 1, "maximum": 9}}, "required": ["n"]}),
            json!({"properties": {"n": {"type": "integer", "minimum": 3}, "s": true}, "required": ["n", "s"]}),
            json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 9}, "s": true}, "required": ["n", "s"]}),
        );
    }

    #[test]
    fn values_and_types_are_those_that_both_allow() {
        check(
            json!({"type": ["string", "null"], "enum": ["a", "b", null], "description": "one"}),
            json!({"type": "string", "enum": ["b", "c"], "description": "two"}),
            json!({"type": "string", "enum": ["b"], "description": "one"}),
        );
        check(json!({"enum": ["a"]}), json!({"enum": ["b"]}), json!({"enum": ["a"]}));
    }

    #[test]
    fn a_closed_object_opens_only_when_the_other_brings_new_properties() {
        let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
        check(
            closed.clone(),
            json!({"required": ["a"]}),
            json!({"properties": {"a": {}}, "additionalProperties": false, "required": ["a"]}),
        );
        check(closed, json!({"properties": {"b": {}}}), json!({"properties": {"a": {}, "b": {}}}));
    }
}
