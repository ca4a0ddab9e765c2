//! Inlines references: replaces every `$ref` by its target.
//!
//! In: a schema. Out: the same schema without references and definitions, and whether this was lossless.
//! A recursive type is cut at its first recursion, and a schema that would grow without bound is cut
//! at a size limit: the result then accepts more. Never resolves references outside the schema.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::walk;

/// Maximum size of all inlined targets, in keywords and lines of text. A model reads all of it with
/// every request, so that a larger schema would be of no use.
const MAX_EXPANSION: usize = 2_000;
/// Maximum depth of inlined schemas. Many parsers stop at 128 levels of JSON, and each level of a schema takes two.
const MAX_DEPTH: usize = 40;

const DROPPED_KEYWORDS: [&str; 13] = [
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$comment",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "$vocabulary",
    // An OpenAPI keyword that maps values to references, which are inlined.
    "discriminator",
];
/// Annotations; beside a reference they override those of its target.
const ANNOTATION_KEYWORDS: [&str; 8] =
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "example"];

/// A schema without references.
pub(super) struct Inlined {
    pub(super) schema: Value,
    /// Nothing was cut: it accepts exactly what the source accepts (unresolvable references aside).
    pub(super) lossless: bool,
}

/// Inlines every reference in this schema.
pub(super) fn inline(root: &Value) -> Inlined {
    let mut expansion = Expansion { root, active_refs: vec!["#"], budget: MAX_EXPANSION, lossless: true };
    let schema = expansion.expand(root, 0);
    Inlined { schema, lossless: expansion.lossless }
}

struct Expansion<'a> {
    root: &'a Value,
    /// The references being followed; the root counts as one.
    active_refs: Vec<&'a str>,
    budget: usize,
    lossless: bool,
}

impl<'a> Expansion<'a> {
    fn expand(&mut self, value: &'a Value, depth: usize) -> Value {
        let Value::Object(keywords) = value else { return value.clone() };
        // The schema's own text always stays, however large; only inlined copies are counted.
        if self.active_refs.len() > 1 {
            if self.budget == 0 || depth > MAX_DEPTH {
                self.lossless = false;
                return json!({});
            }
            self.budget = self.budget.saturating_sub(cost(keywords));
        }
        let lossless_before = std::mem::replace(&mut self.lossless, !is_dynamic(keywords));
        let retained = keywords.iter().filter(|(keyword, _)| !DROPPED_KEYWORDS.contains(&keyword.as_str()));
        let mut own = walk::map_subschemas(retained, |keyword, inner| match self.expand(inner, depth + 1) {
            // A cut schema accepts more, so its negation would accept less; `not: false` forbids nothing.
            _ if keyword == "not" && !self.lossless => Value::Bool(false),
            expanded => expanded,
        });
        if !self.lossless {
            one_of_to_any_of(&mut own);
        }
        self.lossless &= lossless_before;
        match keywords.get("$ref").and_then(Value::as_str) {
            Some(reference) => combine_with_siblings(self.expand_ref(reference, depth), own),
            None => Value::Object(own),
        }
    }

    fn expand_ref(&mut self, reference: &'a str, depth: usize) -> Value {
        let fragment = local_fragment(self.root, reference);
        // An unresolvable reference constrains nothing, so dropping it loses nothing.
        let Some(target) = find_target(self.root, fragment) else { return json!({}) };
        if self.active_refs.contains(&fragment) {
            self.lossless = false;
            return recursion_placeholder(fragment, target);
        }
        self.active_refs.push(fragment);
        let expanded = self.expand(target, depth + 1);
        self.active_refs.pop();
        expanded
    }
}

/// Whether a schema has a dynamic reference, whose target depends on the context and cannot be inlined.
fn is_dynamic(keywords: &Map<String, Value>) -> bool {
    keywords.contains_key("$dynamicRef") || keywords.contains_key("$recursiveRef")
}

