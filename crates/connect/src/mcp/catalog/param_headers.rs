//! Checks the `x-mcp-header` annotations of an input schema.
//!
//! In: an input schema as the server sent it. Out: why it must not be used, if it must not. Over HTTP such an argument is repeated in
//! a header of the request, which must be unambiguous; clients have to drop a tool whose annotations are not.

use std::collections::HashSet;

use serde_json::Value;
use toolhub_core::schema::{Subschema, subschemas};

const KEYWORD: &str = "x-mcp-header";

/// Checks all annotations of a schema.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    if schema.get(KEYWORD).is_some() {
        return Err(format!("`{KEYWORD}` is on the whole schema, not on a property"));
    }
    Check { names: HashSet::new() }.schema(schema, Some(""))
}

struct Check {
    /// The names of headers so far, in lower case.
    names: HashSet<String>,
}

impl Check {
    /// `path` names the property; `None` if the schema is not reached from the root through properties alone.
    fn schema(&mut self, schema: &Value, path: Option<&str>) -> Result<(), String> {
        if let Some(header) = schema.get(KEYWORD) {
            let path =
                path.ok_or_else(|| format!("`{KEYWORD}` is in a part of the schema that is not a plain property"))?;
            self.annotation(schema, header).map_err(|reason| format!("`{KEYWORD}` of `{path}` {reason}"))?;
        }
        for Subschema { keyword, name, schema, .. } in subschemas(schema) {
            let below = match (path, keyword, name) {
                (Some(""), "properties", Some(name)) => Some(name.to_owned()),
                (Some(path), "properties", Some(name)) => Some(format!("{path}.{name}")),
                _ => None,
            };
            self.schema(schema, below.as_deref())?;
        }
        Ok(())
    }

    fn annotation(&mut self, schema: &Value, header: &Value) -> Result<(), &'static str> {
        let header = header.as_str().ok_or("is not a text")?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if header.is_empty() || !header.bytes().all(is_token) {
            return Err("is not the name of a header");
        }
        if !self.names.insert(header.to_ascii_lowercase()) {
            return Err("repeats the header of another property");
        }
        let kind = schema.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err("is on a property that is not a string, an integer or a boolean");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check_schema(schema: Value, expected: Option<&str>) {
        let found = check(&schema).err();
        assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()));
    }

    #[test]
    fn annotations_are_on_plain_properties_with_headers_of_their_own() {
        let header = |name: Value, kind: &str| json!({"type": kind, "x-mcp-header": name});
        let with = |property: Value| json!({"type": "object", "properties": {"a": property, "b": header(json!("B"), "string")}});
        check_schema(json!({}), None);
        check_schema(with(header(json!("Region"), "integer")), None);
        check_schema(with(json!({"type": "object", "properties": {"c": header(json!("C"), "boolean")}})), None);
        check_schema(with(json!({"default": {"x-mcp-header": ""}, "enum": [{"x-mcp-header": 1}]})), None);
        check_schema(with(json!({"properties": {"x-mcp-header": {"type": "string"}}})), None);
        check_schema(header(json!("A"), "object"), Some("whole schema"));
        check_schema(with(header(json!(""), "string")), Some("`x-mcp-header` of `a` is not the name"));
        check_schema(with(header(json!("a b"), "string")), Some("not the name"));
        check_schema(with(header(json!("é"), "string")), Some("not the name"));
        check_schema(with(header(json!(7), "string")), Some("not a text"));
        check_schema(with(header(json!("b"), "string")), Some("repeats"));
        check_schema(with(header(json!("A"), "number")), Some("not a string"));
        check_schema(with(json!({"x-mcp-header": "A"})), Some("not a string"));
        check_schema(with(json!({"items": header(json!("A"), "string")})), Some("not a plain property"));
        check_schema(json!({"$defs": {"a": header(json!("A"), "string")}}), Some("not a plain property"));
        check_schema(
            json!({"anyOf": [{"properties": {"a": header(json!("A"), "string")}}]}),
            Some("not a plain property"),
        );
    }
}
