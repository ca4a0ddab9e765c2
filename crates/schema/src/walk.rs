//! Maps the direct subschemas of a schema.
//!
//! In: the keywords of a schema, and a function applied to each direct subschema. Out: the same keywords with the subschemas replaced.
//! Only keywords are considered: a property that happens to be called `$ref` and a default value that looks like a schema
//! are data. Does not recurse.

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

/// Whether this keyword contains one or several schemas.
pub(crate) fn holds_schemas(keyword: &str) -> bool {
    SUBSCHEMA_KEYWORDS.contains(&keyword)
}

/// Whether this keyword contains schemas by name.
pub(crate) fn holds_named_schemas(keyword: &str) -> bool {
    MAP_KEYWORDS.contains(&keyword)
}

/// The keywords with every direct subschema replaced by the result of `map`.
pub(crate) fn map_subschemas<'a>(
    keywords: impl IntoIterator<Item = (&'a String, &'a Value)>,
    mut map: impl FnMut(&'a str, &'a Value) -> Value,
) -> Map<String, Value> {
    let mut mapped = Map::new();
    for (keyword, value) in keywords {
        let new_value = match value {
            _ if !holds_schemas(keyword) => value.clone(),
            Value::Object(named) if holds_named_schemas(keyword) => {
                let members = named.iter().map(|(name, inner)| {
                    // `dependencies` may also contain lists of property names.
                    let inner = if is_schema(inner) { map(keyword, inner) } else { inner.clone() };
                    (name.clone(), inner)
                });
                Value::Object(members.collect())
            }
            Value::Array(list) => list.iter().map(|inner| map(keyword, inner)).collect(),
            _ if is_schema(value) => map(keyword, value),
            _ => value.clone(),
        };
        mapped.insert(keyword.clone(), new_value);
    }
    mapped
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}
