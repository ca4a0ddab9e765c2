//! Holds what is written to its schema: keys that nobody knows, numbers out of bounds, lists that are empty.
//!
//! In: a config, and the same as JSON. Out: problems at the desk. What values mean together is left to `plan.rs`.

use std::sync::LazyLock;

use serde_json::Value;
use toolhub_core::{
    schema::{self, Schema},
    suggest,
};

use super::{Diagnostics, KeyPath, KeySegment, ToolConfig, unit::ellipsize};

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    Schema::compile(schema::infer::<ToolConfig>()).expect("a struct of ours has a schema, which tests look at")
});

/// Looks for what does not fit.
pub(super) fn check(config: &ToolConfig, written: &Value, desk: &mut Diagnostics<'_>) {
    let properties = SCHEMA.value()["properties"].as_object();
    let mut known: Vec<&str> = properties.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    known.push("name");
    for key in &config.unknown.0 {
        let help = match suggest::closest(key, known.iter().copied(), 1).first() {
            Some(close) => format!("did you mean `{close}`?"),
            // A word of `toolhub.toml`, which has tools that are not there.
            None if key == "enabled" => "remove it; do not make the tool where it is not to be there".into(),
            None => "remove it; docs/config.md has all keys of a tool".into(),
        };
        desk.report(&KeyPath::of([key.as_str()]), format!("there is no key `{}`", ellipsize(key)), help);
    }
    for problem in SCHEMA.check(written).err().into_iter().flatten() {
        let help = problem.suggestion.unwrap_or_else(|| "docs/config.md says what it may be".into());
        desk.report(&key_path(&problem.pointer, written), problem.detail, help);
    }
}

/// The way that a JSON pointer goes.
fn key_path(pointer: &str, whole: &Value) -> KeyPath {
    let (mut path, mut value) = (KeyPath::default(), Some(whole));
    for segment in pointer.split('/').skip(1) {
        let key = segment.replace("~1", "/").replace("~0", "~");
        let place = value.filter(|value| value.is_array()).and_then(|_| key.parse().ok());
        value = value.and_then(|value| place.map_or_else(|| value.get(&key), |place: usize| value.get(place)));
        path = path.join([place.map_or(KeySegment::Key(key), KeySegment::Index)]);
    }
    path
}
