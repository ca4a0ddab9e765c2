//! Converts schemas of a document to self-contained JSON Schema 2020-12.
//!
//! In: schemas of OpenAPI 3.0 or 3.1, and a level of detail. Out: schemas whose references point into one `$defs`, and those definitions;
//! recursive schemas stay recursive. Keywords of OpenAPI are translated or dropped, and so are invalid ones. `arguments.rs` checks the
//! final size, and retries with less detail.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
};

use serde_json::{Map, Value, json};
use toolhub_core::schema;

use super::{
    document::{Document, is_true, member_text},
    keyword::{self, Keyword},
};
use crate::truncate::truncate;

/// Maximum nesting of schemas between two references, so that the result stays within the nesting limit of schemas.
const MAX_DEPTH: usize = 12;
/// The size limit of a tool's schema. Counted here approximately, a little too low, only to give up early: the largest documents have
/// megabytes of schemas behind each of thousands of operations.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// Maximum number of definitions, which is the limit of a tool's schema.
const MAX_REFERENCES: usize = 256;
/// Maximum number of schemas searched for `readOnly`.
const MAX_LOOKUPS: usize = 20;

/// How much of a schema a conversion keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaDetail {
    /// Maximum length of a description, in characters.
    pub(super) description: usize,
    pub(super) examples: bool,
    /// Maximum depth of nested references; beyond that, any value is accepted.
    pub(super) references: usize,
    /// Maximum nesting of schemas.
    pub(super) depth: usize,
    pub(super) patterns: bool,
}

/// From full detail to almost none.
#[rustfmt::skip]
pub(super) const DETAIL_LEVELS: [SchemaDetail; 9] = [
    SchemaDetail { description: 4_000, examples: true, references: 64, depth: MAX_DEPTH, patterns: true },
    SchemaDetail { description: 200, examples: false, references: 64, depth: MAX_DEPTH, patterns: true },
    SchemaDetail { description: 100, examples: false, references: 6, depth: MAX_DEPTH, patterns: true },
    SchemaDetail { description: 100, examples: false, references: 4, depth: MAX_DEPTH, patterns: true },
    SchemaDetail { description: 60, examples: false, references: 3, depth: 8, patterns: true },
    SchemaDetail { description: 60, examples: false, references: 2, depth: 8, patterns: false },
    SchemaDetail { description: 60, examples: false, references: 1, depth: 6, patterns: false },
    SchemaDetail { description: 60, examples: false, references: 0, depth: 4, patterns: false },
    SchemaDetail { description: 0, examples: false, references: 0, depth: 2, patterns: false },
];

/// Cache of which patterns are supported, shared by all operations of a document.
pub(super) struct Patterns(RefCell<HashMap<String, bool>>);

impl Patterns {
    pub(super) fn new() -> Self {
        Self(RefCell::default())
    }

    /// Whether the regex engine of the validator supports a pattern. Many documents use look-around, which it does not.
    fn is_usable(&self, pattern: &str) -> bool {
        let mut cache = self.0.borrow_mut();
        if let Some(usable) = cache.get(pattern) {
            return *usable;
        }
        let usable = schema::is_supported_pattern(pattern);
        cache.insert(pattern.to_owned(), usable);
        usable
    }
}

/// Converts the schemas of one tool, which share their definitions.
pub(super) struct Converter<'d, 'p> {
    document: Document<'d>,
    patterns: &'p Patterns,
    detail: SchemaDetail,
    /// The definition name of each reference, and the references whose targets are not converted yet.
    names: BTreeMap<&'d str, String>,
    pending: VecDeque<(&'d str, usize)>,
    bytes: usize,
    /// What was omitted, as texts of warnings.
    pub(super) omissions: BTreeSet<String>,
}

/// The position of a schema.
#[derive(Clone, Copy)]
struct Nesting {
    /// Number of references from the root.
    references: usize,
    /// Nesting since the last reference.
    depth: usize,
}

impl<'d, 'p> Converter<'d, 'p> {
    pub(super) fn new(document: Document<'d>, patterns: &'p Patterns, detail: SchemaDetail) -> Self {
        let (names, pending, omissions) = Default::default();
        Self { document, patterns, detail, names, pending, bytes: 0, omissions }
    }

    /// Converts the schema of one argument.
    pub(super) fn convert(&mut self, schema: &'d Value) -> Result<Value, String> {
        self.convert_schema(schema, Nesting { references: 0, depth: 1 })
    }

