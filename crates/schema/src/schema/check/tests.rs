//! Tests of `check.rs`: problem texts for models, and protection against hostile schemas.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[track_caller]
fn check(schema: Value, arguments: &Value, expected: &[&str]) {
    let schema = Schema::compile(schema).unwrap();
    let problems: Vec<String> = match schema.check(arguments, &Redactor::default()) {
        Ok(()) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(problems, expected);
}

#[track_caller]
fn check_field(field: Value, value: Value, expected: &[&str]) {
    let f = |inner| Value::Object(Map::from_iter([("f".to_owned(), inner)]));
    let schema = Map::from_iter([("type".to_owned(), "object".into()), ("properties".to_owned(), f(field))]);
    check(schema.into(), &f(value), expected);
}

fn weather() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "City name"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
        },
        "required": ["city"],
        "additionalProperties": false,
    })
}

#[test]
fn valid_arguments_pass() {
    check(weather(), &json!({"city": "Rome", "days": 3}), &[]);
    check(json!({"type": "object"}), &json!({"anything": [1]}), &[]);
}

#[test]
fn missing_and_unknown_properties_are_named_with_what_was_meant() {
    check(weather(), &json!({}), &["city: missing, required (string: City name)"]);
    check(
        weather(),
        &json!({"cty": "Rome"}),
        &[
            "cty: unknown property; did you mean `city`?",
            "city: missing, required (string: City name); `cty` is given, rename it to `city`?",
        ],
    );
    check(weather(), &json!({"city": "Rome", "zzz": 1}), &["zzz: unknown property; known are `city`, `days`"]);
    let open = json!({"type": "object", "properties": {"city": {}}, "required": ["city"]});
    check(open, &json!({"City": 1}), &["city: missing, required; `City` is given, rename it to `city`?"]);
}

#[test]
fn values_that_do_not_fit_are_told_what_was_expected_and_what_came() {
    let integer = json!({"type": "integer", "minimum": 1});
    check_field(integer.clone(), json!("two"), &["f: expected an integer, got the string \"two\""]);
    check_field(integer.clone(), json!(0), &["f: must be at least 1, got 0"]);
    check_field(integer, json!(2.5), &["f: expected an integer, got the number 2.5"]);
    let size = json!({"type": "string", "enum": ["small", "medium", "large"]});
    check_field(
        size,
        json!("midium"),
        &["f: must be one of \"small\", \"medium\", \"large\", got the string \"midium\"; did you mean \"medium\"?"],
    );
    check_field(json!({"minLength": 2}), json!("x"), &["f: must have at least 2 characters, got 1"]);
    check_field(json!({"maxItems": 1}), json!([1, 2]), &["f: must have at most 1 item, got 2"]);
    check_field(json!({"pattern": "^[a-z]+$"}), json!("A"), &["f: must match the pattern ^[a-z]+$, got \"A\""]);
    check_field(json!({"type": ["string", "null"]}), json!(1), &["f: expected null or a string, got the number 1"]);
    check_field(json!({"uniqueItems": true}), json!([1, 1]), &["f: the items must differ from each other"]);
    check_field(json!(false), json!(1), &["f: is not allowed here"]);
    check_field(
        json!({"propertyNames": {"maxLength": 2}}),
        json!({"long": 1}),
        &["f: the property name \"long\" is not allowed: must have at most 2 characters, got 4"],
    );
}

#[test]
fn fields_inside_lists_and_behind_references_are_found() {
    let order = json!({
        "type": "object",
        "properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
        "$defs": {"line": {
            "type": "object",
            "properties": {"qty": {"type": "integer", "description": "How many"}},
            "required": ["qty"],
            "additionalProperties": false,
        }},
    });
    check(
        order,
        &json!({"lines": [{"qty": 1}, {"qty": "x"}, {"quantity": 2}]}),
        &[
            "lines[1].qty: expected an integer, got the string \"x\"",
            "lines[2].quantity: unknown property; known are `qty`",
            "lines[2].qty: missing, required (integer: How many)",
        ],
    );
}

