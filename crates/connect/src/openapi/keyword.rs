//! JSON Schema keywords: which ones contain schemas, which ones contain values, and which values are valid.
//!
//! In: keywords and their values as a document has them. Out: how to convert each, and repairs that involve several of them. An invalid
//! value is dropped rather than refused, so that one mistake does not make a whole operation unusable.

use serde_json::{Map, Number, Value, json};

/// How the value of a keyword is converted.
pub(super) enum Keyword {
    /// One schema.
    Schema,
    /// A list of schemas.
    SchemaList,
    /// Schemas by name.
    SchemaMap,
    /// A regular expression.
    Pattern,
    /// Human-readable text.
    Text,
    /// A value that is kept as it is if it is valid.
    Literal(fn(&Value) -> bool),
    /// An example value.
    Example,
    /// Dropped: neither a validator nor a model needs it.
    Ignored,
}

pub(super) fn classify(keyword: &str) -> Keyword {
    match keyword {
        "items"
        | "additionalProperties"
        | "not"
        | "contains"
        | "propertyNames"
        | "if"
        | "then"
        | "else"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "additionalItems" => Keyword::Schema,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Keyword::SchemaList,
        "properties" | "patternProperties" | "dependentSchemas" => Keyword::SchemaMap,
        "pattern" => Keyword::Pattern,
        "title" | "description" => Keyword::Text,
        "example" | "examples" => Keyword::Example,
        "type" => Keyword::Literal(|value| value.is_string() || value.is_array()),
        "enum" => Keyword::Literal(|value| value.as_array().is_some_and(|values| !values.is_empty())),
        "const" => Keyword::Literal(|_| true),
        "default" => Keyword::Literal(is_small),
        "format" | "contentEncoding" | "contentMediaType" => Keyword::Literal(Value::is_string),
        "maximum" | "minimum" | "exclusiveMaximum" | "exclusiveMinimum" => Keyword::Literal(Value::is_number),
        "multipleOf" => Keyword::Literal(|value| value.as_f64().is_some_and(|number| number > 0.0)),
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties" | "maxContains"
        | "minContains" => Keyword::Literal(is_non_negative_integer),
        "uniqueItems" | "deprecated" => Keyword::Literal(|value| *value == Value::Bool(true)),
        "required" => Keyword::Literal(is_string_array),
        "dependentRequired" => {
            Keyword::Literal(|value| value.as_object().is_some_and(|map| map.values().all(is_string_array)))
        }
        _ => Keyword::Ignored,
    }
}

/// Whether a value is small enough to be included, in length and nesting.
pub(super) fn is_small(value: &Value) -> bool {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    depth(value) <= 3 && value.to_string().len() <= 400
}

/// The approximate length of a value as JSON.
pub(super) fn approx_len(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 4,
        Value::Array(items) => items.iter().map(|item| approx_len(item) + 1).sum(),
        Value::Object(members) => members.iter().map(|(name, inner)| name.len() + approx_len(inner)).sum(),
        _ => 4,
    }
}

/// Whether a schema contains no other schema, so that it can be inlined wherever it is referred to.
pub(super) fn has_no_subschemas(schema: &Value) -> bool {
    let has_schema =
        |keyword: &String| matches!(classify(keyword), Keyword::Schema | Keyword::SchemaList | Keyword::SchemaMap);
    let is_short = schema.get("enum").and_then(Value::as_array).is_none_or(|values| values.len() <= 20);
    is_short
        && schema.as_object().is_some_and(|members| !members.contains_key("$ref") && !members.keys().any(has_schema))
}

/// Repairs a converted schema: drops unknown types, and required properties that are hidden or not allowed.
pub(super) fn normalize(schema: &mut Map<String, Value>, hidden: &[&str]) {
    if let Some(kind) = schema.remove("type") {
        let is_known = |kind: &Value| {
            ["array", "boolean", "integer", "null", "number", "object", "string"].iter().any(|known| kind == known)
        };
        match kind {
            Value::Array(kinds) => {
                let mut valid: Vec<Value> = Vec::new();
                for kind in kinds.into_iter().filter(is_known) {
                    if !valid.contains(&kind) {
                        valid.push(kind);
                    }
                }
                if !valid.is_empty() {
                    schema.insert("type".into(), valid.into());
                }
            }
            kind if is_known(&kind) => {
                schema.insert("type".into(), kind);
            }
            // The type of uploads in Swagger 2.0.
            kind if kind == "file" => {
                schema.insert("type".into(), json!("string"));
            }
            _ => {}
        }
    }
    if let Some(Value::Array(required)) = schema.remove("required") {
        let mut valid: Vec<Value> = Vec::new();
        for name in required {
            if !valid.contains(&name) && !hidden.iter().any(|hidden| name == *hidden) && allows_property(schema, &name)
            {
                valid.push(name);
            }
        }
        if !valid.is_empty() {
            schema.insert("required".into(), valid.into());
        }
    }
}

/// Whether a schema allows a property at all. Some documents require a property that they forbid, because its name is misspelled.
fn allows_property(schema: &Map<String, Value>, name: &Value) -> bool {
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let members = |keyword: &str| schema.get(keyword).and_then(Value::as_object);
    let is_described =
        name.as_str().is_some_and(|name| members("properties").is_some_and(|properties| properties.contains_key(name)));
    !is_closed || is_described || members("patternProperties").is_some()
}

/// Converts `exclusiveMinimum: true` beside `minimum`, as in version 3.0, to a number.
pub(super) fn convert_exclusive_bounds(schema: &mut Map<String, Value>, source: &Map<String, Value>) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if source.get(exclusive) == Some(&Value::Bool(true))
            && let Some(number) = schema.remove(bound)
        {
            schema.insert(exclusive.into(), number);
        }
    }
}

/// Converts `nullable: true`, as in version 3.0.
pub(super) fn make_nullable(mut schema: Map<String, Value>) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        let mut kinds = kind.as_array().cloned().unwrap_or_else(|| vec![kind.clone()]);
        if !kinds.iter().any(|kind| kind == "null") {
            kinds.push("null".into());
        }
        *kind = kinds.into();
        if let Some(Value::Array(values)) = schema.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
        return schema.into();
    }
    if ["allOf", "anyOf", "oneOf", "$ref", "enum", "not"].iter().any(|keyword| schema.contains_key(*keyword)) {
        let description = schema.remove("description");
        let mut either = Map::from_iter([("anyOf".to_owned(), json!([schema, {"type": "null"}]))]);
        either.extend(description.map(|text| ("description".to_owned(), text)));
        return either.into();
    }
    schema.into()
}

fn is_string_array(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

fn is_non_negative_integer(value: &Value) -> bool {
    let is_integer =
        |number: &Number| number.as_u64().is_some() || number.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0);
    value.as_number().is_some_and(is_integer)
}