    /// Converts all definitions that the schemas so far refer to.
    pub(super) fn definitions(&mut self) -> Result<Map<String, Value>, String> {
        let mut definitions = Map::new();
        while let Some((reference, references)) = self.pending.pop_front() {
            let target = self.document.target(reference)?;
            let schema = self.convert_schema(target, Nesting { references, depth: 1 })?;
            definitions.insert(self.names[reference].clone(), schema);
        }
        Ok(definitions)
    }

    fn convert_schema(&mut self, schema: &'d Value, at: Nesting) -> Result<Value, String> {
        self.count_bytes(2)?;
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Ok(json!({})),
        };
        if at.depth > self.detail.depth {
            self.note_truncation();
            return Ok(self.any_schema(schema));
        }
        let Some(reference) = members.get("$ref").and_then(Value::as_str) else {
            return self.convert_members(members, at);
        };
        let target = self.convert_reference(reference, at)?;
        if !self.document.is_v3_0 && members.len() > 1 {
            let mut siblings = self.convert_members(members, at)?;
            match (siblings.as_object_mut(), target) {
                (Some(siblings), Value::Object(target)) if target.contains_key("$ref") => siblings.extend(target),
                (Some(siblings), target) => {
                    let all_of = siblings.entry("allOf").or_insert_with(|| json!([]));
                    all_of.as_array_mut().into_iter().for_each(|all_of| all_of.push(target.clone()));
                }
                (None, _) => {}
            }
            return Ok(siblings);
        }
        Ok(self.with_description(target, schema))
    }

    /// A reference into `$defs`, or the inlined target if it is short.
    fn convert_reference(&mut self, reference: &'d str, at: Nesting) -> Result<Value, String> {
        let target = self.document.target(reference)?;
        if let Some(name) = self.names.get(reference) {
            return Ok(json!({"$ref": format!("#/$defs/{name}")}));
        }
        if keyword::has_no_subschemas(target) {
            return self.convert_schema(target, Nesting { depth: at.depth.min(self.detail.depth), ..at });
        }
        if at.references >= self.detail.references {
            self.note_truncation();
            return Ok(self.any_schema(target));
        }
        if self.names.len() >= MAX_REFERENCES {
            return Err("its schema has too many references".into());
        }
        let name = self.definition_name(reference);
        let converted = json!({"$ref": format!("#/$defs/{name}")});
        self.names.insert(reference, name);
        self.pending.push_back((reference, at.references + 1));
        Ok(converted)
    }

    /// The last part of the reference, which is readable for a model; with a number if it is taken.
    fn definition_name(&self, reference: &str) -> String {
        let last = reference.rsplit('/').next().unwrap_or_default();
        let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        let plain: String = last.chars().map(clean).take(60).collect();
        let taken = |name: &String| self.names.values().any(|other| other == name);
        let mut name = plain.clone();
        let mut number = 1;
        while taken(&name) {
            number += 1;
            name = format!("{plain}_{number}");
        }
        name
    }

    fn convert_members(&mut self, members: &'d Map<String, Value>, at: Nesting) -> Result<Value, String> {
        let inside = Nesting { depth: at.depth + 1, ..at };
        let mut out = Map::new();
        let mut hidden = Vec::new();
        // Whether an unsupported property pattern was dropped: then additional properties must be allowed.
        let mut dropped_pattern = false;
        for (keyword, value) in members {
            match (keyword::classify(keyword), value) {
                (Keyword::Schema, Value::Object(_) | Value::Bool(_)) => {
                    out.insert(keyword.clone(), self.convert_schema(value, inside)?);
                }
                (Keyword::Schema, Value::Array(list)) if keyword == "items" => {
                    out.insert("prefixItems".into(), self.convert_list(list, inside)?);
                }
                (Keyword::SchemaList, Value::Array(list)) if !list.is_empty() => {
                    out.insert(keyword.clone(), self.convert_list(list, inside)?);
                }
                (Keyword::SchemaMap, Value::Object(schemas)) => {
                    let mut converted = Map::new();
                    for (name, schema) in schemas {
                        if keyword == "properties" && is_read_only(self.document, schema) {
                            hidden.push(name.as_str());
                            continue;
                        }
                        if keyword == "patternProperties" && !self.keeps_pattern(name) {
                            dropped_pattern = true;
                            continue;
                        }
                        self.count_bytes(name.len() + 4)?;
                        converted.insert(name.clone(), self.convert_schema(schema, inside)?);
                    }
                    out.insert(keyword.clone(), converted.into());
                }
                (Keyword::Pattern, Value::String(pattern)) if self.keeps_pattern(pattern) => {
                    self.count_bytes(pattern.len() + 12)?;
                    out.insert(keyword.clone(), value.clone());
                }
                (Keyword::Text, Value::String(long)) => {
                    let short = truncate(long, self.detail.description);
                    if !short.is_empty() {
                        self.count_bytes(short.len() + 16)?;
                        out.insert(keyword.clone(), short.into());
                    }
                }
                (Keyword::Literal(is_valid), _) if is_valid(value) => {
                    self.count_bytes(keyword.len() + keyword::approx_len(value))?;
                    out.insert(keyword.clone(), value.clone());
                }
                (Keyword::Example, _) if self.detail.examples && keyword::is_small(value) => {
                    let list = if keyword == "example" { json!([value]) } else { value.clone() };
                    if list.is_array() {
                        out.insert("examples".into(), list);
                    }
                }
                _ => {}
            }
        }
        if dropped_pattern {
            out.remove("additionalProperties");
        }
        keyword::normalize(&mut out, &hidden);
        keyword::convert_exclusive_bounds(&mut out, members);
        self.discriminate(&mut out, members);
        let nullable = self.document.is_v3_0 && members.get("nullable") == Some(&Value::Bool(true));
        Ok(if nullable { keyword::make_nullable(out) } else { Value::Object(out) })
    }