/// Relaxes `oneOf`: a cut branch accepts more and may now match together with another one, which `oneOf` would refuse.
fn one_of_to_any_of(keywords: &mut Map<String, Value>) {
    if let Some(branches) = keywords.remove("oneOf") {
        keywords.entry("anyOf").or_insert(branches);
    }
}

/// The fragment of a reference inside this document, which may also be addressed by its `$id`.
fn local_fragment<'a>(root: &Value, reference: &'a str) -> &'a str {
    let id = root.get("$id").and_then(Value::as_str).unwrap_or("");
    match reference.strip_prefix(id).unwrap_or(reference) {
        "" => "#",
        fragment => fragment,
    }
}

fn find_target<'a>(root: &'a Value, fragment: &str) -> Option<&'a Value> {
    let fragment = fragment.strip_prefix('#')?;
    if fragment.is_empty() || fragment.starts_with('/') {
        return root.pointer(&percent_decode_str(fragment).decode_utf8_lossy());
    }
    let find_anchor = |definitions: &'a Value| {
        let definitions = definitions.as_object()?;
        definitions.values().find(|schema| schema.get("$anchor").and_then(Value::as_str) == Some(fragment))
    };
    ["$defs", "definitions"].into_iter().find_map(|keyword| find_anchor(root.get(keyword)?))
}

/// Stands for a recursive type inside itself: its type only, without its content.
fn recursion_placeholder(fragment: &str, target: &Value) -> Value {
    let mut schema = Map::new();
    if let Some(kind) = common_type(target) {
        schema.insert("type".into(), kind);
    }
    let name = target.get("title").and_then(Value::as_str).or_else(|| fragment.rsplit('/').next());
    let text = match name {
        Some(name) if name != "#" => format!("Another {name}, like the one it is in."),
        _ => "Like the whole it is in.".to_owned(),
    };
    schema.insert("description".into(), text.into());
    Value::Object(schema)
}

/// The `type` of a schema, or the common one of its branches.
fn common_type(schema: &Value) -> Option<Value> {
    let shared = || {
        let branches = ["anyOf", "oneOf"].into_iter().find_map(|union| schema.get(union)?.as_array())?;
        let (first, others) = branches.split_first()?;
        let kind = first.get("type")?;
        others.iter().all(|other| other.get("type") == Some(kind)).then(|| kind.clone())
    };
    schema.get("type").cloned().or_else(shared)
}

/// Combines the target of a reference with the keywords beside the reference.
fn combine_with_siblings(target: Value, mut own: Map<String, Value>) -> Value {
    match target {
        target if own.is_empty() => target,
        Value::Object(mut keywords) if own.keys().all(|keyword| ANNOTATION_KEYWORDS.contains(&keyword.as_str())) => {
            keywords.extend(own);
            Value::Object(keywords)
        }
        // Merging the keywords of both into one schema could change their meaning: `additionalProperties`
        // refers only to the `properties` next to it.
        target => {
            match own.get_mut("allOf") {
                Some(Value::Array(parts)) => parts.push(target),
                _ => {
                    own.insert("allOf".into(), json!([target]));
                }
            }
            Value::Object(own)
        }
    }
}

