//! The words a schema is made of: which hold schemas, which hold values, and what such a value must look like.
//!
//! In: keywords and their values as a document has them. Out: how to read each, and repairs that need more than one of them. A value
//! that the standard does not allow is left out rather than refused: one slip should not cost a whole operation.

use serde_json::{Map, Number, Value, json};

/// How the value of a keyword is read.
pub(super) enum Keyword {
    /// One schema.
    Schema,
    /// A list of schemas.
    SchemaList,
    /// Schemas by name.
    SchemaMap,
    /// A regular expression.
    Pattern,
    /// Words for people.
    Text,
    /// A value that is kept as it is where it fits.
    Literal(fn(&Value) -> bool),
    /// A value to show.
    Example,
    /// Nothing that a validator or a model needs.
    Ignored,
}

pub(super) fn classify(word: &str) -> Keyword {
    match word {
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

/// Small enough to be shown, and to keep the nesting of the whole in bounds.
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

/// About how long a value is as text.
pub(super) fn approx_len(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 4,
        Value::Array(items) => items.iter().map(|item| approx_len(item) + 1).sum(),
        Value::Object(members) => members.iter().map(|(name, inner)| name.len() + approx_len(inner)).sum(),
        _ => 4,
    }
}

/// Whether a schema holds no other, so that it may stand wherever it is referred to.
pub(super) fn has_no_subschemas(schema: &Value) -> bool {
    let holds = |word: &String| matches!(classify(word), Keyword::Schema | Keyword::SchemaList | Keyword::SchemaMap);
    let few = schema.get("enum").and_then(Value::as_array).is_none_or(|values| values.len() <= 20);
    few && schema.as_object().is_some_and(|members| !members.contains_key("$ref") && !members.keys().any(holds))
}

/// What depends on more than one keyword: types that exist, required properties that are there.
pub(super) fn normalize(schema: &mut Map<String, Value>, hidden: &[&str]) {
    if let Some(kind) = schema.remove("type") {
        let known = |kind: &Value| {
            ["array", "boolean", "integer", "null", "number", "object", "string"].iter().any(|known| kind == known)
        };
        match kind {
            Value::Array(kinds) => {
                let mut kept: Vec<Value> = Vec::new();
                for kind in kinds.into_iter().filter(known) {
                    if !kept.contains(&kind) {
                        kept.push(kind);
                    }
                }
                if !kept.is_empty() {
                    schema.insert("type".into(), kept.into());
                }
            }
            kind if known(&kind) => {
                schema.insert("type".into(), kind);
            }
            // What uploads were in the version before.
            kind if kind == "file" => {
                schema.insert("type".into(), json!("string"));
            }
            _ => {}
        }
    }
    if let Some(Value::Array(required)) = schema.remove("required") {
        let mut kept: Vec<Value> = Vec::new();
        for name in required {
            if !kept.contains(&name) && !hidden.iter().any(|hidden| name == *hidden) && allows_property(schema, &name) {
                kept.push(name);
            }
        }
        if !kept.is_empty() {
            schema.insert("required".into(), kept.into());
        }
    }
}

/// Whether a schema lets a property be there at all. Some documents require what they forbid, by a slip in its name.
fn allows_property(schema: &Map<String, Value>, name: &Value) -> bool {
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let listed = |word: &str| schema.get(word).and_then(Value::as_object);
    let described = name.as_str().is_some_and(|name| listed("properties").is_some_and(|all| all.contains_key(name)));
    !closed || described || listed("patternProperties").is_some()
}

/// Version 3.0 says `exclusiveMinimum: true` beside the `minimum` it is about.
pub(super) fn convert_exclusive_bounds(schema: &mut Map<String, Value>, written: &Map<String, Value>) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if written.get(exclusive) == Some(&Value::Bool(true))
            && let Some(number) = schema.remove(bound)
        {
            schema.insert(exclusive.into(), number);
        }
    }
}

/// Version 3.0 says `nullable: true`.
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
    if ["allOf", "anyOf", "oneOf", "$ref", "enum", "not"].iter().any(|word| schema.contains_key(*word)) {
        let description = schema.remove("description");
        let mut either = Map::from_iter([("anyOf".to_owned(), json!([schema, {"type": "null"}]))]);
        either.extend(description.map(|words| ("description".to_owned(), words)));
        return either.into();
    }
    schema.into()
}

fn is_string_array(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

fn is_non_negative_integer(value: &Value) -> bool {
    let whole =
        |number: &Number| number.as_u64().is_some() || number.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0);
    value.as_number().is_some_and(whole)
}
