//! The schema for editors accepts exactly what the check accepts, for every config in `tests/it/config`.

use serde_json::Value;
use toolhub_testkit::TempFolder;

use crate::config::{load_cases, run_toolhub};

fn validator() -> jsonschema::Validator {
    let folder = TempFolder::new();
    let ran = run_toolhub(folder.path(), &["config", "schema"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let schema: Value = serde_json::from_str(&ran.out).expect("a schema is JSON");
    jsonschema::validator_for(&schema).expect("it is a schema")
}

/// The file as editors see it; `None` if it is not TOML.
fn as_json(text: &str) -> Option<Value> {
    fn to_json_value(value: toml::Value) -> Value {
        match value {
            toml::Value::Datetime(moment) => moment.to_string().into(),
            toml::Value::Array(list) => list.into_iter().map(to_json_value).collect(),
            toml::Value::Table(table) => {
                Value::Object(table.into_iter().map(|(key, value)| (key, to_json_value(value))).collect())
            }
            other => serde_json::to_value(other).expect("it is JSON"),
        }
    }
    text.parse::<toml::Table>().ok().map(|table| to_json_value(toml::Value::Table(table)))
}

#[test]
fn good_configs_pass_both() {
    let validator = validator();
    let cases = load_cases("good");
    assert!(cases.len() >= 5, "{} files", cases.len());
    for case in cases {
        let ran = case.check();
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", case.name());
        let errors: Vec<String> = validator
            .iter_errors(&as_json(&case.text).expect("it is TOML"))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", case.name());
    }
}

#[test]
fn bad_configs_pass_neither_unless_only_the_reader_can_tell() {
    let validator = validator();
    for case in load_cases("bad") {
        assert_eq!(case.check().code, 2, "{}", case.name());
        let Some(value) = as_json(&case.text) else { continue };
        assert_eq!(validator.is_valid(&value), case.is_valid_by_schema(), "{}", case.name());
    }
}
