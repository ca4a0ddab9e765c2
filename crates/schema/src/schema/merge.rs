//! Lays a schema given by hand over the one inferred from a type.
//!
//! In: both. Out: one schema that says what the author added and allows nothing the type refuses, or the
//! field where they disagree. Whether a keyword alone allows too much is decided by `narrow.rs`.

use serde_json::{Map, Value};

use super::{SchemaError, description, limits, refs::RefResolver, subsumes};
use crate::suggest::closest;
use toolhub_types::problem::quote;

/// Both schemas are walked together by recursion, and references by hand may never end.
const MAX_DEPTH: usize = 32;

/// Words for readers, which never make a schema wider or narrower.
const ANNOTATION_KEYWORDS: [&str; 8] =
    ["title", "description", "examples", "default", "deprecated", "readOnly", "writeOnly", "$comment"];

type Members = Map<String, Value>;

/// The inferred schema with what was given by hand laid over it.
///
/// By hand wins for descriptions, examples and defaults, and may narrow: bounds, `enum`, `type`, `required`.
///
/// # Errors
/// When the schema by hand has a field the type does not have, or allows what the type refuses. A typed
/// function would never see the one and fail on the other.
pub fn merge(inferred: &Value, by_hand: &Value) -> Result<Value, SchemaError> {
    for schema in [inferred, by_hand] {
        if !limits::is_depth_within(schema, MAX_DEPTH) {
            return Err(SchemaError::TooDeep { most: MAX_DEPTH });
        }
    }
    let both = Merger { inferred: RefResolver::new(inferred), by_hand: RefResolver::new(by_hand) };
    both.merge(inferred, by_hand, &MergePath { field: String::new(), depth_left: MAX_DEPTH })
}

/// Where we are, and how much further we may go.
struct MergePath {
    field: String,
    depth_left: usize,
}

impl MergePath {
    fn child(&self, name: &str) -> Self {
        let dot = if self.field.is_empty() || name.starts_with('[') { "" } else { "." };
        Self {
            field: format!("{}{dot}{}", self.field, quote::text(name)),
            depth_left: self.depth_left.saturating_sub(1),
        }
    }

    fn descend(&self) -> Self {
        Self { field: self.field.clone(), depth_left: self.depth_left.saturating_sub(1) }
    }

    fn name(&self) -> String {
        if self.field.is_empty() { "arguments".into() } else { self.field.clone() }
    }

    fn error(&self, why: &str) -> SchemaError {
        SchemaError::InvalidOverride { field: self.name(), why: why.into() }
    }
}

struct Merger<'a> {
    inferred: RefResolver<'a>,
    by_hand: RefResolver<'a>,
}

