//! Infers the schema of a type.
//!
//! In: a type that derives `JsonSchema`. Out: JSON Schema 2020-12, inlined as far as recursion allows.
//! Does not validate the result; `Schema::compile` refuses a schema that does not describe an object.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// The schema of the arguments type `T`; its doc comment stays as the root's `description`.
#[must_use]
pub fn infer<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        // The title is the Rust name of the type, which is of no use to a model.
        root.remove("title");
        if root.get("type").is_some_and(|kind| kind == "object") && !root.contains_key("$ref") {
            // Some providers reject an object without `properties`.
            root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Tells the weather.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Weather {
        /// City name
        city: String,
        days: Option<u8>,
        place: Place,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Place {
        lat: f64,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Tree {
        name: String,
        children: Vec<Tree>,
    }

    #[derive(JsonSchema)]
    struct Nothing {}

    #[track_caller]
    fn check<T: JsonSchema>(expected: &Value) {
        assert_eq!(&infer::<T>(), expected);
    }

    #[test]
    fn a_struct_becomes_one_inlined_object_with_its_doc_comment() {
        check::<Weather>(&json!({
            "description": "Tells the weather.",
            "type": "object",
            "properties": {
                "city": {"description": "City name", "type": "string"},
                "days": {"type": ["integer", "null"], "format": "uint8", "minimum": 0, "maximum": 255},
                "place": {
                    "type": "object",
                    "properties": {"lat": {"type": "number", "format": "double"}},
                    "required": ["lat"],
                },
            },
            "required": ["city", "place"],
        }));
    }

    #[test]
    fn a_recursive_type_keeps_a_reference_that_stays_in_the_document() {
        let tree = infer::<Tree>();
        assert!(tree.get("$schema").is_none() && tree.get("title").is_none());
        assert!(tree.to_string().contains("\"$ref\":\"#"), "{tree}");
    }

    #[test]
    fn a_type_without_fields_is_an_empty_object_and_other_roots_stay_what_they_are() {
        check::<Nothing>(&json!({"type": "object", "properties": {}}));
        check::<String>(&json!({"type": "string"}));
    }
}
