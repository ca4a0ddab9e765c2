//! Brings schemas of older drafts to draft 2020-12, which is what the validator and most providers expect.
//!
//! In: a schema that follows draft 04, 06, 07 or 2019-09, or mixes their keywords. Out: a schema that accepts the same values, with its
//! references adapted. An invalid schema stays invalid: `Schema::compile` finds out. Reads nothing outside the schema.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::walk;

/// Upgrades a schema. `clean` is applied to its titles, descriptions and comments.
#[must_use]
pub fn upgrade(root: &Value, clean: &dyn Fn(&str) -> String) -> Value {
    Upgrade { root, base: base_uri(root), clean }.schema(root)
}

/// Converts the keywords of one schema, without those of its subschemas and without references.
pub(crate) fn upgrade_keywords(schema: &mut Map<String, Value>) {
    if schema.get("items").is_some_and(Value::is_array) {
        let tuple = schema.remove("items").unwrap_or_default();
        schema.insert("prefixItems".into(), tuple);
        if let Some(additional) = schema.remove("additionalItems") {
            schema.insert("items".into(), additional);
        }
    }
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(Value::Bool(is_exclusive)) = schema.get(exclusive).cloned() {
            schema.remove(exclusive);
            if let Some(limit) = is_exclusive.then(|| schema.remove(bound)).flatten() {
                schema.insert(exclusive.into(), limit);
            }
        }
    }
    // Draft 03: a property says itself that it is required.
    if schema.get("required").is_some_and(Value::is_boolean) {
        schema.remove("required");
    }
    if let Some(Value::Object(dependencies)) = schema.get("dependencies").cloned() {
        schema.remove("dependencies");
        for (property, dependency) in dependencies {
            let keyword = if dependency.is_array() { "dependentRequired" } else { "dependentSchemas" };
            let target = schema.entry(keyword).or_insert_with(|| Map::new().into());
            if let Some(target) = target.as_object_mut() {
                target.entry(property).or_insert(dependency);
            }
        }
    }
}

struct Upgrade<'a> {
    root: &'a Value,
    /// The URI by which the document refers to itself.
    base: Option<&'a str>,
    clean: &'a dyn Fn(&str) -> String,
}

impl<'a> Upgrade<'a> {
    fn schema(&self, schema: &'a Value) -> Value {
        let Value::Object(members) = schema else { return schema.clone() };
        let mut modern = walk::map_subschemas(members, |_, inner| self.schema(inner));
        modern.remove("$schema");
        modern.remove("$recursiveAnchor");
        // Some serializers write null for a keyword without a value.
        modern.retain(|keyword, value| !value.is_null() || ["const", "default", "example"].contains(&keyword.as_str()));
        self.convert_id(schema, &mut modern);
        if moves_definitions(members) {
            let definitions = modern.remove("definitions").unwrap_or_default();
            let target = modern.entry("$defs").or_insert_with(|| Map::new().into());
            if let (Some(target), Value::Object(definitions)) = (target.as_object_mut(), definitions) {
                target.extend(definitions);
            }
        }
        if let Some(Value::String(reference)) = modern.remove("$recursiveRef") {
            modern.entry("$ref").or_insert(reference.into());
        }
        if let Some(Value::String(reference)) = modern.get_mut("$ref") {
            *reference = self.reference(reference);
        }
        for keyword in ["title", "description", "$comment"] {
            if let Some(Value::String(text)) = modern.get_mut(keyword) {
                *text = (self.clean)(text);
            }
        }
        upgrade_keywords(&mut modern);
        modern.into()
    }

    /// The root needs no id once its references are local. A nested id that is only a fragment was an anchor.
    fn convert_id(&self, schema: &Value, modern: &mut Map<String, Value>) {
        for keyword in ["$id", "id"] {
            let Some(id) = modern.get(keyword).and_then(Value::as_str) else { continue };
            let anchor = id.strip_prefix('#').filter(|name| !name.is_empty()).map(str::to_owned);
            if let Some(anchor) = anchor {
                modern.remove(keyword);
                modern.entry("$anchor").or_insert(anchor.into());
            } else if std::ptr::eq(schema, self.root) {
                modern.remove(keyword);
            }
        }
    }

