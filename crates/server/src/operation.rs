//! The OpenAPI description of the inputs of one operation: its parameters and its body.
//!
//! In: the types that a handler takes, one by one. Out: JSON for `openapi.rs`, which assembles the document.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

/// The inputs of an operation under construction.
pub(crate) struct Operation<'a> {
    schemas: &'a mut SchemaGenerator,
    parameters: Vec<Value>,
    body: Option<Value>,
}

impl<'a> Operation<'a> {
    /// An operation without inputs; the schemas of its types are added to `schemas`.
    pub(crate) fn new(schemas: &'a mut SchemaGenerator) -> Self {
        Self { schemas, parameters: Vec::new(), body: None }
    }

    /// The parameters and the body described so far.
    pub(crate) fn into_parts(self) -> (Vec<Value>, Option<Value>) {
        (self.parameters, self.body)
    }

    /// Adds the members of a type as path or query parameters.
    pub(crate) fn parameters<P: JsonSchema>(&mut self, location: &str) {
        // Parameters are listed one by one, so the type itself must not become a `$ref`.
        let schema = P::json_schema(self.schemas);
        self.add_parameters(schema, location);
    }

    fn add_parameters(&mut self, mut schema: Schema, location: &str) {
        let required: Vec<String> =
            schema.get("required").and_then(|names| serde_json::from_value(names.clone()).ok()).unwrap_or_default();
        let Some(Value::Object(properties)) = schema.remove("properties") else { return };
        for (name, mut schema) in properties {
            remove_null(&mut schema);
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let required = location == "path" || required.contains(&name);
            let mut parameter = json!({"name": name, "in": location, "required": required, "schema": schema});
            if let (Some(parameter), Some(text)) = (parameter.as_object_mut(), description) {
                parameter.insert("description".into(), text);
            }
            self.parameters.push(parameter);
        }
    }

    /// Adds a header.
    pub(crate) fn header(&mut self, name: &str, description: &str, schema: &Value) {
        let header =
            json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema});
        self.parameters.push(header);
    }

    /// Sets the body.
    pub(crate) fn body<B: JsonSchema>(&mut self, required: bool) {
        let schema = self.schemas.subschema_for::<B>();
        self.set_body(&schema, required);
    }

    fn set_body(&mut self, schema: &Schema, required: bool) {
        self.body = Some(json!({"required": required, "content": {"application/json": {"schema": schema}}}));
    }
}

/// Removes null from a schema: a path or query parameter is present or absent, never null.
fn remove_null(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            schema["type"] = one.clone();
        }
    }
    let is_null = |one: &Value| one["type"] == "null";
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.retain(|one| !is_null(one));
        if let [one] = any.as_slice() {
            let one = one.clone();
            if let (Some(schema), Value::Object(one)) = (schema.as_object_mut(), one) {
                schema.remove("anyOf");
                schema.extend(one);
            }
        }
    }
}
