//! The JSON Schema of the config, generated from the structs in `raw.rs`.
//!
//! In: the structs, their defaults and their doc comments. Out: the schema for validation, and the one for editors. The latter
//! also accepts `${VAR}` in any string, because the value is unknown before expansion.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::raw::RawConfig;
use crate::builtin;

/// The schema of a config after variables were expanded.
pub(crate) fn value_schema() -> Value {
    let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RawConfig>();
    let mut schema = root.to_value();
    // The library has no bundled tools; these are the binary's own.
    schema["$defs"]["Tool"]["properties"]["builtin"]["enum"] = builtin::ALL.map(|builtin| builtin.name).to_vec().into();
    visit_schemas(&mut schema, &mut normalize);
    schema
}

/// The schema of a config file, for editors and other programs.
pub(crate) fn file_schema() -> Value {
    let mut schema = value_schema();
    visit_schemas(&mut schema, &mut allow_variables);
    schema["title"] = "toolhub.toml".into();
    schema
}

/// TOML has no null, and unknown keys are errors.
fn normalize(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|word| word != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            for (key, value) in only {
                schema.entry(key).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(allowed)) = schema.get_mut("enum") {
        allowed.retain(|word| !word.is_null());
    }
    // A table's default follows from the defaults of its keys.
    if schema.get("default").is_some_and(|value| value.is_null() || value.is_object()) {
        schema.remove("default");
    }
    // Other programs do not know the format `uint32`.
    if schema.get("format").is_some_and(|format| format == "uint32") {
        schema.entry("maximum").or_insert(u32::MAX.into());
    }
    if schema.contains_key("properties") && !schema.contains_key("additionalProperties") {
        schema.insert("additionalProperties".into(), false.into());
    }
}

fn allow_variables(schema: &mut Map<String, Value>) {
    let variable = r"\$\{";
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        schema.insert("pattern".into(), format!("{pattern}|{variable}").into());
    }
    if let Some(allowed) = schema.remove("enum") {
        let open = json!([{ "enum": allowed }, { "type": "string", "pattern": variable }]);
        schema.insert("anyOf".into(), open);
    }
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        choices.push(json!({ "type": "string", "pattern": variable }));
    }
}

/// Visits every subschema, innermost first.
fn visit_schemas(schema: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    let Value::Object(schema) = schema else { return };
    for key in ["properties", "$defs"] {
        if let Some(Value::Object(inner)) = schema.get_mut(key) {
            inner.values_mut().for_each(|inner| visit_schemas(inner, change));
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key) {
            visit_schemas(inner, change);
        }
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(inner)) = schema.get_mut(key) {
            inner.iter_mut().for_each(|inner| visit_schemas(inner, change));
        }
    }
    change(schema);
}
