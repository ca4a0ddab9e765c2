//! The schema and the validator agree on every generated config, and no input makes the loader panic.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolhub::config::Unit;
use toolhub_testkit::soak;

use super::{
    super::{
        check,
        raw::RawConfig,
        schema,
        shape::{Shape, TextShape},
        tree::{self, Node, Source},
    },
    ConfigFolder,
};

fn proptest_settings() -> ProptestConfig {
    let cases = soak(150, 3_000);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of_config);
static VALIDATOR: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema::value_schema()).unwrap());

/// A value that matches a shape, or nearly.
fn value_strategy(shape: &Shape) -> BoxedStrategy<Value> {
    let valid = match shape {
        Shape::Any => prop_oneof![Just(json!(1)), Just(json!("x")), Just(json!({"a": [1, "b"]}))].boxed(),
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Integer { min, max } => {
            let edges = [*min, *max, min.saturating_sub(1), max.saturating_add(1), 5, 64];
            proptest::sample::select(edges.to_vec()).prop_map(Value::from).boxed()
        }
        Shape::Number { .. } => {
            proptest::sample::select(vec![0.5, 1.0, 2.0, -1.0, 100.0]).prop_map(Value::from).boxed()
        }
        Shape::Text(text) => text_strategy(text).prop_map(Value::from).boxed(),
        Shape::List { items, .. } => prop::collection::vec(value_strategy(items), 0..3).prop_map(Value::from).boxed(),
        Shape::AnyOf(all) => proptest::strategy::Union::new(all.iter().map(value_strategy)).boxed(),
        Shape::Table(table) => {
            let keys: Vec<(String, Shape)> =
                table.keys.iter().map(|(name, key)| (name.clone(), key.shape.clone())).collect();
            let additional = table.additional.as_deref().cloned();
            let required: Vec<String> =
                table.keys.iter().filter(|(_, key)| key.required).map(|(name, _)| name.clone()).collect();
            let picked = prop::collection::vec((any::<prop::sample::Index>(), 0..40_u8), 0..4);
            picked
                .prop_flat_map(move |picked| {
                    let mut chosen: Vec<(String, Shape)> = Vec::new();
                    for (at, chance) in picked {
                        match (&additional, keys.is_empty() || chance < 8) {
                            (Some(additional), true) => chosen.push((format!("name{chance}"), additional.clone())),
                            (None, true) if chance == 0 => chosen.push(("unknown".into(), Shape::Bool)),
                            _ if keys.is_empty() => {}
                            _ => chosen.push(at.get(&keys).clone()),
                        }
                    }
                    chosen.extend(keys.iter().filter(|(name, _)| required.contains(name)).cloned());
                    let members: Vec<_> =
                        chosen.into_iter().map(|(name, shape)| (Just(name), value_strategy(&shape))).collect();
                    members.prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
                })
                .boxed()
        }
    };
    let any_type = prop_oneof![
        Just(json!("text")),
        Just(json!(7)),
        Just(json!(1.5)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({}))
    ];
    prop_oneof![30 => valid, 1 => any_type].boxed()
}

fn text_strategy(text: &TextShape) -> BoxedStrategy<String> {
    let fixed =
        |all: &[&str]| proptest::sample::select(all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).boxed();
    match text {
        TextShape::Plain { .. } => fixed(&["", "x", "127.0.0.1", "a b", "ü"]),
        TextShape::Unit(Unit::Size) => {
            fixed(&["2MiB", "1B", "0B", "2", "2mb", "0001KiB", "1GB", "999999999GiB", "1234567890B"])
        }
        TextShape::Unit(_) => {
            fixed(&["5s", "1h30m", "0s", "0h0m", "0h1ms", "never", "5", "", "5 s", "1d0s", "000000001s", "1.5h"])
        }
        TextShape::Datetime => {
            fixed(&["2027-01-31", "2027-01-31T10:00:00Z", "2027-01-31 10:00:00+02:00", "soon", "2027-1-3"])
        }
        TextShape::Choice(allowed) => {
            let mut all: Vec<&str> = allowed.iter().map(String::as_str).collect();
            all.push("nonsense");
            fixed(&all)
        }
    }
}