#[test]
fn of_a_choice_the_form_that_was_meant_is_explained() {
    let tagged = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
        {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
    ]});
    check_field(tagged.clone(), json!({"kind": "circle", "r": "x"}), &["f.r: expected a number, got the string \"x\""]);
    check_field(
        tagged.clone(),
        json!({"kind": "squar", "side": 1}),
        &["f.kind: must be one of \"circle\", \"square\", got the string \"squar\"; did you mean \"square\"?"],
    );
    check_field(
        tagged,
        json!(5),
        &[
            "f: expected an object with `kind` = \"circle\", `r` or an object with `kind` = \"square\", `side`, got the number 5",
        ],
    );
    let optional = json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"type": "null"}]});
    check_field(optional, json!({}), &["f.a: missing, required (string)"]);
    let has =
        |name: &str, kind: &str| json!({"type": "object", "properties": {name: {"type": kind}}, "required": [name]});
    let untagged = json!({"anyOf": [has("a", "integer"), has("b", "string")]});
    check_field(untagged.clone(), json!({"a": "x"}), &["f.a: expected an integer, got the string \"x\""]);
    check_field(
        untagged,
        json!({}),
        &["f: expected an object with `a` or an object with `b`, got an object of 0 properties"],
    );
    let mixed = json!({"anyOf": [{"type": "string"}, {"type": "integer"}]});
    check_field(mixed, json!([]), &["f: expected string or integer, got an array of 0 items"]);
    let outer = json!({"oneOf": [
        {"type": "object", "properties": {"circle": {"type": "number"}}, "required": ["circle"], "additionalProperties": false},
        {"type": "object", "properties": {"square": {"type": "number"}}, "required": ["square"], "additionalProperties": false},
    ]});
    check_field(outer, json!({"square": "x"}), &["f.square: expected a number, got the string \"x\""]);
}

#[test]
fn at_most_ten_problems_are_told() {
    let schema = Schema::compile(json!({"type": "object", "additionalProperties": {"type": "string"}})).unwrap();
    let many: Map<String, Value> = (0..50).map(|index| (format!("p{index}"), json!(index))).collect();
    assert_eq!(schema.check(&many.into(), &Redactor::default()).unwrap_err().len(), 10);
}

#[test]
fn arguments_too_deep_are_refused_unseen() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let schema = Schema::compile(json!({"type": "object"})).unwrap();
    assert!(schema.accepts(&json!({"a": nested(63)})));
    let problems = schema.check(&json!({"a": nested(64)}), &Redactor::default()).unwrap_err();
    assert_eq!(problems[0].to_string(), "arguments: nested deeper than 64 levels");
    assert!(!schema.accepts(&json!({"a": nested(1_000)})));
}

#[test]
fn patterns_have_linear_cost_or_are_refused() {
    let refuse = |pattern: &str| {
        let named = json!({"type": "object", "patternProperties": {pattern: {}}});
        let valued = json!({"type": "object", "properties": {"f": {"pattern": pattern}}});
        for schema in [named, valued] {
            let error = Schema::compile(schema).unwrap_err();
            assert!(matches!(error, SchemaError::Pattern(_)), "{error}");
        }
    };
    refuse("(?=a)b");
    refuse(r"(a)\1");
    refuse("(unclosed");
    refuse("((a{100}){100}){100}");
    let schema = Schema::compile(json!({"type": "object", "properties": {"f": {"pattern": "^(a+)+$"}}})).unwrap();
    assert!(!schema.accepts(&json!({"f": format!("{}b", "a".repeat(50_000))})));
}

#[test]
fn what_is_no_schema_is_refused_with_its_place() {
    let error = Schema::compile(json!({"type": "object", "properties": {"f": {"type": "text"}}})).unwrap_err();
    assert!(error.to_string().contains("/properties/f/type"), "{error}");
    assert!(Schema::compile(json!({"type": "object", "required": "f"})).is_err());
    let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"});
    assert!(Schema::compile(old).is_ok());
}

