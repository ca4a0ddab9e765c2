//! Leaves out the patterns of a foreign schema that the validator does not support: look-around, back-references, very large ones.
//!
//! In: a schema. Out: the same schema with those patterns removed, so that it accepts more, never less; and the removed patterns.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::check::build_validator;
use crate::walk;

/// Whether the validator supports a pattern.
#[must_use]
pub fn is_supported_pattern(pattern: &str) -> bool {
    build_validator(&json!({ "pattern": pattern })).is_ok()
}

/// The schema without unsupported patterns, and these patterns.
#[must_use]
pub fn without_unsupported_patterns(schema: &Value) -> (Value, BTreeSet<String>) {
    let mut removal = Removal::default();
    let loosened = removal.loosen(schema);
    (loosened, removal.removed)
}

#[derive(Default)]
struct Removal {
    removed: BTreeSet<String>,
    /// How many keywords were removed so far.
    count: usize,
}

impl Removal {
    fn loosen(&mut self, schema: &Value) -> Value {
        let Value::Object(members) = schema else { return schema.clone() };
        let mut changed: BTreeSet<&str> = BTreeSet::new();
        let mut own = walk::map_subschemas(members, |keyword, inner| {
            let before = self.count;
            let loosened = self.loosen(inner);
            if self.count > before {
                changed.insert(keyword);
            }
            loosened
        });
        // A looser subschema makes these accept less.
        for (keyword, dropped) in
            [("not", &["not"][..]), ("if", &["if", "then", "else"]), ("contains", &["maxContains"])]
        {
            if changed.contains(keyword) {
                dropped.iter().for_each(|keyword| drop(own.remove(*keyword)));
            }
        }
        if changed.contains("oneOf")
            && let Some(branches) = own.remove("oneOf")
        {
            let any_of = json!({ "anyOf": branches });
            match own.entry("allOf").or_insert_with(|| json!([])) {
                Value::Array(all_of) => all_of.push(any_of),
                other => *other = json!([any_of]),
            }
        }
        self.remove_own(&mut own);
        own.into()
    }

    fn remove_own(&mut self, schema: &mut Map<String, Value>) {
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if pattern.is_some_and(|pattern| self.is_removed(pattern)) {
            schema.remove("pattern");
        }
        let Some(Value::Object(named)) = schema.get_mut("patternProperties") else { return };
        let before = named.len();
        named.retain(|pattern, _| !self.is_removed(pattern));
        if named.len() < before {
            // What the pattern matched must not count as additional.
            schema.remove("additionalProperties");
            schema.remove("unevaluatedProperties");
        }
    }

    fn is_removed(&mut self, pattern: &str) -> bool {
        let removed = self.removed.contains(pattern) || !is_supported_pattern(pattern);
        if removed {
            self.removed.insert(pattern.to_owned());
            self.count += 1;
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(schema: Value, expected: Value) {
        let (loosened, removed) = without_unsupported_patterns(&schema);
        assert_eq!(loosened, expected);
        assert_eq!(removed.is_empty(), schema == expected);
    }

    #[test]
    fn patterns_that_cannot_be_checked_are_removed_and_others_stay() {
        check(json!({"pattern": "^a+$"}), json!({"pattern": "^a+$"}));
        check(
            json!({"properties": {"pattern": {"pattern": "^(?!x)"}, "b": {"pattern": r"(a)\1"}, "c": {"pattern": "["}}}),
            json!({"properties": {"pattern": {}, "b": {}, "c": {}}}),
        );
        check(
            json!({"patternProperties": {"^(?=x)": true, "^y": {}}, "additionalProperties": false}),
            json!({"patternProperties": {"^y": {}}}),
        );
        check(json!({"default": {"pattern": "(?!x)"}}), json!({"default": {"pattern": "(?!x)"}}));
    }

    #[test]
    fn nothing_is_forbidden_because_a_pattern_is_missing() {
        check(json!({"not": {"pattern": "(?!x)"}, "type": "string"}), json!({"type": "string"}));
        check(json!({"if": {"pattern": "(?!x)"}, "then": false, "else": {}}), json!({}));
        check(json!({"then": {"pattern": "(?!x)"}, "if": {}}), json!({"then": {}, "if": {}}));
        check(json!({"contains": {"pattern": "(?!x)"}, "maxContains": 1}), json!({"contains": {}}));
        check(
            json!({"oneOf": [{"pattern": "(?!x)"}, {"type": "string"}], "anyOf": [true]}),
            json!({"anyOf": [true], "allOf": [{"anyOf": [{}, {"type": "string"}]}]}),
        );
    }
}
