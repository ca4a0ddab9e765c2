//! Enumerates the subschemas of a schema and resolves its local references.
//!
//! In: one document. Out: the subschemas of a schema with the value each applies to, and the targets of `#…`.
//! References to other documents do not resolve; `limits.rs` refuses them.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// What a subschema applies to, relative to the schema that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliesTo {
    /// The same value.
    SameValue,
    /// The same value, as one of several branches; a mismatch alone is not a failure.
    Branch,
    /// A property or an item of the value.
    Child,
    /// Nothing, unless a reference refers to it.
    Nothing,
}

/// How the value of a keyword contains subschemas.
enum Shape {
    One,
    List,
    Named,
}

#[rustfmt::skip]
const SUBSCHEMA_KEYWORDS: [(&str, Shape, AppliesTo); 23] = [
    ("allOf", Shape::List, AppliesTo::SameValue),
    ("anyOf", Shape::List, AppliesTo::Branch),
    ("oneOf", Shape::List, AppliesTo::Branch),
    ("not", Shape::One, AppliesTo::Branch),
    ("if", Shape::One, AppliesTo::Branch),
    ("then", Shape::One, AppliesTo::SameValue),
    ("else", Shape::One, AppliesTo::SameValue),
    ("dependentSchemas", Shape::Named, AppliesTo::SameValue),
    ("dependencies", Shape::Named, AppliesTo::SameValue),
    ("properties", Shape::Named, AppliesTo::Child),
    ("patternProperties", Shape::Named, AppliesTo::Child),
    ("additionalProperties", Shape::One, AppliesTo::Child),
    ("unevaluatedProperties", Shape::One, AppliesTo::Child),
    ("propertyNames", Shape::One, AppliesTo::Child),
    ("items", Shape::One, AppliesTo::Child),
    ("items", Shape::List, AppliesTo::Child),
    ("prefixItems", Shape::List, AppliesTo::Child),
    ("additionalItems", Shape::One, AppliesTo::Child),
    ("unevaluatedItems", Shape::One, AppliesTo::Child),
    ("contains", Shape::One, AppliesTo::Child),
    ("contentSchema", Shape::One, AppliesTo::Child),
    ("$defs", Shape::Named, AppliesTo::Nothing),
    ("definitions", Shape::Named, AppliesTo::Nothing),
];

/// The subschemas directly inside this one.
#[must_use]
pub fn subschemas(schema: &Value) -> Vec<Subschema<'_>> {
    let mut found = Vec::new();
    let Some(members) = schema.as_object() else {
        return found;
    };
    for (keyword, shape, applies) in &SUBSCHEMA_KEYWORDS {
        let part = |name, schema| Subschema { keyword, applies: *applies, name, schema };
        match (shape, members.get(*keyword)) {
            (Shape::One, Some(schema @ (Value::Object(_) | Value::Bool(_)))) => found.push(part(None, schema)),
            (Shape::List, Some(Value::Array(list))) => found.extend(list.iter().map(|schema| part(None, schema))),
            (Shape::Named, Some(Value::Object(named))) => {
                found.extend(named.iter().map(|(name, schema)| part(Some(name.as_str()), schema)));
            }
            _ => {}
        }
    }
    found
}

/// A subschema and how its parent uses it.
#[derive(Debug)]
pub struct Subschema<'a> {
    /// The keyword that contains it.
    pub keyword: &'static str,
    pub(super) applies: AppliesTo,
    /// Its name, if the keyword contains schemas by name.
    pub name: Option<&'a str>,
    /// The subschema.
    pub schema: &'a Value,
}

/// The references of this schema itself, not of its subschemas.
pub(super) fn references(schema: &Value) -> impl Iterator<Item = &str> {
    ["$ref", "$dynamicRef"].into_iter().filter_map(|keyword| schema.get(keyword)?.as_str())
}

/// All schemas of the document, the root first.
pub(super) fn all_schemas(root: &Value) -> Vec<&Value> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(schema) = found.get(next).copied() {
        found.extend(subschemas(schema).into_iter().map(|part| part.schema));
        next += 1;
    }
    found
}

/// Resolves `#…` in one document.
pub(super) struct RefResolver<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
}

impl<'a> RefResolver<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let mut anchors = HashMap::new();
        for schema in all_schemas(root) {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = schema.get(keyword).and_then(Value::as_str) {
                    anchors.entry(name).or_insert(schema);
                }
            }
        }
        Self { root, anchors }
    }

    /// The target of a reference.
    pub(super) fn resolve(&self, reference: &str) -> Option<&'a Value> {
        let fragment = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.root.pointer(&fragment);
        }
        self.anchors.get(&*fragment).copied()
    }

    /// The schema itself, or the target of its reference, following at most 8 references.
    pub(super) fn resolve_chain(&self, schema: &'a Value) -> &'a Value {
        let mut current = schema;
        for _ in 0..8 {
            let reference = current.get("$ref").and_then(Value::as_str);
            match reference.and_then(|reference| self.resolve(reference)) {
                Some(target) => current = target,
                None => break,
            }
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(reference: &str, expected: Option<&str>) {
        let root = json!({
            "title": "root",
            "$defs": {"a b": {"title": "spaced"}, "c": {"title": "named", "$anchor": "here"}},
        });
        let refs = RefResolver::new(&root);
        let found = refs.resolve(reference).and_then(|target| target["title"].as_str());
        assert_eq!(found, expected, "for {reference}");
    }

    #[test]
    fn references_are_found_by_pointer_and_by_anchor_and_nowhere_else() {
        check("#", Some("root"));
        check("#/$defs/c", Some("named"));
        check("#/$defs/a%20b", Some("spaced"));
        check("#here", Some("named"));
        check("#/$defs/a%2", None);
        check("#nowhere", None);
        check("https://example.com/c", None);
    }
}
