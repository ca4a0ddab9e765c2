//! Validates a config against its JSON Schema: unknown keys, numbers out of range, empty lists.
//!
//! In: a config, and the same as JSON. Out: problems. Constraints between several values are left to `plan.rs`.

use std::sync::LazyLock;

use serde_json::Value;
use toolhub_core::{
    redact::Redactor,
    schema::{self, Schema},
    suggest,
};

use super::{Diagnostics, KeyPath, KeySegment, ToolConfig, unit::ellipsize};

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    Schema::compile(schema::infer::<ToolConfig>()).expect("the schema of `ToolConfig` compiles, which tests check")
});

/// Reports unknown keys and values that violate the schema.
pub(super) fn check(config: &ToolConfig, json: &Value, diagnostics: &mut Diagnostics<'_>) {
    let properties = SCHEMA.value()["properties"].as_object();
    let mut known: Vec<&str> = properties.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    known.push("name");
    for key in &config.unknown.0 {
        let help = match suggest::closest(key, known.iter().copied(), 1).first() {
            Some(close) => format!("did you mean `{close}`?"),
            // A key of `toolhub.toml`, where tools can be disabled.
            None if key == "enabled" => "remove it; to disable the tool, do not create it".into(),
            None => "remove it; docs/config.md lists all keys of a tool".into(),
        };
        diagnostics.report(&KeyPath::of([key.as_str()]), format!("unknown key `{}`", ellipsize(key)), help);
    }
    for problem in SCHEMA.check(json, &Redactor::default()).err().into_iter().flatten() {
        let help = problem.suggestion.unwrap_or_else(|| "see docs/config.md for valid values".into());
        diagnostics.report(&key_path(&problem.pointer, json), problem.detail, help);
    }
}

/// Converts a JSON pointer into `json` to a key path.
fn key_path(pointer: &str, json: &Value) -> KeyPath {
    let (mut path, mut value) = (KeyPath::default(), Some(json));
    for segment in pointer.split('/').skip(1) {
        let key = segment.replace("~1", "/").replace("~0", "~");
        let index = value.filter(|value| value.is_array()).and_then(|_| key.parse().ok());
        value = value.and_then(|value| index.map_or_else(|| value.get(&key), |index: usize| value.get(index)));
        path = path.join([index.map_or(KeySegment::Key(key), KeySegment::Index)]);
    }
    path
}
