//! A document and the references inside it.
//!
//! In: the value that was read. Out: its version, and for a value with `$ref` the value it stands for. Only references into the
//! document itself are followed, and only so far. Schemas are not resolved here: `schema.rs` keeps their references.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::ImportError;

/// References in a row until a value that is none.
const MAX_REF_HOPS: usize = 16;

/// An OpenAPI document of a version that is understood.
#[derive(Debug, Clone, Copy)]
pub(super) struct Document<'d> {
    pub(super) root: &'d Value,
    /// Version 3.0, whose schemas are a dialect of their own. From 3.1 on they are JSON Schema 2020-12.
    pub(super) is_v3_0: bool,
}

impl<'d> Document<'d> {
    pub(super) fn new(root: &'d Value) -> Result<Self, ImportError> {
        let Some(members) = root.as_object() else {
            return Err(ImportError::NotOpenApi("its top is no object"));
        };
        if let Some(version) = members.get("swagger") {
            return Err(ImportError::Swagger(to_text(version)));
        }
        let Some(version) = members.get("openapi").map(to_text) else {
            return Err(ImportError::NotOpenApi("it has no `openapi: 3.…` at its top"));
        };
        match version.split('.').collect::<Vec<_>>()[..] {
            ["3", "0", ..] | ["3"] => Ok(Self { root, is_v3_0: true }),
            ["3", "1" | "2", ..] => Ok(Self { root, is_v3_0: false }),
            _ => Err(ImportError::Version(version)),
        }
    }

    /// The value itself, or what its reference stands for.
    pub(super) fn resolve(&self, value: &'d Value) -> Result<&'d Value, String> {
        let mut at = value;
        for _ in 0..MAX_REF_HOPS {
            let Some(reference) = at.get("$ref").and_then(Value::as_str) else {
                return Ok(at);
            };
            at = self.target(reference)?;
        }
        Err(format!("`{}` leads from reference to reference", to_text(&value["$ref"])))
    }

    /// What a reference into this document leads to.
    pub(super) fn target(&self, reference: &str) -> Result<&'d Value, String> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("`{reference}` is in another document; bundle the documents into one first"));
        };
        let found = self.root.pointer(pointer).or_else(|| {
            let decoded = percent_decode_str(pointer).decode_utf8().ok()?;
            self.root.pointer(&decoded)
        });
        found.ok_or_else(|| format!("`{reference}` leads nowhere"))
    }
}

/// A text as it is, anything else as JSON.
pub(super) fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A text that has something in it.
pub(super) fn member_text<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
}

/// Whether a member is there and true.
pub(super) fn is_true(value: &Value, member: &str) -> bool {
    value.get(member) == Some(&Value::Bool(true))
}
