//! The JSON Schema of the config, made from the structs in `raw.rs`.
//!
//! In: the structs, their defaults and their comments. Out: the schema that files are held to, and the one that editors
//! get. They differ in one thing: in a file, any text may be `${VAR}`, and nobody knows what that will be.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::raw::RawConfig;
use crate::builtin;

/// What the values of a config are held to, once every `${VAR}` is replaced.
pub(crate) fn value_schema() -> Value {
    let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RawConfig>();
    let mut schema = root.to_value();
    // The library knows no tools; these are the binary's own.
    schema["$defs"]["Tool"]["properties"]["builtin"]["enum"] = builtin::ALL.map(|builtin| builtin.name).to_vec().into();
    visit_schemas(&mut schema, &mut normalize);
    schema
}

/// What a file is held to: the schema for editors and other programs.
pub(crate) fn file_schema() -> Value {
    let mut schema = value_schema();
    visit_schemas(&mut schema, &mut allow_variables);
    schema["title"] = "toolhub.toml".into();
    schema
}

/// TOML knows no null, and a key that nobody knows is a mistake.
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
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    // The defaults of a table are those of its keys.
    if schema.get("default").is_some_and(|value| value.is_null() || value.is_object()) {
        schema.remove("default");
    }
    // Said by its format alone, other programs would not know.
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
    if let Some(words) = schema.remove("enum") {
        let open = json!([{ "enum": words }, { "type": "string", "pattern": variable }]);
        schema.insert("anyOf".into(), open);
    }
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        choices.push(json!({ "type": "string", "pattern": variable }));
    }
}

/// Every schema inside a schema, the innermost first.
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
