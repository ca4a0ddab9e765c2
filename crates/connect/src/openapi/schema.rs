//! Turns schemas of a document into JSON Schema 2020-12 that stands alone.
//!
//! In: schemas of OpenAPI 3.0 or 3.1, and how much of them is wanted. Out: schemas whose references lead into one `$defs`, and those
//! definitions; circles stay circles. What only OpenAPI knows is translated or left out, and so is what no validator would take.
//! Whether the whole is small enough is asked elsewhere; `arguments.rs` asks again for less.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
};

use serde_json::{Map, Value, json};
use toolhub_core::schema::Schema;

use super::{
    document::{Document, is_true, member_text},
    keyword::{self, Keyword},
};

/// Schemas inside each other, without a reference between them. A deeper one would pass the nesting that schemas may have.
const MAX_DEPTH: usize = 12;
/// What a tool's schema may have, in bytes. Here they are counted a little too low, and only so that what is too large in any case ends
/// early: the largest documents have schemas of megabytes behind each of thousands of operations.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// Different schemas that are referred to; a tool's schema may have no more.
const MAX_REFERENCES: usize = 256;
/// Schemas that are looked at to find one word.
const MAX_LOOKUPS: usize = 20;

/// How much of a schema is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detail {
    /// The longest description, in characters.
    pub(super) description: usize,
    pub(super) examples: bool,
    /// References followed in a row; what lies behind the last one may be anything.
    pub(super) references: usize,
    /// Schemas inside each other, at most.
    pub(super) depth: usize,
    pub(super) patterns: bool,
}

/// From everything to next to nothing.
#[rustfmt::skip]
pub(super) const DETAIL_LEVELS: [Detail; 9] = [
    Detail { description: 4_000, examples: true, references: 64, depth: MAX_DEPTH, patterns: true },
    Detail { description: 200, examples: false, references: 64, depth: MAX_DEPTH, patterns: true },
    Detail { description: 100, examples: false, references: 6, depth: MAX_DEPTH, patterns: true },
    Detail { description: 100, examples: false, references: 4, depth: MAX_DEPTH, patterns: true },
    Detail { description: 60, examples: false, references: 3, depth: 8, patterns: true },
    Detail { description: 60, examples: false, references: 2, depth: 8, patterns: false },
    Detail { description: 60, examples: false, references: 1, depth: 6, patterns: false },
    Detail { description: 60, examples: false, references: 0, depth: 4, patterns: false },
    Detail { description: 0, examples: false, references: 0, depth: 2, patterns: false },
];

/// What all operations of one document share: which patterns can be used.
pub(super) struct Patterns(RefCell<HashMap<String, bool>>);

impl Patterns {
    pub(super) fn new() -> Self {
        Self(RefCell::default())
    }

    /// Whether the engine that checks arguments takes this pattern. Many documents have one that it does not: look-around, mostly.
    fn is_usable(&self, pattern: &str) -> bool {
        let mut known = self.0.borrow_mut();
        if let Some(usable) = known.get(pattern) {
            return *usable;
        }
        let alone = json!({"type": "object", "properties": {"x": {"pattern": pattern}}});
        let usable = Schema::compile(alone).is_ok();
        known.insert(pattern.to_owned(), usable);
        usable
    }
}

/// Translates the schemas of one tool; they share their definitions.
pub(super) struct Converter<'d, 'p> {
    document: Document<'d>,
    patterns: &'p Patterns,
    detail: Detail,
    /// The name each reference got, and those whose targets are still to be translated.
    names: BTreeMap<&'d str, String>,
    pending: VecDeque<(&'d str, usize)>,
    bytes: usize,
    /// What was left out, in words.
    pub(super) omissions: BTreeSet<String>,
}

/// Where a schema stands.
#[derive(Clone, Copy)]
struct Nesting {
    /// References on the way here.
    references: usize,
    /// Schemas around it since the last of them.
    depth: usize,
}

impl<'d, 'p> Converter<'d, 'p> {
    pub(super) fn new(document: Document<'d>, patterns: &'p Patterns, detail: Detail) -> Self {
        let (names, open, left_out) = Default::default();
        Self { document, patterns, detail, names, pending: open, bytes: 0, omissions: left_out }
    }

