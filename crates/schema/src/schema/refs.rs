//! Where the subschemas of a schema are, and what its references mean.
//!
//! In: one document. Out: the parts of a schema with the value each applies to, and the targets of `#…`.
//! References to other documents have no target here; `limits.rs` refuses them.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// What a subschema applies to, seen from the schema that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliesTo {
    /// The same value.
    SameValue,
    /// The same value, as one of several forms; trying it is not yet a failure.
    Branch,
    /// A property or an item of the value.
    Child,
    /// Nothing, until somebody refers to it.
    Nothing,
}

/// How the value of a keyword holds subschemas.
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
pub(super) fn subschemas(schema: &Value) -> Vec<Subschema<'_>> {
    let mut found = Vec::new();
    let Some(members) = schema.as_object() else {
        return found;
    };
    for (keyword, shape, applies) in &SUBSCHEMA_KEYWORDS {
        let part = |name, schema| Subschema { keyword, applies: *applies, name, schema };
        match (shape, members.get(*keyword)) {
            (Shape::One, Some(one @ (Value::Object(_) | Value::Bool(_)))) => found.push(part(None, one)),
            (Shape::List, Some(Value::Array(list))) => found.extend(list.iter().map(|one| part(None, one))),
            (Shape::Named, Some(Value::Object(named))) => {
                found.extend(named.iter().map(|(name, one)| part(Some(name.as_str()), one)));
            }
            _ => {}
        }
    }
    found
}

/// A subschema and how its parent uses it.
pub(super) struct Subschema<'a> {
    pub(super) keyword: &'static str,
    pub(super) applies: AppliesTo,
    pub(super) name: Option<&'a str>,
    pub(super) schema: &'a Value,
}

/// The references written in this schema itself, not in its parts.
pub(super) fn references(schema: &Value) -> impl Iterator<Item = &str> {
    ["$ref", "$dynamicRef"].into_iter().filter_map(|keyword| schema.get(keyword)?.as_str())
}

/// Every schema of the document in a place where a schema stands, the root first.
pub(super) fn all_schemas(root: &Value) -> Vec<&Value> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(schema) = found.get(at).copied() {
        found.extend(subschemas(schema).into_iter().map(|part| part.schema));
        at += 1;
    }
    found
}

/// What `#…` means in one document.
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

    /// The schema a reference leads to.
    pub(super) fn resolve(&self, reference: &str) -> Option<&'a Value> {
        let fragment = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.root.pointer(&fragment);
        }
        self.anchors.get(&*fragment).copied()
    }

    /// The schema itself, or what its reference leads to after at most a few steps.
    pub(super) fn resolve_chain(&self, schema: &'a Value) -> &'a Value {
        let mut at = schema;
        for _ in 0..8 {
            let next = at.get("$ref").and_then(Value::as_str);
            match next.and_then(|reference| self.resolve(reference)) {
                Some(target) => at = target,
                None => break,
            }
        }
        at
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
