//! Merges a schema given by hand into the one inferred from a type.
//!
//! In: both schemas. Out: one schema with the author's additions that allows nothing the type refuses, or the
//! field where they conflict. `subsumes.rs` decides whether a single keyword allows too much.

use serde_json::{Map, Value};

use super::{SchemaError, description, limits, refs::RefResolver, subsumes};
use crate::suggest::closest;
use toolhub_types::problem::quote;

/// Bounds the recursion: both schemas are walked together, and references given by hand may be circular.
const MAX_DEPTH: usize = 32;

/// Annotations, which never make a schema wider or narrower.
const ANNOTATION_KEYWORDS: [&str; 8] =
    ["title", "description", "examples", "default", "deprecated", "readOnly", "writeOnly", "$comment"];

type Members = Map<String, Value>;

/// Merges the schema given by hand into the inferred one.
///
/// The schema given by hand wins for descriptions, examples and defaults, and may narrow bounds, `enum`, `type` and `required`.
///
/// # Errors
/// When the schema given by hand has a field that the type does not have, or allows what the type refuses. A typed
/// function would never see the former and fail on the latter.
pub fn merge(inferred: &Value, by_hand: &Value) -> Result<Value, SchemaError> {
    for schema in [inferred, by_hand] {
        if !limits::is_depth_within(schema, MAX_DEPTH) {
            return Err(SchemaError::TooDeep { limit: MAX_DEPTH });
        }
    }
    let merger = Merger { inferred: RefResolver::new(inferred), by_hand: RefResolver::new(by_hand) };
    merger.merge(inferred, by_hand, &MergePath { field: String::new(), depth_left: MAX_DEPTH })
}

/// The current field, and the remaining recursion depth.
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

    fn error(&self, reason: &str) -> SchemaError {
        SchemaError::InvalidOverride { field: self.name(), reason: reason.into() }
    }
}

struct Merger<'a> {
    inferred: RefResolver<'a>,
    by_hand: RefResolver<'a>,
}

