//! An OpenAPI document and its references.
//!
//! In: the parsed value. Out: its version, and the targets of `$ref`. Only references into the document itself are followed, up to a
//! limit. Schemas are not resolved here: `schema.rs` keeps their references.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::ImportError;

/// Maximum length of a chain of references.
const MAX_REF_HOPS: usize = 16;

/// An OpenAPI document of a supported version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Document<'d> {
    pub(super) root: &'d Value,
    /// Version 3.0, whose schemas are a separate dialect. From 3.1 on they are JSON Schema 2020-12.
    pub(super) is_v3_0: bool,
}

impl<'d> Document<'d> {
    pub(super) fn new(root: &'d Value) -> Result<Self, ImportError> {
        let Some(members) = root.as_object() else {
            return Err(ImportError::NotOpenApi("it is not an object"));
        };
        if let Some(version) = members.get("swagger") {
            return Err(ImportError::Swagger(to_text(version)));
        }
        let Some(version) = members.get("openapi").map(to_text) else {
            return Err(ImportError::NotOpenApi("it has no `openapi: 3.…` at the top level"));
        };
        match version.split('.').collect::<Vec<_>>()[..] {
            ["3", "0", ..] | ["3"] => Ok(Self { root, is_v3_0: true }),
            ["3", "1" | "2", ..] => Ok(Self { root, is_v3_0: false }),
            _ => Err(ImportError::Version(version)),
        }
    }

    /// The value itself, or the target of its reference.
    pub(super) fn resolve(&self, value: &'d Value) -> Result<&'d Value, String> {
        let mut current = value;
        for _ in 0..MAX_REF_HOPS {
            let Some(reference) = current.get("$ref").and_then(Value::as_str) else {
                return Ok(current);
            };
            current = self.target(reference)?;
        }
        Err(format!("`{}` is circular or a chain of too many references", to_text(&value["$ref"])))
    }

    /// The target of a reference into this document.
    pub(super) fn target(&self, reference: &str) -> Result<&'d Value, String> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("`{reference}` is in another document; bundle the documents into one first"));
        };
        let target = self.root.pointer(pointer).or_else(|| {
            let decoded = percent_decode_str(pointer).decode_utf8().ok()?;
            self.root.pointer(&decoded)
        });
        target.ok_or_else(|| format!("`{reference}` does not exist"))
    }
}

/// A string as it is, anything else as JSON.
pub(super) fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A member that is a non-empty string.
pub(super) fn member_text<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
}

/// Whether a member is `true`.
pub(super) fn is_true(value: &Value, member: &str) -> bool {
    value.get(member) == Some(&Value::Bool(true))
}
