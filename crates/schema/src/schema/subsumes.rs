//! Checks that a keyword given by hand allows no more than the type does.
//!
//! In: a keyword with its value given by hand, and the inferred schema at the same location. Out: nothing, or what the type allows,
//! for the message. Only what serde would refuse counts: types, constants, bounds, closed objects.

use serde_json::Value;

use super::{description, refs::RefResolver};
use toolhub_types::problem::quote;

/// What the type allows, if the keyword given by hand allows more.
pub(super) fn find_widening(
    inferred: &Value,
    refs: &RefResolver<'_>,
    keyword: &str,
    by_hand: &Value,
) -> Option<String> {
    match keyword {
        "type" => {
            let types = allowed_types(inferred, refs)?;
            let is_allowed = |name: &Value| name.as_str().is_some_and(|name| allows_type(&types, name));
            let names = by_hand.as_array().map_or(std::slice::from_ref(by_hand), Vec::as_slice);
            (!names.iter().all(is_allowed)).then(|| types.join(" or "))
        }
        "enum" => by_hand.as_array()?.iter().find_map(|value| find_widening_value(inferred, refs, value)),
        "const" => find_widening_value(inferred, refs, by_hand),
        "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
            let limit = inferred.get(keyword)?;
            (by_hand.as_f64()? < limit.as_f64()?).then(|| format!("{limit} or more"))
        }
        "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
            let limit = inferred.get(keyword)?;
            (by_hand.as_f64()? > limit.as_f64()?).then(|| format!("{limit} or less"))
        }
        "uniqueItems" | "additionalProperties" | "items" => {
            let inferred = inferred.get(keyword)?.as_bool()?;
            let strict = keyword == "uniqueItems";
            (inferred == strict && *by_hand != Value::Bool(strict)).then(|| inferred.to_string())
        }
        _ => None,
    }
}

/// The names of the types that a schema allows; `None` if it does not restrict them.
pub(super) fn allowed_types<'a>(schema: &'a Value, refs: &RefResolver<'a>) -> Option<Vec<&'a str>> {
    let schema = refs.resolve_chain(schema);
    match schema.get("type") {
        Some(Value::String(name)) => return Some(vec![name]),
        Some(Value::Array(names)) => return Some(names.iter().filter_map(Value::as_str).collect()),
        _ => {}
    }
    if let Some(values) = constants(schema) {
        return Some(values.into_iter().map(type_of).collect());
    }
    let mut found = Vec::new();
    for branch in description::branches(schema)? {
        // A branch that is itself a union is treated as unrestricted instead of being followed.
        let branch = refs.resolve_chain(branch);
        if description::branches(branch).is_some() {
            return None;
        }
        found.extend(allowed_types(branch, refs)?);
    }
    found.sort_unstable();
    found.dedup();
    Some(found)
}

fn find_widening_value(inferred: &Value, refs: &RefResolver<'_>, value: &Value) -> Option<String> {
    let schema = refs.resolve_chain(inferred);
    let constants = constants(schema).or_else(|| {
        let branches = description::branches(schema)?.iter().map(|branch| constants(refs.resolve_chain(branch)));
        Some(branches.collect::<Option<Vec<_>>>()?.concat())
    });
    if let Some(constants) = constants {
        return (!constants.contains(&value)).then(|| quote::list(constants.into_iter()));
    }
    let types = allowed_types(schema, refs)?;
    (!allows_type(&types, type_of(value))).then(|| types.join(" or "))
}

fn constants(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(constant), _) => Some(vec![constant]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

fn allows_type(types: &[&str], name: &str) -> bool {
    types.contains(&name) || name == "integer" && types.contains(&"number")
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