    /// Whether a pattern is kept; records an omission if it is not supported.
    fn keeps_pattern(&mut self, pattern: &str) -> bool {
        let usable = self.detail.patterns && self.patterns.is_usable(pattern);
        if self.detail.patterns && !usable {
            let short: String = pattern.chars().take(80).collect();
            self.omissions.insert(format!("the pattern `{short}` is not checked before the request"));
        }
        usable
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > MAX_SCHEMA_BYTES { Err("its schema is too large".into()) } else { Ok(()) }
    }

    fn convert_list(&mut self, list: &'d [Value], at: Nesting) -> Result<Value, String> {
        list.iter().map(|schema| self.convert_schema(schema, at)).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    /// Applies a `discriminator` with a `mapping`: each variant requires its values of the property.
    fn discriminate(&self, out: &mut Map<String, Value>, members: &'d Map<String, Value>) {
        let Some(discriminator) = members.get("discriminator") else { return };
        let Some(property) = member_text(discriminator, "propertyName") else { return };
        let Some(mapping) = discriminator.get("mapping").and_then(Value::as_object) else { return };
        for keyword in ["oneOf", "anyOf"] {
            let Some(Value::Array(variants)) = members.get(keyword) else { continue };
            let Some(Value::Array(converted)) = out.get_mut(keyword) else { continue };
            for (variant, converted) in variants.iter().zip(converted) {
                let Some(reference) = variant.get("$ref").and_then(Value::as_str) else { continue };
                let last = reference.rsplit('/').next().unwrap_or_default();
                let is_target = |target: &Value| target == reference || target == last;
                let values: Vec<_> =
                    mapping.iter().filter(|(_, target)| is_target(target)).map(|(value, _)| value).collect();
                if let (Some(converted), false) = (converted.as_object_mut(), values.is_empty()) {
                    converted.insert("properties".into(), json!({property: {"enum": values}}));
                    converted.insert("required".into(), json!([property]));
                }
            }
        }
    }

    /// A schema that accepts any value, with the description of the schema it replaces.
    fn any_schema(&self, schema: &Value) -> Value {
        self.with_description(json!({}), schema)
    }

    fn with_description(&self, mut schema: Value, source: &Value) -> Value {
        let short = member_text(source, "description").map(|long| truncate(long, self.detail.description));
        if let (Some(members), Some(short)) = (schema.as_object_mut(), short.filter(|short| !short.is_empty())) {
            members.insert("description".into(), short.into());
        }
        schema
    }

    fn note_truncation(&mut self) {
        self.omissions.insert("its schema is large; deeply nested parts are neither described nor checked".into());
    }
}

/// Whether a property is read-only, so that requests must not contain it. `readOnly` may be behind references and `allOf`; a limited
/// number of schemas is searched.
pub(super) fn is_read_only(document: Document<'_>, schema: &Value) -> bool {
    let mut pending = vec![schema];
    for _ in 0..MAX_LOOKUPS {
        let Some(schema) = pending.pop() else { break };
        if is_true(schema, "readOnly") {
            return true;
        }
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| document.target(reference).ok());
        let parts = schema.get("allOf").and_then(Value::as_array).into_iter().flatten().take(MAX_LOOKUPS);
        pending.extend(parts.chain(target));
    }
    false
}