    fn reference(&self, reference: &str) -> String {
        let own = self.base.and_then(|base| reference.strip_prefix(base));
        let local = match own.filter(|rest| rest.is_empty() || rest.starts_with('#')) {
            Some("") => "#",
            Some(fragment) => fragment,
            None => reference,
        };
        match local.strip_prefix("#/") {
            Some(pointer) => format!("#/{}", self.pointer(pointer)),
            None => local.to_owned(),
        }
    }

    /// Adapts a JSON pointer to the keywords that were renamed.
    fn pointer(&self, pointer: &str) -> String {
        let mut place = Place::Schema(self.root);
        let mut adapted = Vec::new();
        for segment in pointer.split('/') {
            let decoded = percent_decode_str(segment).decode_utf8_lossy();
            let name = decoded.replace("~1", "/").replace("~0", "~");
            let (keyword, next) = place.step(&name);
            adapted.push(keyword.unwrap_or(segment));
            place = next;
        }
        adapted.join("/")
    }
}

/// Where a JSON pointer has arrived.
#[derive(Clone, Copy)]
enum Place<'a> {
    Schema(&'a Value),
    /// Schemas by name or index.
    Container(&'a Value),
    Other,
}

impl Place<'_> {
    /// One step further, and the new name of the keyword if it has one.
    fn step(self, name: &str) -> (Option<&'static str>, Self) {
        let (Self::Schema(value) | Self::Container(value)) = self else { return (None, Self::Other) };
        let inner = match value {
            Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            value => value.get(name),
        };
        let (Some(inner), Self::Schema(Value::Object(members))) = (inner, self) else {
            return (None, inner.map_or(Self::Other, Self::Schema));
        };
        match name {
            "definitions" if moves_definitions(members) => (Some("$defs"), Self::Container(inner)),
            "items" if inner.is_array() => (Some("prefixItems"), Self::Container(inner)),
            "additionalItems" if members.get("items").is_some_and(Value::is_array) => {
                (Some("items"), Self::Schema(inner))
            }
            "dependencies" => (Some("dependentSchemas"), Self::Container(inner)),
            name if walk::holds_named_schemas(name) || inner.is_array() => (None, Self::Container(inner)),
            name if walk::holds_schemas(name) => (None, Self::Schema(inner)),
            _ => (None, Self::Other),
        }
    }
}

/// Whether `definitions` can become `$defs`: no name is in both.
fn moves_definitions(schema: &Map<String, Value>) -> bool {
    let Some(Value::Object(definitions)) = schema.get("definitions") else { return false };
    match schema.get("$defs") {
        None => true,
        Some(Value::Object(defs)) => !definitions.keys().any(|name| defs.contains_key(name)),
        Some(_) => false,
    }
}