impl Merger<'_> {
    fn merge(&self, inferred: &Value, by_hand: &Value, place: &MergePath) -> Result<Value, SchemaError> {
        if place.depth_left == 0 {
            return Err(place.error("the references by hand do not come to an end; write the fields out"));
        }
        let (under, over) = match (inferred, by_hand) {
            (_, Value::Bool(true)) => return Ok(inferred.clone()),
            (_, Value::Bool(false)) => return Ok(Value::Bool(false)),
            (Value::Object(under), Value::Object(over)) => (under, over),
            (_, Value::Object(_)) => return Ok(by_hand.clone()),
            _ => return Err(place.error("a schema is an object, `true` or `false`")),
        };
        if under.keys().all(|keyword| is_annotation(keyword)) {
            // The type takes anything here.
            return Ok(overlay(under, over));
        }
        if let (Some(to), Some(too)) = (under.get("$ref"), over.get("$ref"))
            && to == too
        {
            // Both mean the same place, and what stands there is laid together on its own.
            return Ok(overlay(under, over));
        }
        if let Some(target) = over.get("$ref").and_then(Value::as_str) {
            let over = inline_ref(over, target, &self.by_hand)?;
            return self.merge(inferred, &over, &place.descend());
        }
        if over.keys().all(|keyword| is_annotation(keyword)) {
            return Ok(overlay(under, over));
        }
        if let Some(target) = under.get("$ref").and_then(Value::as_str) {
            let under = inline_ref(under, target, &self.inferred)?;
            return self.merge(&under, by_hand, &place.descend());
        }
        match description::branches(inferred) {
            Some(forms) if !under.contains_key("properties") => self.merge_choice(under, forms, over, place),
            _ => self.merge_keywords(under, over, place),
        }
    }

    fn merge_keywords(&self, under: &Members, over: &Members, place: &MergePath) -> Result<Value, SchemaError> {
        let inferred = Value::Object(under.clone());
        let mut merged = under.clone();
        for (keyword, value) in over {
            self.ensure_not_wider(&inferred, keyword, value, place)?;
            let there = under.get(keyword);
            let value = match (keyword.as_str(), there) {
                ("properties", _) => self.merge_properties(&inferred, value, place)?,
                ("required", _) => continue,
                ("items" | "additionalProperties", Some(there)) => self.merge(there, value, &place.child("[]"))?,
                ("prefixItems", Some(Value::Array(there))) => self.merge_tuple(there, value, place)?,
                ("$defs" | "definitions", Some(Value::Object(there))) => self.merge_definitions(there, value, place)?,
                ("allOf" | "anyOf" | "oneOf" | "not", Some(there)) if there != value => {
                    // Both must hold, and one object holds each keyword only once.
                    push_all_of(&mut merged, keyword, value);
                    continue;
                }
                _ => value.clone(),
            };
            merged.insert(keyword.clone(), value);
        }
        self.merge_required(&mut merged, &inferred, over, place)?;
        Ok(Value::Object(merged))
    }

    fn ensure_not_wider(
        &self,
        inferred: &Value,
        keyword: &str,
        by_hand: &Value,
        place: &MergePath,
    ) -> Result<(), SchemaError> {
        match subsumes::find_widening(inferred, &self.inferred, keyword, by_hand) {
            None => Ok(()),
            Some(allowed) => Err(SchemaError::Wider {
                field: place.name(),
                keyword: keyword.to_owned(),
                by_hand: quote::value(by_hand),
                inferred: allowed,
            }),
        }
    }

    fn merge_properties(&self, inferred: &Value, by_hand: &Value, place: &MergePath) -> Result<Value, SchemaError> {
        let Value::Object(over) = by_hand else {
            return Err(place.error("`properties` is an object of schemas"));
        };
        let known = inferred.get("properties").and_then(Value::as_object);
        let mut merged = known.cloned().unwrap_or_default();
        for (name, schema) in over {
            let place = place.child(name);
            let there = match known.and_then(|known| known.get(name)) {
                Some(there) => there,
                None => {
                    self.additional_properties(inferred).ok_or_else(|| self.unknown_field(inferred, name, &place))?
                }
            };
            merged.insert(name.clone(), self.merge(there, schema, &place)?);
        }
        Ok(Value::Object(merged))
    }

    /// The schema of the properties that have no name in the type, if it takes any.
    fn additional_properties<'v>(&self, inferred: &'v Value) -> Option<&'v Value> {
        match inferred.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(other) => Some(other),
            // Serde ignores unknown fields, so a struct without the keyword takes them and never shows them.
            None if inferred.get("properties").is_some() => None,
            None => Some(&Value::Bool(true)),
        }
    }

    fn unknown_field(&self, inferred: &Value, name: &str, place: &MergePath) -> SchemaError {
        let known = description::known_properties(inferred, &self.inferred);
        let meant = closest(name, known.iter().map(|(name, _)| *name), 1).pop();
        let hint = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        SchemaError::UnknownField { field: place.name(), hint }
    }

    fn merge_tuple(&self, under: &[Value], by_hand: &Value, place: &MergePath) -> Result<Value, SchemaError> {
        let over = by_hand.as_array().filter(|over| over.len() <= under.len());
        let over = over.ok_or_else(|| place.error("`prefixItems` has more items than the type"))?;
        let mut merged = under.to_vec();
        for (at, (item, over)) in merged.iter_mut().zip(over).enumerate() {
            *item = self.merge(item, over, &place.child(&format!("[{at}]")))?;
        }
        Ok(Value::Array(merged))
    }

    fn merge_definitions(&self, under: &Members, by_hand: &Value, place: &MergePath) -> Result<Value, SchemaError> {
        let mut merged = under.clone();
        for (name, schema) in by_hand.as_object().into_iter().flatten() {
            let laid = match under.get(name) {
                Some(there) => self.merge(there, schema, &place.child(name))?,
                None => schema.clone(),
            };
            merged.insert(name.clone(), laid);
        }
        Ok(Value::Object(merged))
    }

    /// What either side requires. What the type requires stays required, whatever is said by hand.
    fn merge_required(
        &self,
        merged: &mut Members,
        inferred: &Value,
        over: &Members,
        place: &MergePath,
    ) -> Result<(), SchemaError> {
        let Some(names) = over.get("required") else {
            return Ok(());
        };
        let names = names.as_array().ok_or_else(|| place.error("`required` is a list of names"))?;
        let mut all = inferred.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let seen = Value::Object(merged.clone());
        let known = description::known_properties(&seen, &self.inferred);
        for name in names {
            let text = name.as_str().ok_or_else(|| place.error("`required` is a list of names"))?;
            let described = known.iter().any(|(known, _)| *known == text);
            if !described && self.additional_properties(inferred).is_none() {
                return Err(SchemaError::UndescribedRequired(place.child(text).field));
            }
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        merged.insert("required".into(), Value::Array(all));
        Ok(())
    }

    /// The type is a choice: an `Option` of an object, or an enum.
    fn merge_choice(
        &self,
        under: &Members,
        forms: &[Value],
        over: &Members,
        place: &MergePath,
    ) -> Result<Value, SchemaError> {
        let null = |form: &&Value| subsumes::allowed_types(form, &self.inferred).is_some_and(|types| types == ["null"]);
        let mut real = forms.iter().filter(|form| !null(form));
        let (Some(form), None) = (real.next(), real.next()) else {
            return self.merge_beside_choice(under, over, place);
        };
        let inferred = Value::Object(under.clone());
        let (notes, mut rest): (Members, Members) =
            over.clone().into_iter().partition(|(keyword, _)| is_annotation(keyword));
        let kind = rest.remove("type");
        if let Some(kind) = &kind {
            self.ensure_not_wider(&inferred, "type", kind, place)?;
        }
        let laid = self.merge(form, &Value::Object(rest), &place.descend())?;
        let nullable = kind.is_none_or(|kind| kind.as_array().is_some_and(|kinds| kinds.contains(&"null".into())));
        if let (false, Value::Object(mut laid)) = (nullable, laid.clone()) {
            let own = under.iter().filter(|(keyword, _)| is_annotation(keyword));
            laid.extend(own.map(|(keyword, value)| (keyword.clone(), value.clone())));
            return Ok(overlay(&laid, &notes));
        }
        let mut merged = under.clone();
        for keyword in ["oneOf", "anyOf"] {
            if let Some(Value::Array(there)) = merged.get_mut(keyword) {
                there.iter_mut().filter(|there| *there == form).for_each(|there| *there = laid.clone());
            }
        }
        Ok(overlay(&merged, &notes))
    }

    /// Several forms are possible, so what is given by hand stands beside them and can only narrow.
    fn merge_beside_choice(&self, under: &Members, over: &Members, place: &MergePath) -> Result<Value, SchemaError> {
        let inferred = Value::Object(under.clone());
        let mut merged = under.clone();
        for (keyword, value) in over {
            match keyword.as_str() {
                "properties" => {
                    self.ensure_fits_a_branch(&inferred, value, place)?;
                    merged.insert(keyword.clone(), value.clone());
                }
                "required" => {}
                // Beside a choice the plain keyword would refuse the properties of its forms.
                "additionalProperties" => {
                    merged.insert("unevaluatedProperties".into(), value.clone());
                }
                "allOf" | "anyOf" | "oneOf" | "not" if under.get(keyword).is_some_and(|there| there != value) => {
                    push_all_of(&mut merged, keyword, value);
                }
                _ => {
                    self.ensure_not_wider(&inferred, keyword, value, place)?;
                    merged.insert(keyword.clone(), value.clone());
                }
            }
        }
        let closed = Value::Object(Map::from_iter([("properties".to_owned(), Value::Object(Map::new()))]));
        self.merge_required(&mut merged, &closed, over, place)?;
        Ok(Value::Object(merged))
    }

    /// Each property must suit one of the forms that have it; which one is meant, only a call will show.
    fn ensure_fits_a_branch(&self, inferred: &Value, by_hand: &Value, place: &MergePath) -> Result<(), SchemaError> {
        let known = description::known_properties(inferred, &self.inferred);
        for (name, schema) in by_hand.as_object().into_iter().flatten() {
            let place = place.child(name);
            let mut refusal = Some(self.unknown_field(inferred, name, &place));
            for (_, there) in known.iter().filter(|(known, _)| known == name) {
                refusal = self.merge(there, schema, &place).err();
                if refusal.is_none() {
                    break;
                }
            }
            refusal.map_or(Ok(()), Err)?;
        }
        Ok(())
    }
}