fn cost(keywords: &Map<String, Value>) -> usize {
    let own = keywords.iter().filter(|(keyword, _)| !walk::holds_schemas(keyword));
    1 + own.map(|(_, value)| size(value)).sum::<usize>()
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / 80,
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(named) => 1 + named.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(schema: Value, expected: Value, lossless: bool) {
        let inlined = inline(&schema);
        assert_eq!(inlined.schema, expected);
        assert_eq!(inlined.lossless, lossless);
    }

    #[test]
    fn references_are_replaced_and_what_is_said_beside_them_wins() {
        check(
            json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "properties": {"home": {"$ref": "#/$defs/Place", "description": "Where you live."}, "work": {"$ref": "#/$defs/Place"}},
                "$defs": {"Place": {"type": "object", "description": "A place.", "properties": {"city": {"$ref": "#/$defs/City"}}},
                          "City": {"type": "string", "$comment": "no list yet"}},
            }),
            json!({"properties": {
                "home": {"type": "object", "description": "Where you live.", "properties": {"city": {"type": "string"}}},
                "work": {"type": "object", "description": "A place.", "properties": {"city": {"type": "string"}}},
            }}),
            true,
        );
    }

    #[test]
    fn constraints_beside_a_reference_hold_as_well_as_those_behind_it() {
        check(
            json!({"$ref": "#/definitions/Short", "minLength": 1, "definitions": {"Short": {"type": "string", "maxLength": 9}}}),
            json!({"minLength": 1, "allOf": [{"type": "string", "maxLength": 9}]}),
            true,
        );
    }

    #[test]
    fn every_spelling_of_a_local_reference_is_understood() {
        for reference in ["#/$defs/a~1b", "#/%24defs/a~1b", "#here", "urn:x#/$defs/a~1b"] {
            check(
                json!({"$id": "urn:x", "items": {"$ref": reference}, "$defs": {"a/b": {"$anchor": "here", "type": "null"}}}),
                json!({"items": {"type": "null"}}),
                true,
            );
        }
    }

    #[test]
    fn a_type_inside_itself_is_cut_where_it_comes_up_again() {
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}});
        let inner = json!({"type": "object", "description": "Another Node, like the one it is in."});
        check(
            json!({"properties": {"first": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}),
            json!({"properties": {"first": {"type": "object", "properties": {"next": inner}}}}),
            false,
        );
        check(
            json!({"type": "object", "properties": {"child": {"$ref": "#"}}}),
            json!({"type": "object", "properties": {"child": {"type": "object", "description": "Like the whole it is in."}}}),
            false,
        );
        check(
            json!({"oneOf": [{"type": "object", "properties": {"not": {"$ref": "#"}}}, {"type": "object"}], "title": "Filter"}),
            json!({"anyOf": [
                {"type": "object", "properties": {"not": {"type": "object", "description": "Another Filter, like the one it is in."}}},
                {"type": "object"},
            ], "title": "Filter"}),
            false,
        );
        check(
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            json!({"description": "Another a, like the one it is in."}),
            false,
        );
    }

    #[test]
    fn nothing_is_forbidden_because_of_a_cut() {
        check(json!({"not": {"required": ["a"], "properties": {"a": {"$ref": "#"}}}}), json!({"not": false}), false);
        check(
            json!({"oneOf": [{"type": "string"}], "not": {"type": "null"}}),
            json!({"oneOf": [{"type": "string"}], "not": {"type": "null"}}),
            true,
        );
    }

    #[test]
    fn what_lies_outside_the_schema_is_never_read() {
        for reference in ["https://example.com/schema.json", "#/$defs/missing", "other.json#/a"] {
            check(json!({"items": {"$ref": reference}}), json!({"items": {}}), true);
        }
    }

    #[test]
    fn a_property_called_ref_and_a_default_that_looks_like_one_are_data() {
        let schema = json!({"properties": {"$ref": {"type": "string"}, "$defs": true}, "default": {"$ref": "#/x"}});
        check(schema.clone(), schema, true);
    }

    #[test]
    fn a_small_schema_cannot_grow_without_end() {
        let step = |n: u32| json!({"properties": {"a": {"$ref": format!("#/$defs/{n}")}, "b": {"$ref": format!("#/$defs/{n}")}}});
        let wide: Map<String, Value> = (0..30).map(|n| (n.to_string(), step(n + 1))).collect();
        let inlined = inline(&json!({"$ref": "#/$defs/0", "$defs": wide}));
        assert!(!inlined.lossless);
        assert!(inlined.schema.to_string().len() < 200_000, "{}", inlined.schema.to_string().len());

        let deep: Map<String, Value> =
            (0..5_000).map(|n| (n.to_string(), json!({"items": {"$ref": format!("#/$defs/{}", n + 1)}}))).collect();
        let inlined = inline(&json!({"$ref": "#/$defs/0", "$defs": deep}));
        assert!(serde_json::from_str::<Value>(&inlined.schema.to_string()).is_ok(), "too deep for a parser");
    }
}