/// Each level of the arguments doubles the validator's errors, twice.
fn hostile() -> Value {
    json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "A number"},
            "a": {"anyOf": [{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}]},
        },
        "required": ["n"],
    })
}

#[test]
fn a_hostile_choice_is_not_explained_but_its_property_is_named() {
    let arguments = (0..40).fold(json!({}), |inner, _| json!({"a": inner}));
    assert!(!cost::is_affordable(&hostile(), &RefResolver::new(&hostile()), &arguments));
    check(
        hostile(),
        &arguments,
        &[
            "n: missing, required (integer: A number)",
            "a: does not fit its schema (object), got an object of 1 property",
        ],
    );
    let other = json!({"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}});
    let arguments = (0..40).fold(json!(1), |inner, _| json!({"a b/c": inner}));
    check(other, &arguments, &["[\"a b/c\"]: does not fit its schema, got an object of 1 property"]);
}

#[test]
fn a_hostile_schema_does_not_exhaust_the_stack() {
    // The most nested combinations, on the deepest arguments, on the stack of a worker thread.
    let knot = (0..13).fold(json!({"$ref": "#"}), |inner, _| json!({"allOf": [inner]}));
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/k"}, "b": {"type": "null"}},
        "$defs": {"k": knot}});
    let valid = (0..63).fold(json!({}), |inner, _| json!({"a": inner}));
    let invalid = (0..62).fold(json!({"b": 1}), |inner, _| json!({"a": inner}));
    let schema = Schema::compile(schema).unwrap();
    assert!(schema.accepts(&valid));
    assert!(!schema.accepts(&invalid));
}

/// Typical argument schemas.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "description": "A text"})),
        Just(json!({"type": "string", "pattern": "^[a-c]*$", "maxLength": 4})),
        Just(json!({"type": "integer", "minimum": 0, "maximum": 5})),
        Just(json!({"type": ["number", "null"]})),
        Just(json!({"enum": ["a", "b", 3]})),
        Just(json!({"const": "a"})),
        Just(json!({"$ref": "#"})),
        any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let list = proptest::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "uniqueItems": true})),
            list.clone().prop_map(|branches| json!({"anyOf": branches})),
            list.clone().prop_map(|branches| json!({"oneOf": branches})),
            list.clone().prop_map(|items| json!({"prefixItems": items, "items": false})),
            inner.clone().prop_map(|not| json!({"not": not})),
            inner.clone().prop_map(|names| json!({"type": "object", "propertyNames": names})),
            object(inner),
        ]
    })
}

fn object(property: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    let properties = proptest::collection::btree_map("[ab/~]{0,2}", property.boxed(), 0..4);
    (properties, any::<bool>(), any::<bool>()).prop_map(|(properties, required, open)| {
        let names: Vec<&String> = properties.keys().filter(|_| required).collect();
        json!({"type": "object", "properties": properties, "required": names, "additionalProperties": open})
    })
}

fn any_arguments() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..8_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c\\n]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[ab/~]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn whatever_the_schema_and_the_arguments_a_refusal_names_its_fields(
        schema in object(any_schema()),
        arguments in any_arguments(),
    ) {
        // Circular references without a property between them are refused, which this test is not about.
        let Ok(schema) = Schema::compile(schema) else { return Ok(()) };
        let checked = schema.check(&arguments, &Redactor::default());
        prop_assert_eq!(checked.is_ok(), schema.0.validator.is_valid(&arguments));
        for problem in checked.err().into_iter().flatten() {
            prop_assert!(!problem.field.is_empty());
            prop_assert!(problem.to_string().contains(&problem.field));
            prop_assert!(!problem.to_string().contains('\n'), "{}", problem);
        }
        let invalid = schema.invalid_properties(&RefResolver::new(schema.value()), &arguments, &Redactor::default());
        prop_assert!(invalid.is_empty() || !schema.0.validator.is_valid(&arguments));
    }
}
