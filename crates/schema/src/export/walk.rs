//! Knows where schemas sit inside a schema.
//!
//! In: a schema's keywords and what to do with each schema directly inside. Out: the same keywords, those replaced.
//! Only keywords count: a property that happens to be called `$ref` and a default value that looks like a schema
//! are data. Does not descend by itself.

use serde_json::{Map, Value};

const SUBSCHEMA_KEYWORDS: [&str; 22] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$defs",
    "definitions",
];
const MAP_KEYWORDS: [&str; 6] =
    ["dependencies", "dependentSchemas", "patternProperties", "properties", "$defs", "definitions"];

/// Whether this keyword holds schemas, one or several.
pub(super) fn holds_schemas(keyword: &str) -> bool {
    SUBSCHEMA_KEYWORDS.contains(&keyword)
}

/// The keywords with every schema directly inside replaced by what `change` makes of it.
pub(super) fn map_subschemas<'a>(
    keywords: impl IntoIterator<Item = (&'a String, &'a Value)>,
    mut change: impl FnMut(&'a str, &'a Value) -> Value,
) -> Map<String, Value> {
    let mut changed = Map::new();
    for (keyword, value) in keywords {
        let new = match value {
            _ if !holds_schemas(keyword) => value.clone(),
            Value::Object(named) if MAP_KEYWORDS.contains(&keyword.as_str()) => {
                let each = named.iter().map(|(name, inner)| {
                    // `dependencies` may hold lists of property names between the schemas.
                    let inner = if is_schema(inner) { change(keyword, inner) } else { inner.clone() };
                    (name.clone(), inner)
                });
                Value::Object(each.collect())
            }
            Value::Array(list) => list.iter().map(|inner| change(keyword, inner)).collect(),
            _ if is_schema(value) => change(keyword, value),
            _ => value.clone(),
        };
        changed.insert(keyword.clone(), new);
    }
    changed
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}