impl Merger<'_> {
    fn merge(&self, inferred: &Value, by_hand: &Value, path: &MergePath) -> Result<Value, SchemaError> {
        if path.depth_left == 0 {
            return Err(path.error("the references given by hand do not terminate; write the fields out"));
        }
        let (base, patch) = match (inferred, by_hand) {
            (_, Value::Bool(true)) => return Ok(inferred.clone()),
            (_, Value::Bool(false)) => return Ok(Value::Bool(false)),
            (Value::Object(base), Value::Object(patch)) => (base, patch),
            (_, Value::Object(_)) => return Ok(by_hand.clone()),
            _ => return Err(path.error("a schema must be an object, `true` or `false`")),
        };
        if base.keys().all(|keyword| is_annotation(keyword)) {
            // The type accepts any value here.
            return Ok(overlay(base, patch));
        }
        if let (Some(base_ref), Some(patch_ref)) = (base.get("$ref"), patch.get("$ref"))
            && base_ref == patch_ref
        {
            // Both refer to the same definition, which `merge_definitions` merges.
            return Ok(overlay(base, patch));
        }
        if let Some(target) = patch.get("$ref").and_then(Value::as_str) {
            let patch = inline_ref(patch, target, &self.by_hand)?;
            return self.merge(inferred, &patch, &path.descend());
        }
        if patch.keys().all(|keyword| is_annotation(keyword)) {
            return Ok(overlay(base, patch));
        }
        if let Some(target) = base.get("$ref").and_then(Value::as_str) {
            let base = inline_ref(base, target, &self.inferred)?;
            return self.merge(&base, by_hand, &path.descend());
        }
        match description::branches(inferred) {
            Some(branches) if !base.contains_key("properties") => self.merge_choice(base, branches, patch, path),
            _ => self.merge_keywords(base, patch, path),
        }
    }

    fn merge_keywords(&self, base: &Members, patch: &Members, path: &MergePath) -> Result<Value, SchemaError> {
        let inferred = Value::Object(base.clone());
        let mut merged = base.clone();
        for (keyword, value) in patch {
            self.ensure_not_wider(&inferred, keyword, value, path)?;
            let value = match (keyword.as_str(), base.get(keyword)) {
                ("properties", _) => self.merge_properties(&inferred, value, path)?,
                ("required", _) => continue,
                ("items" | "additionalProperties", Some(base)) => self.merge(base, value, &path.child("[]"))?,
                ("prefixItems", Some(Value::Array(base))) => self.merge_tuple(base, value, path)?,
                ("$defs" | "definitions", Some(Value::Object(base))) => self.merge_definitions(base, value, path)?,
                ("allOf" | "anyOf" | "oneOf" | "not", Some(base)) if base != value => {
                    // Both must hold, and an object can have each keyword only once.
                    push_all_of(&mut merged, keyword, value);
                    continue;
                }
                _ => value.clone(),
            };
            merged.insert(keyword.clone(), value);
        }
        self.merge_required(&mut merged, &inferred, patch, path)?;
        Ok(Value::Object(merged))
    }

    fn ensure_not_wider(
        &self,
        inferred: &Value,
        keyword: &str,
        by_hand: &Value,
        path: &MergePath,
    ) -> Result<(), SchemaError> {
        match subsumes::find_widening(inferred, &self.inferred, keyword, by_hand) {
            None => Ok(()),
            Some(allowed) => Err(SchemaError::Wider {
                field: path.name(),
                keyword: keyword.to_owned(),
                by_hand: quote::value(by_hand),
                inferred: allowed,
            }),
        }
    }

    fn merge_properties(&self, inferred: &Value, by_hand: &Value, path: &MergePath) -> Result<Value, SchemaError> {
        let Value::Object(patch) = by_hand else {
            return Err(path.error("`properties` must be an object of schemas"));
        };
        let known = inferred.get("properties").and_then(Value::as_object);
        let mut merged = known.cloned().unwrap_or_default();
        for (name, schema) in patch {
            let path = path.child(name);
            let base = match known.and_then(|known| known.get(name)) {
                Some(base) => base,
                None => {
                    self.additional_properties(inferred).ok_or_else(|| self.unknown_field(inferred, name, &path))?
                }
            };
            merged.insert(name.clone(), self.merge(base, schema, &path)?);
        }
        Ok(Value::Object(merged))
    }

    /// The schema of additional properties, if the type accepts any.
    fn additional_properties<'v>(&self, inferred: &'v Value) -> Option<&'v Value> {
        match inferred.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(other) => Some(other),
            // Serde ignores unknown fields, so a struct without the keyword accepts them but never sees them.
            None if inferred.get("properties").is_some() => None,
            None => Some(&Value::Bool(true)),
        }
    }

    fn unknown_field(&self, inferred: &Value, name: &str, path: &MergePath) -> SchemaError {
        let known = description::known_properties(inferred, &self.inferred);
        let similar = closest(name, known.iter().map(|(name, _)| *name), 1).pop();
        let hint = similar.map(|similar| format!("; did you mean `{similar}`?")).unwrap_or_default();
        SchemaError::UnknownField { field: path.name(), hint }
    }

    fn merge_tuple(&self, base: &[Value], by_hand: &Value, path: &MergePath) -> Result<Value, SchemaError> {
        let patch = by_hand.as_array().filter(|patch| patch.len() <= base.len());
        let patch = patch.ok_or_else(|| path.error("`prefixItems` has more items than the type"))?;
        let mut merged = base.to_vec();
        for (index, (item, patch)) in merged.iter_mut().zip(patch).enumerate() {
            *item = self.merge(item, patch, &path.child(&format!("[{index}]")))?;
        }
        Ok(Value::Array(merged))
    }

    fn merge_definitions(&self, base: &Members, by_hand: &Value, path: &MergePath) -> Result<Value, SchemaError> {
        let mut merged = base.clone();
        for (name, schema) in by_hand.as_object().into_iter().flatten() {
            let definition = match base.get(name) {
                Some(base) => self.merge(base, schema, &path.child(name))?,
                None => schema.clone(),
            };
            merged.insert(name.clone(), definition);
        }
        Ok(Value::Object(merged))
    }

    /// The union of both `required` lists: the schema given by hand cannot make a required property optional.
    fn merge_required(
        &self,
        merged: &mut Members,
        inferred: &Value,
        patch: &Members,
        path: &MergePath,
    ) -> Result<(), SchemaError> {
        let Some(names) = patch.get("required") else {
            return Ok(());
        };
        let names = names.as_array().ok_or_else(|| path.error("`required` must be a list of names"))?;
        let mut all = inferred.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let merged_schema = Value::Object(merged.clone());
        let known = description::known_properties(&merged_schema, &self.inferred);
        for name in names {
            let text = name.as_str().ok_or_else(|| path.error("`required` must be a list of names"))?;
            let is_described = known.iter().any(|(known, _)| *known == text);
            if !is_described && self.additional_properties(inferred).is_none() {
                return Err(SchemaError::UndescribedRequired(path.child(text).field));
            }
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        merged.insert("required".into(), Value::Array(all));
        Ok(())
    }

    /// Merges into a union: an `Option` of an object, or an enum.
    fn merge_choice(
        &self,
        base: &Members,
        branches: &[Value],
        patch: &Members,
        path: &MergePath,
    ) -> Result<Value, SchemaError> {
        let is_null =
            |branch: &&Value| subsumes::allowed_types(branch, &self.inferred).is_some_and(|types| types == ["null"]);
        let mut non_null = branches.iter().filter(|branch| !is_null(branch));
        let (Some(branch), None) = (non_null.next(), non_null.next()) else {
            return self.merge_beside_choice(base, patch, path);
        };
        let inferred = Value::Object(base.clone());
        let (annotations, mut constraints): (Members, Members) =
            patch.clone().into_iter().partition(|(keyword, _)| is_annotation(keyword));
        let kind = constraints.remove("type");
        if let Some(kind) = &kind {
            self.ensure_not_wider(&inferred, "type", kind, path)?;
        }
        let merged_branch = self.merge(branch, &Value::Object(constraints), &path.descend())?;
        let nullable = kind.is_none_or(|kind| kind.as_array().is_some_and(|kinds| kinds.contains(&"null".into())));
        if let (false, Value::Object(mut merged)) = (nullable, merged_branch.clone()) {
            let own = base.iter().filter(|(keyword, _)| is_annotation(keyword));
            merged.extend(own.map(|(keyword, value)| (keyword.clone(), value.clone())));
            return Ok(overlay(&merged, &annotations));
        }
        let mut merged = base.clone();
        for keyword in ["oneOf", "anyOf"] {
            if let Some(Value::Array(branches)) = merged.get_mut(keyword) {
                branches.iter_mut().filter(|other| *other == branch).for_each(|other| *other = merged_branch.clone());
            }
        }
        Ok(overlay(&merged, &annotations))
    }

    /// Merges into a union with several possible branches: the keywords given by hand go beside the union and can only narrow it.
    fn merge_beside_choice(&self, base: &Members, patch: &Members, path: &MergePath) -> Result<Value, SchemaError> {
        let inferred = Value::Object(base.clone());
        let mut merged = base.clone();
        for (keyword, value) in patch {
            match keyword.as_str() {
                "properties" => {
                    self.ensure_fits_a_branch(&inferred, value, path)?;
                    merged.insert(keyword.clone(), value.clone());
                }
                "required" => {}
                // Beside a union, `additionalProperties` itself would refuse the properties of the branches.
                "additionalProperties" => {
                    merged.insert("unevaluatedProperties".into(), value.clone());
                }
                "allOf" | "anyOf" | "oneOf" | "not" if base.get(keyword).is_some_and(|base| base != value) => {
                    push_all_of(&mut merged, keyword, value);
                }
                _ => {
                    self.ensure_not_wider(&inferred, keyword, value, path)?;
                    merged.insert(keyword.clone(), value.clone());
                }
            }
        }
        let closed = Value::Object(Map::from_iter([("properties".to_owned(), Value::Object(Map::new()))]));
        self.merge_required(&mut merged, &closed, patch, path)?;
        Ok(Value::Object(merged))
    }

    /// Each property must fit one of the branches that have it; which branch applies is known only at call time.
    fn ensure_fits_a_branch(&self, inferred: &Value, by_hand: &Value, path: &MergePath) -> Result<(), SchemaError> {
        let known = description::known_properties(inferred, &self.inferred);
        for (name, schema) in by_hand.as_object().into_iter().flatten() {
            let path = path.child(name);
            let mut error = Some(self.unknown_field(inferred, name, &path));
            for (_, base) in known.iter().filter(|(known, _)| known == name) {
                error = self.merge(base, schema, &path).err();
                if error.is_none() {
                    break;
                }
            }
            error.map_or(Ok(()), Err)?;
        }
        Ok(())
    }
}

fn is_annotation(keyword: &str) -> bool {
    ANNOTATION_KEYWORDS.contains(&keyword)
}

/// All members of both; the second wins.
fn overlay(base: &Members, patch: &Members) -> Value {
    let mut merged = base.clone();
    merged.extend(patch.clone());
    Value::Object(merged)
}

fn push_all_of(merged: &mut Members, keyword: &str, value: &Value) {
    let schema = Value::Object(Map::from_iter([(keyword.to_owned(), value.clone())]));
    match merged.entry("allOf").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(all) => all.push(schema),
        other => *other = Value::Array(vec![schema]),
    }
}

/// A schema with its reference replaced by the target; its other members win.
fn inline_ref(schema: &Members, target: &str, refs: &RefResolver<'_>) -> Result<Value, SchemaError> {
    if !target.starts_with('#') {
        return Err(SchemaError::RemoteRef(target.to_owned()));
    }
    match refs.resolve(target) {
        Some(Value::Object(found)) => {
            let mut merged = found.clone();
            // If the target is the root, do not copy its definitions.
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
mod tests;
