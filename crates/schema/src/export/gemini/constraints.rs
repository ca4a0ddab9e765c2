//! Carries over what JSON Schema says about a single value.
//!
//! In: the keywords of a schema and its type. Out: Gemini's fields for listed values, formats and bounds, and a line
//! of text for each fact that has no field there.

use serde_json::{Map, Value, json};

/// Adds the fields for listed values, formats and exclusive bounds of a plain value.
pub(super) fn write_value_constraints(written: &mut Map<String, Value>, kind: &str, keywords: &Map<String, Value>) {
    if kind == "string" {
        // An empty text is refused as a value.
        let values: Vec<&str> =
            listed_values(keywords).filter_map(Value::as_str).filter(|value| !value.is_empty()).collect();
        if !values.is_empty() {
            written.insert("enum".into(), json!(values));
        }
    }
    if let Some(format) = keywords.get("format").filter(|format| is_known_format(kind, format)) {
        written.insert("format".into(), format.clone());
    }
    if kind == "integer" {
        for (exclusive, bound, step) in [("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)] {
            let limit = keywords.get(exclusive).and_then(Value::as_i64).and_then(|limit| limit.checked_add(step));
            if let Some(limit) = limit.filter(|_| !written.contains_key(bound)) {
                written.insert(bound.into(), limit.into());
            }
        }
    }
}

/// Whether a number survives in Gemini's bounds, which are floating point; the limit of a 64-bit type does not, and
/// tells a model nothing.
pub(super) fn is_exact(value: &Value) -> bool {
    const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;
    value.as_f64().is_none_or(|number| number.abs() <= MAX_SAFE_INTEGER)
}

/// The facts that no field can hold, as sentences.
pub(super) fn describe_unsupported(kind: &str, keywords: &Map<String, Value>) -> Vec<String> {
    let mut facts = Vec::new();
    if kind != "string" {
        match &listed_values(keywords)
            .filter(|value| matches_type(kind, value))
            .map(Value::to_string)
            .collect::<Vec<_>>()[..]
        {
            [] => {}
            [only] => facts.push(format!("Always {only}.")),
            several => facts.push(format!("One of {}.", several.join(", "))),
        }
    }
    let format = keywords.get("format").filter(|format| !is_known_format(kind, format)).and_then(Value::as_str);
    // The formats that Rust types get tell the model nothing beyond their bounds.
    if let Some(format) = format.filter(|_| kind == "string") {
        facts.push(format!("Format: {format}."));
    }
    if kind == "number" {
        let above = keywords.get("exclusiveMinimum").map(|limit| format!("More than {limit}."));
        let below = keywords.get("exclusiveMaximum").map(|limit| format!("Less than {limit}."));
        facts.extend(above.into_iter().chain(below));
    }
    if matches!(kind, "integer" | "number") {
        facts.extend(keywords.get("multipleOf").map(|step| format!("A multiple of {step}.")));
    }
    if kind == "array" && keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
        facts.push("No item twice.".to_owned());
    }
    if kind == "object" {
        facts.extend(describe_map(keywords));
    }
    facts
}

/// The types that the other keywords of a schema without one speak of.
pub(super) fn implied_types(keywords: &Map<String, Value>) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for kind in listed_values(keywords).filter_map(type_of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let has = |any: &[&str]| any.iter().any(|keyword| keywords.contains_key(*keyword));
    if !kinds.is_empty() {
        kinds
    } else if has(&["properties", "required", "additionalProperties", "patternProperties", "propertyNames"]) {
        vec!["object"]
    } else if has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]) {
        vec!["array"]
    } else if has(&["minLength", "maxLength", "pattern"]) {
        vec!["string"]
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
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
    type_of(value).is_some_and(|own| own == kind || (own == "integer" && kind == "number"))
}

fn listed_values(keywords: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let several = keywords.get("enum").and_then(Value::as_array).into_iter().flatten();
    let only = keywords.get("const");
    several.filter(move |_| only.is_none()).chain(only)
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

/// A map has no field; without a word the model would send it empty.
fn describe_map(keywords: &Map<String, Value>) -> Option<String> {
    let Value::Object(values) = keywords.get("additionalProperties")? else { return None };
    let kind = match values.get("type") {
        Some(Value::String(kind)) => format!(" of type {kind}"),
        _ => String::new(),
    };
    let text = values.get("description").and_then(Value::as_str).map(|text| format!(": {text}")).unwrap_or_default();
    Some(format!("Takes any key, each with a value{kind}{text}."))
}