fn is_annotation(keyword: &str) -> bool {
    ANNOTATION_KEYWORDS.contains(&keyword)
}

/// All members of both, the second winning.
fn overlay(under: &Members, over: &Members) -> Value {
    let mut merged = under.clone();
    merged.extend(over.clone());
    Value::Object(merged)
}

fn push_all_of(merged: &mut Members, keyword: &str, value: &Value) {
    let one = Value::Object(Map::from_iter([(keyword.to_owned(), value.clone())]));
    match merged.entry("allOf").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(all) => all.push(one),
        other => *other = Value::Array(vec![one]),
    }
}

/// A schema with its reference replaced by what it refers to; its other members win.
fn inline_ref(schema: &Members, target: &str, refs: &RefResolver<'_>) -> Result<Value, SchemaError> {
    if !target.starts_with('#') {
        return Err(SchemaError::RemoteRef(target.to_owned()));
    }
    match refs.resolve(target) {
        Some(Value::Object(found)) => {
            let mut merged = found.clone();
            // The definitions of a root that refers to itself stay where they are.
            merged.remove("$defs");
            let own = schema.iter().filter(|(keyword, _)| *keyword != "$ref");
            merged.extend(own.map(|(keyword, value)| (keyword.clone(), value.clone())));
            Ok(Value::Object(merged))
        }
        Some(other) => Ok(other.clone()),
        None => Err(SchemaError::UnresolvedRef(target.to_owned())),
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