/// The value as a parsed TOML tree.
fn parse_tree(value: &Value) -> Node {
    let text = toml::Value::try_from(value).map(|value| format!("root = {value}\n")).unwrap();
    let source = Arc::new(Source { name: "x".into(), path: "x".into(), text });
    let (node, problems) = tree::parse(&source);
    assert!(problems.is_empty(), "{problems:?} in {}", source.text);
    node.get(&tree::Path::of(["root"])).unwrap().clone()
}

proptest! {
    #![proptest_config(proptest_settings())]

    #[test]
    fn what_the_check_lets_pass_is_what_the_schema_accepts_and_what_can_be_read(config in value_strategy(&SHAPE)) {
        let tree = parse_tree(&config);
        let problems = check::validate(&tree, &SHAPE);
        prop_assert_eq!(problems.is_empty(), VALIDATOR.is_valid(&tree.to_json()), "{:?}\n{}", problems, config);
        if problems.is_empty() {
            let raw = serde_json::from_value::<RawConfig>(tree.to_json());
            prop_assert!(raw.is_ok(), "{:?}", raw);
            let serialized = serde_json::to_value(raw.unwrap()).unwrap();
            prop_assert!(!serialized.is_null());
        }
        for problem in problems {
            prop_assert!(problem.help.is_some(), "no help: {}", problem.message);
        }
    }

    #[test]
    fn no_text_makes_the_reader_fall_over(text in "(\\[{0,2}[a-z.\"]{0,9}\\]{0,2}|[a-z_]{1,9} ?= ?[\"'\\[{]?[a-z0-9.:$\\{\\}-]{0,9}[\"'\\]}]?|\\PC{0,9}|\n){0,12}") {
        let folder = ConfigFolder::new();
        folder.write("toolhub.toml", &text);
        if let Err(problems) = super::load(&folder.load_options(&[])) {
            prop_assert!(!problems.to_string().is_empty());
        }
    }

    #[test]
    fn no_config_makes_the_resolver_fall_over(config in value_strategy(&SHAPE)) {
        let folder = ConfigFolder::new();
        folder.write("toolhub.toml", &toml::to_string(&config).unwrap_or_default());
        match super::load(&folder.load_options(&[])) {
            Ok(loaded) => {
                // The printed config can be loaded again, and is equal.
                let text = super::super::show::to_toml(&loaded, true);
                folder.write("toolhub.toml", &text);
                if !text.contains('•') {
                    let reloaded = super::load(&folder.load_options(&[]));
                    prop_assert!(reloaded.is_ok(), "{}\n{}", reloaded.unwrap_err(), text);
                    prop_assert_eq!(reloaded.unwrap().config, loaded.config);
                }
            }
            Err(problems) => prop_assert!(problems.iter().all(|problem| problem.help.is_some())),
        }
    }
}

/// The JSON Schema keywords that `shape.rs` and `check.rs` support; others would not be enforced.
#[test]
fn the_schema_says_nothing_that_is_not_checked() {
    const KNOWN: [&str; 24] = [
        "$schema",
        "$defs",
        "$ref",
        "title",
        "description",
        "default",
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "oneOf",
        "anyOf",
        "format",
        "pattern",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "minProperties",
        "maxProperties",
    ];
    fn check_keywords(schema: &Value) {
        let Value::Object(schema) = schema else { return };
        for (keyword, inner) in schema {
            assert!(KNOWN.contains(&keyword.as_str()), "`{keyword}` is not enforced");
            match keyword.as_str() {
                "properties" | "$defs" => inner.as_object().unwrap().values().for_each(check_keywords),
                "items" | "additionalProperties" => check_keywords(inner),
                "anyOf" | "oneOf" => inner.as_array().unwrap().iter().for_each(check_keywords),
                "format" => {
                    let is_own = inner.as_str().unwrap().starts_with("toolhub-");
                    let is_number = ["uint16", "uint32", "double"].contains(&inner.as_str().unwrap());
                    assert!(is_own || is_number, "the format {inner} is not enforced");
                }
                _ => {}
            }
        }
    }
    check_keywords(&schema::value_schema());
    assert!(jsonschema::meta::is_valid(&schema::file_schema()));
}
