//! Converts the constraints on a single value.
//!
//! In: the keywords of a schema and its type. Out: Gemini's fields for enums, formats and bounds, and a sentence
//! for each constraint that Gemini has no field for.

use serde_json::{Map, Value, json};

/// Adds the fields for the enum, format and exclusive bounds of a scalar value.
pub(super) fn write_value_constraints(converted: &mut Map<String, Value>, kind: &str, keywords: &Map<String, Value>) {
    if kind == "string" {
        // Gemini rejects an empty string in `enum`.
        let values: Vec<&str> =
            listed_values(keywords).filter_map(Value::as_str).filter(|value| !value.is_empty()).collect();
        if !values.is_empty() {
            converted.insert("enum".into(), json!(values));
        }
    }
    if let Some(format) = keywords.get("format").filter(|format| is_known_format(kind, format)) {
        converted.insert("format".into(), format.clone());
    }
    if kind == "integer" {
        for (exclusive, bound, step) in [("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)] {
            let limit = keywords.get(exclusive).and_then(Value::as_i64).and_then(|limit| limit.checked_add(step));
            if let Some(limit) = limit.filter(|_| !converted.contains_key(bound)) {
                converted.insert(bound.into(), limit.into());
            }
        }
    }
}

/// Whether Gemini's bounds, which are floating point, can represent a number exactly. They cannot represent the limits of a 64-bit
/// type, which are of no use to a model anyway.
pub(super) fn is_exact(value: &Value) -> bool {
    const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;
    value.as_f64().is_none_or(|number| number.abs() <= MAX_SAFE_INTEGER)
}

/// The constraints that Gemini has no field for, as sentences.
pub(super) fn describe_unsupported(kind: &str, keywords: &Map<String, Value>) -> Vec<String> {
    let mut sentences = Vec::new();
    if kind != "string" {
        match &listed_values(keywords)
            .filter(|value| matches_type(kind, value))
            .map(Value::to_string)
            .collect::<Vec<_>>()[..]
        {
            [] => {}
            [single] => sentences.push(format!("Always {single}.")),
            values => sentences.push(format!("One of {}.", values.join(", "))),
        }
    }
    let format = keywords.get("format").filter(|format| !is_known_format(kind, format)).and_then(Value::as_str);
    // The formats of Rust's number types tell the model nothing beyond their bounds.
    if let Some(format) = format.filter(|_| kind == "string") {
        sentences.push(format!("Format: {format}."));
    }
    if kind == "number" {
        let minimum = keywords.get("exclusiveMinimum").map(|limit| format!("More than {limit}."));
        let maximum = keywords.get("exclusiveMaximum").map(|limit| format!("Less than {limit}."));
        sentences.extend(minimum.into_iter().chain(maximum));
    }
    if matches!(kind, "integer" | "number") {
        sentences.extend(keywords.get("multipleOf").map(|step| format!("A multiple of {step}.")));
    }
    if kind == "array" && keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
        sentences.push("No item twice.".to_owned());
    }
    if kind == "object" {
        sentences.extend(describe_map(keywords));
    }
    sentences
}

/// The types implied by the keywords of a schema without `type`.
pub(super) fn implied_types(keywords: &Map<String, Value>) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for kind in listed_values(keywords).filter_map(type_of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let has_any = |names: &[&str]| names.iter().any(|keyword| keywords.contains_key(*keyword));
    if !kinds.is_empty() {
        kinds
    } else if has_any(&["properties", "required", "additionalProperties", "patternProperties", "propertyNames"]) {
        vec!["object"]
    } else if has_any(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]) {
        vec!["array"]
    } else if has_any(&["minLength", "maxLength", "pattern"]) {
        vec!["string"]
    } else if has_any(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        vec!["number"]
    } else {
        Vec::new()
    }
}

fn type_of(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => None,
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("array"),
        Value::Object(_) => Some("object"),
    }
}

fn matches_type(kind: &str, value: &Value) -> bool {
    type_of(value).is_some_and(|actual| actual == kind || (actual == "integer" && kind == "number"))
}

fn listed_values(keywords: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let values = keywords.get("enum").and_then(Value::as_array).into_iter().flatten();
    let constant = keywords.get("const");
    values.filter(move |_| constant.is_none()).chain(constant)
}

fn is_known_format(kind: &str, format: &Value) -> bool {
    let known: &[&str] = match kind {
        "string" => &["date-time"],
        "integer" => &["int32", "int64"],
        "number" => &["float", "double"],
        _ => &[],
    };
    known.iter().any(|known| format == known)
}

/// Gemini has no field for maps; without a description the model would send an empty one.
fn describe_map(keywords: &Map<String, Value>) -> Option<String> {
    let Value::Object(values) = keywords.get("additionalProperties")? else { return None };
    let kind = match values.get("type") {
        Some(Value::String(kind)) => format!(" of type {kind}"),
        _ => String::new(),
    };
    let text = values.get("description").and_then(Value::as_str).map(|text| format!(": {text}")).unwrap_or_default();
    Some(format!("Takes any key, each with a value{kind}{text}."))
}