    /// The schema of one argument.
    pub(super) fn convert(&mut self, schema: &'d Value) -> Result<Value, String> {
        self.convert_schema(schema, Nesting { references: 0, depth: 1 })
    }

    /// Everything the schemas so far refer to.
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
        let referred = self.convert_reference(reference, at)?;
        if !self.document.is_v3_0 && members.len() > 1 {
            let mut beside = self.convert_members(members, at)?;
            match (beside.as_object_mut(), referred) {
                (Some(beside), Value::Object(referred)) if referred.contains_key("$ref") => beside.extend(referred),
                (Some(beside), referred) => {
                    let all = beside.entry("allOf").or_insert_with(|| json!([]));
                    all.as_array_mut().into_iter().for_each(|all| all.push(referred.clone()));
                }
                (None, _) => {}
            }
            return Ok(beside);
        }
        Ok(self.with_description(referred, schema))
    }

    /// A reference into `$defs`, or what stands there where that is short.
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
            return Err("its schema refers to too many others".into());
        }
        let name = self.definition_name(reference);
        let referred = json!({"$ref": format!("#/$defs/{name}")});
        self.names.insert(reference, name);
        self.pending.push_back((reference, at.references + 1));
        Ok(referred)
    }

    /// The last part of the reference, so that a model can read it; once more with a number where another has it.
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
        // Whether properties are described by a pattern that cannot be checked: then others may be there too.
        let mut loose = false;
        for (word, value) in members {
            match (keyword::classify(word), value) {
                (Keyword::Schema, Value::Object(_) | Value::Bool(_)) => {
                    out.insert(word.clone(), self.convert_schema(value, inside)?);
                }
                (Keyword::Schema, Value::Array(list)) if word == "items" => {
                    out.insert("prefixItems".into(), self.convert_list(list, inside)?);
                }
                (Keyword::SchemaList, Value::Array(list)) if !list.is_empty() => {
                    out.insert(word.clone(), self.convert_list(list, inside)?);
                }
                (Keyword::SchemaMap, Value::Object(named)) => {
                    let mut kept = Map::new();
                    for (name, one) in named {
                        if word == "properties" && is_read_only(self.document, one) {
                            hidden.push(name.as_str());
                            continue;
                        }
                        if word == "patternProperties" && !self.keeps_pattern(name) {
                            loose = true;
                            continue;
                        }
                        self.count_bytes(name.len() + 4)?;
                        kept.insert(name.clone(), self.convert_schema(one, inside)?);
                    }
                    out.insert(word.clone(), kept.into());
                }
                (Keyword::Pattern, Value::String(pattern)) if self.keeps_pattern(pattern) => {
                    self.count_bytes(pattern.len() + 12)?;
                    out.insert(word.clone(), value.clone());
                }
                (Keyword::Text, Value::String(long)) => {
                    let short = truncate(long, self.detail.description);
                    if !short.is_empty() {
                        self.count_bytes(short.len() + 16)?;
                        out.insert(word.clone(), short.into());
                    }
                }
                (Keyword::Literal(fits), _) if fits(value) => {
                    self.count_bytes(word.len() + keyword::approx_len(value))?;
                    out.insert(word.clone(), value.clone());
                }
                (Keyword::Example, _) if self.detail.examples && keyword::is_small(value) => {
                    let list = if word == "example" { json!([value]) } else { value.clone() };
                    if list.is_array() {
                        out.insert("examples".into(), list);
                    }
                }
                _ => {}
            }
        }
        if loose {
            out.remove("additionalProperties");
        }
        keyword::normalize(&mut out, &hidden);
        keyword::convert_exclusive_bounds(&mut out, members);
        self.discriminate(&mut out, members);
        let nullable = self.document.is_v3_0 && members.get("nullable") == Some(&Value::Bool(true));
        Ok(if nullable { keyword::make_nullable(out) } else { Value::Object(out) })
    }

    /// Whether a pattern is kept.
    fn keeps_pattern(&mut self, pattern: &str) -> bool {
        let usable = self.detail.patterns && self.patterns.is_usable(pattern);
        if self.detail.patterns && !usable {
            let cut: String = pattern.chars().take(80).collect();
            self.omissions.insert(format!("the pattern `{cut}` is not checked before the request"));
        }
        usable
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > MAX_SCHEMA_BYTES { Err("its schema is too large".into()) } else { Ok(()) }
    }

    fn convert_list(&mut self, list: &'d [Value], at: Nesting) -> Result<Value, String> {
        list.iter().map(|one| self.convert_schema(one, at)).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    /// Where a document says which word stands for which form, each form asks for its word.
    fn discriminate(&self, out: &mut Map<String, Value>, members: &'d Map<String, Value>) {
        let Some(discriminator) = members.get("discriminator") else { return };
        let Some(property) = member_text(discriminator, "propertyName") else { return };
        let Some(mapping) = discriminator.get("mapping").and_then(Value::as_object) else { return };
        for keyword in ["oneOf", "anyOf"] {
            let Some(Value::Array(forms)) = members.get(keyword) else { continue };
            let Some(Value::Array(translated)) = out.get_mut(keyword) else { continue };
            for (form, translated) in forms.iter().zip(translated) {
                let Some(reference) = form.get("$ref").and_then(Value::as_str) else { continue };
                let last = reference.rsplit('/').next().unwrap_or_default();
                let meant = |target: &Value| target == reference || target == last;
                let words: Vec<_> = mapping.iter().filter(|(_, target)| meant(target)).map(|(word, _)| word).collect();
                if let (Some(translated), false) = (translated.as_object_mut(), words.is_empty()) {
                    translated.insert("properties".into(), json!({property: {"enum": words}}));
                    translated.insert("required".into(), json!([property]));
                }
            }
        }
    }

    /// Lets anything through, with the words of the schema that was cut.
    fn any_schema(&self, schema: &Value) -> Value {
        self.with_description(json!({}), schema)
    }

    fn with_description(&self, mut schema: Value, words: &Value) -> Value {
        let short = member_text(words, "description").map(|long| truncate(long, self.detail.description));
        if let (Some(members), Some(short)) = (schema.as_object_mut(), short.filter(|short| !short.is_empty())) {
            members.insert("description".into(), short.into());
        }
        schema
    }

    fn note_truncation(&mut self) {
        self.omissions.insert("its schema is large; what lies deep inside is not described and not checked".into());
    }
}

/// Only answers hold it, so no request has it. The word may stand behind a reference, or in a layer; a few of them are looked at.
pub(super) fn is_read_only(document: Document<'_>, schema: &Value) -> bool {
    let mut open = vec![schema];
    for _ in 0..MAX_LOOKUPS {
        let Some(schema) = open.pop() else { break };
        if is_true(schema, "readOnly") {
            return true;
        }
        let behind = schema.get("$ref").and_then(Value::as_str).and_then(|reference| document.target(reference).ok());
        let layers = schema.get("allOf").and_then(Value::as_array).into_iter().flatten().take(MAX_LOOKUPS);
        open.extend(layers.chain(behind));
    }
    false
}

/// At most so many characters, ended where a word ends.
pub(super) fn truncate(text: &str, most: usize) -> String {
    let text = text.trim();
    let Some((end, _)) = text.char_indices().nth(most) else {
        return text.to_owned();
    };
    if most == 0 {
        return String::new();
    }
    let cut = &text[..end];
    let cut = cut.rfind(char::is_whitespace).map_or(cut, |space| &cut[..space]);
    format!("{}…", cut.trim_end())
}
