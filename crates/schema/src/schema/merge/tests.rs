//! Tests of `merge.rs`: what a schema given by hand may change, and what is an error.
#![expect(clippy::needless_pass_by_value, reason = "cases are data, and read better without a reference on each")]

use schemars::JsonSchema;
use serde_json::json;

use super::*;
use crate::schema::{Schema, infer};

/// An order.
#[derive(JsonSchema)]
#[allow(dead_code)]
struct Order {
    city: String,
    count: u8,
    note: Option<String>,
    lines: Vec<Line>,
    gift: Option<Line>,
    size: Size,
}

#[derive(JsonSchema)]
#[allow(dead_code)]
struct Line {
    qty: u32,
    name: Option<String>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)]
enum Size {
    /// Little
    Small,
    Large,
}

#[derive(JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(dead_code)]
enum Shape {
    Circle { r: f64 },
    Square { side: f64 },
}

#[derive(JsonSchema)]
#[allow(dead_code)]
struct Tree {
    name: String,
    children: Vec<Tree>,
}

/// Checks the value at the pointer after merging, or the text of the error.
#[track_caller]
fn check<T: JsonSchema>(by_hand: &Value, pointer: &str, expected: Value) {
    let merged = merge(&infer::<T>(), by_hand);
    if let Ok(merged) = &merged {
        let compiled = Schema::compile(merged.clone());
        assert!(compiled.is_ok(), "{compiled:?}");
    }
    let value = merged.map(|merged| merged.pointer(pointer).cloned().unwrap_or(Value::Null));
    assert_eq!(value.unwrap_or_else(|error| error.to_string().into()), expected);
}

#[track_caller]
fn check_field(name: &str, by_hand: Value, expected: Value) {
    check::<Order>(&json!({"properties": {name: by_hand}}), &format!("/properties/{name}"), expected);
}

#[track_caller]
fn check_refused<T: JsonSchema>(by_hand: Value, expected: &str) {
    let error = merge(&infer::<T>(), &by_hand).unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} instead of {expected:?}");
}

#[test]
fn nothing_by_hand_changes_nothing() {
    assert_eq!(merge(&infer::<Order>(), &json!({})), Ok(infer::<Order>()));
    assert_eq!(merge(&infer::<Order>(), &infer::<Order>()), Ok(infer::<Order>()));
    assert_eq!(merge(&infer::<Tree>(), &infer::<Tree>()), Ok(infer::<Tree>()));
    assert_eq!(merge(&infer::<Shape>(), &infer::<Shape>()), Ok(infer::<Shape>()));
}

#[test]
fn words_and_tighter_bounds_by_hand_win() {
    check_field(
        "city",
        json!({"description": "Where to", "examples": ["Rome"], "minLength": 1}),
        json!({"type": "string", "description": "Where to", "examples": ["Rome"], "minLength": 1}),
    );
    check_field(
        "count",
        json!({"maximum": 9}),
        json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 9}),
    );
    check_field("note", json!({"type": "string"}), json!({"type": "string"}));
    check::<Order>(&json!({"description": "By hand"}), "/description", json!("By hand"));
    check::<Order>(&json!({"additionalProperties": false}), "/additionalProperties", json!(false));
}

#[test]
fn items_and_options_are_merged_inside() {
    let qty = json!({"properties": {"qty": {"description": "How many"}}});
    let described = "/properties/qty/description";
    let lines = json!({"properties": {"lines": {"items": qty}}});
    check::<Order>(&lines, &format!("/properties/lines/items{described}"), json!("How many"));
    let gift = json!({"properties": {"gift": qty}});
    check::<Order>(&gift, &format!("/properties/gift{described}"), json!("How many"));
    let tree = json!({"properties": {"children": {"items": {"properties": {"name": {"description": "Leaf"}}}}}});
    check::<Tree>(&tree, "/properties/children/items/properties/name/description", json!("Leaf"));
}

#[test]
fn an_option_written_as_a_choice_is_merged_in_its_form() {
    let form = json!({"type": "object", "properties": {"qty": {"type": "integer"}}});
    let option = json!({"description": "Maybe", "anyOf": [form, {"type": "null"}]});
    let inferred = json!({"type": "object", "properties": {"gift": option}});
    let by_hand = |gift: Value| json!({"properties": {"gift": gift}});
    let field = |gift: Value| merge(&inferred, &by_hand(gift)).map(|merged| merged["properties"]["gift"].clone());

    let mut narrowed = option.clone();
    narrowed["anyOf"][0]["properties"]["qty"]["minimum"] = json!(1);
    let qty = json!({"qty": {"minimum": 1}});
    assert_eq!(field(json!({"properties": qty})), Ok(narrowed.clone()));

    let mut never_null = narrowed["anyOf"][0].clone();
    never_null["description"] = json!("Maybe");
    assert_eq!(field(json!({"type": "object", "properties": qty})), Ok(never_null));
    assert!(field(json!({"properties": {"other": {}}})).is_err());
    assert!(field(json!({"type": "string"})).is_err());
}

