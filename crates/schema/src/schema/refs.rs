//! Where the subschemas of a schema are, and what its references mean.
//!
//! In: one document. Out: the parts of a schema with the value each applies to, and the targets of `#…`.
//! References to other documents have no target here; `limits.rs` refuses them.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// What a subschema applies to, seen from the schema that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applies {
    /// The same value.
    Here,
    /// The same value, as one of several forms; trying it is not yet a failure.
    Choice,
    /// A property or an item of the value.
    Inside,
    /// Nothing, until somebody refers to it.
    Nowhere,
}

/// How the value of a keyword holds subschemas.
enum Shape {
    One,
    List,
    Named,
}

#[rustfmt::skip]
const KEYWORDS: [(&str, Shape, Applies); 23] = [
    ("allOf", Shape::List, Applies::Here),
    ("anyOf", Shape::List, Applies::Choice),
    ("oneOf", Shape::List, Applies::Choice),
    ("not", Shape::One, Applies::Choice),
    ("if", Shape::One, Applies::Choice),
    ("then", Shape::One, Applies::Here),
    ("else", Shape::One, Applies::Here),
    ("dependentSchemas", Shape::Named, Applies::Here),
    ("dependencies", Shape::Named, Applies::Here),
    ("properties", Shape::Named, Applies::Inside),
    ("patternProperties", Shape::Named, Applies::Inside),
    ("additionalProperties", Shape::One, Applies::Inside),
    ("unevaluatedProperties", Shape::One, Applies::Inside),
    ("propertyNames", Shape::One, Applies::Inside),
    ("items", Shape::One, Applies::Inside),
    ("items", Shape::List, Applies::Inside),
    ("prefixItems", Shape::List, Applies::Inside),
    ("additionalItems", Shape::One, Applies::Inside),
    ("unevaluatedItems", Shape::One, Applies::Inside),
    ("contains", Shape::One, Applies::Inside),
    ("contentSchema", Shape::One, Applies::Inside),
    ("$defs", Shape::Named, Applies::Nowhere),
    ("definitions", Shape::Named, Applies::Nowhere),
];

/// The subschemas directly inside this one.
pub(super) fn parts(schema: &Value) -> Vec<Part<'_>> {
    let mut found = Vec::new();
    let Some(members) = schema.as_object() else {
        return found;
    };
    for (keyword, shape, applies) in &KEYWORDS {
        let part = |name, schema| Part { keyword, applies: *applies, name, schema };
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
pub(super) struct Part<'a> {
    pub(super) keyword: &'static str,
    pub(super) applies: Applies,
    pub(super) name: Option<&'a str>,
    pub(super) schema: &'a Value,
}

/// The references written in this schema itself, not in its parts.
pub(super) fn references(schema: &Value) -> impl Iterator<Item = &str> {
    ["$ref", "$dynamicRef"].into_iter().filter_map(|keyword| schema.get(keyword)?.as_str())
}

/// Every schema of the document in a place where a schema stands, the root first.
pub(super) fn all(root: &Value) -> Vec<&Value> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(schema) = found.get(at).copied() {
        found.extend(parts(schema).into_iter().map(|part| part.schema));
        at += 1;
    }
    found
}

/// What `#…` means in one document.
pub(super) struct Refs<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
}

impl<'a> Refs<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let mut anchors = HashMap::new();
        for schema in all(root) {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = schema.get(keyword).and_then(Value::as_str) {
                    anchors.entry(name).or_insert(schema);
                }
            }
        }
        Self { root, anchors }
    }

    /// The schema a reference leads to.
    pub(super) fn target(&self, reference: &str) -> Option<&'a Value> {
        let fragment = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.root.pointer(&fragment);
        }
        self.anchors.get(&*fragment).copied()
    }

    /// The schema itself, or what its reference leads to after at most a few steps.
    pub(super) fn resolved(&self, schema: &'a Value) -> &'a Value {
        let mut at = schema;
        for _ in 0..8 {
            let next = at.get("$ref").and_then(Value::as_str);
            match next.and_then(|reference| self.target(reference)) {
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
        let refs = Refs::new(&root);
        let found = refs.target(reference).and_then(|target| target["title"].as_str());
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