fn base_uri(root: &Value) -> Option<&str> {
    let id = ["$id", "id"].into_iter().find_map(|keyword| root.get(keyword)?.as_str())?;
    Some(id.trim_end_matches('#')).filter(|base| !base.is_empty() && !base.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(schema: Value, expected: Value) {
        assert_eq!(upgrade(&schema, &str::to_owned), expected);
    }

    #[test]
    fn definitions_move_and_references_follow_them() {
        check(
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"a": {"$ref": "#/definitions/A"}, "definitions": {"type": "string"}},
                "definitions": {"A": {"properties": {"definitions": {"$ref": "#/properties/definitions"}},
                                      "definitions": {"B": true}},
                                "C": {"$ref": "#/definitions/A/definitions/B"}},
            }),
            json!({
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}, "definitions": {"type": "string"}},
                "$defs": {"A": {"properties": {"definitions": {"$ref": "#/properties/definitions"}},
                                "$defs": {"B": true}},
                          "C": {"$ref": "#/$defs/A/$defs/B"}},
            }),
        );
        check(
            json!({"$ref": "#/definitions/a~1b", "definitions": {"a/b": true}, "$defs": {"c": {"$ref": "#/%64efinitions/x"}}}),
            json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": true, "c": {"$ref": "#/$defs/x"}}}),
        );
        let both = json!({"$ref": "#/definitions/a", "definitions": {"a": true}, "$defs": {"a": false}});
        check(both.clone(), both);
    }

    #[test]
    fn the_own_uri_in_references_becomes_local_and_foreign_ones_stay() {
        check(
            json!({"$id": "https://x/s.json#", "$ref": "https://x/s.json#/definitions/a", "definitions": {
                "a": {"$ref": "https://x/s.json"}, "b": {"$ref": "https://x/s.json2"}, "c": {"$ref": "#here"},
                "d": {"$id": "#here"}, "e": {"$id": "https://x/e"}}}),
            json!({"$ref": "#/$defs/a", "$defs": {
                "a": {"$ref": "#"}, "b": {"$ref": "https://x/s.json2"}, "c": {"$ref": "#here"},
                "d": {"$anchor": "here"}, "e": {"$id": "https://x/e"}}}),
        );
        check(json!({"id": "urn:x", "properties": {"id": {"id": "n"}}}), json!({"properties": {"id": {"id": "n"}}}));
    }

    #[test]
    fn keywords_of_each_draft_become_those_of_today() {
        check(
            json!({"items": [{"minimum": 1, "exclusiveMinimum": true}, {"$ref": "#/items/0"}], "additionalItems": {"$ref": "#/additionalItems"}}),
            json!({"prefixItems": [{"exclusiveMinimum": 1}, {"$ref": "#/prefixItems/0"}], "items": {"$ref": "#/items"}}),
        );
        check(
            json!({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}, "dependentRequired": {"e": ["f"]}}),
            json!({"dependentRequired": {"a": ["b"], "e": ["f"]}, "dependentSchemas": {"c": {"required": ["d"]}}}),
        );
        check(
            json!({"$recursiveAnchor": true, "properties": {"x": {"$recursiveRef": "#"}}}),
            json!({"properties": {"x": {"$ref": "#"}}}),
        );
        check(json!({"maximum": 9, "exclusiveMaximum": false, "required": true}), json!({"maximum": 9}));
        check(json!(true), json!(true));
        check(
            json!({"type": "object", "properties": null, "required": null, "default": null, "not": {"const": null}}),
            json!({"type": "object", "default": null, "not": {"const": null}}),
        );
    }

    #[test]
    fn texts_are_cleaned_and_values_are_not() {
        let shout = |text: &str| text.to_uppercase();
        let schema = json!({"description": "a", "properties": {"description": {"title": "b", "enum": ["c"]}},
                            "default": {"description": "d"}});
        let expected = json!({"description": "A", "properties": {"description": {"title": "B", "enum": ["c"]}},
                              "default": {"description": "d"}});
        assert_eq!(upgrade(&schema, &shout), expected);
    }

    #[test]
    fn an_upgraded_schema_validates_as_its_author_meant_it() {
        let old = json!({"type": "object", "properties": {"pair": {"$ref": "#/definitions/Pair"}, "card": {"type": "string"}},
            "definitions": {"Pair": {"type": "array", "items": [{"type": "string"}, {"minimum": 0, "exclusiveMinimum": true}],
                                     "additionalItems": false}},
            "dependencies": {"card": ["pair"]}});
        let schema = Schema::compile(upgrade(&old, &str::to_owned)).unwrap();
        for (arguments, accepted) in [
            (json!({"pair": ["a", 1]}), true),
            (json!({"pair": ["a", 0]}), false),
            (json!({"pair": ["a", 1, 2]}), false),
            (json!({"pair": [1]}), false),
            (json!({"card": "x"}), false),
            (json!({"card": "x", "pair": []}), true),
        ] {
            assert_eq!(schema.accepts(&arguments), accepted, "{arguments}");
        }
    }

    fn any_schema() -> impl Strategy<Value = Value> {
        let keyword = prop_oneof![
            "items|additionalItems|dependencies|definitions|\\$defs|properties|\\$ref|\\$id|id|not|anyOf|required|exclusiveMinimum",
            "[a-z#/]{0,3}",
        ];
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            "#?[/a-z0-9~%]{0,12}".prop_map(Value::from)
        ];
        leaf.prop_recursive(5, 64, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keyword.clone(), inner, 0..5)
                    .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_value_breaks_an_upgrade_and_a_second_one_changes_nothing_that_compiles(schema in any_schema()) {
            let once = upgrade(&schema, &str::to_owned);
            let twice = upgrade(&once, &str::to_owned);
            if Schema::compile_any(once).is_ok() {
                prop_assert!(Schema::compile_any(twice).is_ok());
            }
        }
    }
}