#[test]
fn what_the_type_requires_stays_required() {
    check::<Order>(&json!({"required": ["note"]}), "/required", json!(["city", "count", "lines", "size", "note"]));
    check::<Order>(&json!({"required": []}), "/required", json!(["city", "count", "lines", "size"]));
    check_refused::<Order>(
        json!({"required": ["town"]}),
        "`town` is required by the schema given by hand but not described",
    );
}

#[test]
fn fields_the_type_does_not_have_are_refused_by_name() {
    check_refused::<Order>(
        json!({"properties": {"citty": {}}}),
        "`citty` is in the schema given by hand, but the type of the arguments has no such field; did you mean `city`?",
    );
    check_refused::<Order>(json!({"properties": {"lines": {"items": {"properties": {"x": {}}}}}}), "`lines[].x`");
    check_refused::<Shape>(json!({"properties": {"width": {}}}), "`width`");
    check_refused::<Tree>(
        json!({"properties": {"children": {"items": {"properties": {"age": {}}}}}}),
        "`children[].age`",
    );
}

#[test]
fn what_the_type_would_refuse_cannot_be_allowed_by_hand() {
    let refused = |name: &str, by_hand: Value, expected: &str| {
        check_refused::<Order>(json!({"properties": {name: by_hand}}), expected);
    };
    refused(
        "city",
        json!({"type": "integer"}),
        "`city`: `type` given by hand is \"integer\", but the type allows only string",
    );
    refused("city", json!({"type": ["string", "null"]}), "allows only string");
    refused("count", json!({"maximum": 1000}), "255 or less");
    refused("count", json!({"minimum": -1}), "0 or more");
    refused("count", json!({"enum": ["one"]}), "only integer");
    refused("size", json!({"enum": ["small", "medium"]}), "\"small\"");
    refused("city", json!("text"), "a schema must be an object");
    check_refused::<Order>(json!({"type": "array"}), "`arguments`: `type`");
}

#[test]
fn a_choice_is_narrowed_beside_its_forms() {
    check_field("size", json!({"enum": ["small"]}), {
        let mut size = infer::<Order>()["properties"]["size"].clone();
        size["enum"] = json!(["small"]);
        size
    });
    let shape = json!({"properties": {"r": {"maximum": 5}}, "additionalProperties": false});
    check::<Shape>(&shape, "/properties/r", json!({"maximum": 5}));
    let merged = Schema::compile(merge(&infer::<Shape>(), &shape).unwrap()).unwrap();
    assert!(merged.accepts(&json!({"kind": "square", "side": 1})));
    assert!(!merged.accepts(&json!({"kind": "circle", "r": 6})));
    assert!(!merged.accepts(&json!({"kind": "circle", "r": 1, "x": 1})));
}

#[test]
fn a_type_that_takes_anything_takes_what_is_given_by_hand() {
    let by_hand =
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "number"}}});
    assert_eq!(merge(&json!(true), &by_hand), Ok(by_hand.clone()));
    check::<std::collections::HashMap<String, u8>>(
        &json!({"properties": {"a": {"description": "A"}}}),
        "/properties/a/description",
        json!("A"),
    );
    check_refused::<std::collections::HashMap<String, u8>>(
        json!({"properties": {"a": {"type": "string"}}}),
        "`a`: `type`",
    );
}

#[test]
fn references_by_hand_are_followed_but_not_for_ever() {
    let by_hand = json!({"properties": {"city": {"$ref": "#/$defs/c"}}, "$defs": {"c": {"maxLength": 9}}});
    check::<Order>(&by_hand, "/properties/city/maxLength", json!(9));
    let circular = json!({"properties": {"children": {"items": {"$ref": "#/$defs/t"}}},
        "$defs": {"t": {"properties": {"children": {"items": {"$ref": "#/$defs/t"}}}}}});
    check_refused::<Tree>(circular, "do not terminate");
    check_refused::<Order>(json!({"properties": {"city": {"$ref": "https://x.example/y"}}}), "another document");
}
