//! Prints a config: every effective value, and optionally its origin.
//!
//! In: a loaded config. Out: TOML that can be loaded again, or JSON. Secrets are masked: by type, by name, or by the name of the
//! variable they came from.

use std::fmt::Write;

use serde_json::{Map, Value};
use toolhub::{
    config::SecretText,
    redact::{Redactor, is_secret_setting},
    server::{ConfigSource, ConfigValue},
};

use super::{
    load::LoadedConfig,
    problem::TextPosition,
    tree::{KeySegment, Origin, Path},
};

/// All effective values, with secrets masked.
pub(crate) fn masked_values(loaded: &LoadedConfig) -> Value {
    let redactor = loaded.config.telemetry.redactor();
    let mut values = serde_json::to_value(&loaded.raw).unwrap_or_default();
    SecretMask { loaded, redactor }.mask(&mut values, &Path::default());
    values
}

/// As TOML, with the origins as comments if requested.
pub(crate) fn to_toml(loaded: &LoadedConfig, origins: bool) -> String {
    let mut writer = TomlWriter { loaded, origins, lines: Vec::new() };
    if let Value::Object(values) = masked_values(loaded) {
        writer.write_table(&values, &Path::default(), &Path::default());
    }
    writer.render()
}

/// Each value with its key and origin.
pub(crate) fn values_with_origins(loaded: &LoadedConfig) -> Vec<ConfigValue> {
    let mut all = Vec::new();
    visit_leaves(&masked_values(loaded), &Path::default(), &mut |path, value| {
        let (key, origin) = (path.to_string(), describe_origin(loaded, path));
        all.push(ConfigValue { key, value: value.clone(), source: source_of(loaded, path), origin });
    });
    all
}

/// What kind of source sets the value at a path.
fn source_of(loaded: &LoadedConfig, path: &Path) -> ConfigSource {
    match loaded.tree.get(path).map(|node| &node.origin) {
        None => ConfigSource::Default,
        Some(Origin::File { .. }) => ConfigSource::File,
        Some(Origin::Env { .. }) => ConfigSource::Environment,
        Some(Origin::Flag(_)) => ConfigSource::Flag,
    }
}

fn visit_leaves(value: &Value, path: &Path, visit: &mut impl FnMut(&Path, &Value)) {
    match value {
        Value::Object(table) if !table.is_empty() => {
            table.iter().for_each(|(key, inner)| visit_leaves(inner, &path.key(key), visit));
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter().enumerate().for_each(|(at, inner)| visit_leaves(inner, &path.index(at), visit));
        }
        other => visit(path, other),
    }
}

/// Where the value at a path comes from.
pub(crate) fn describe_origin(loaded: &LoadedConfig, path: &Path) -> String {
    let Some(node) = loaded.tree.get(path) else { return "default".into() };
    let location = |source: &super::tree::Source, span: &std::ops::Range<usize>| {
        format!("{}:{}", source.name, TextPosition::locate(&source.text, span).line)
    };
    let mut text = match &node.origin {
        Origin::File { source, span } => location(source, span),
        Origin::Env { name, file: None } => format!("env {name}"),
        Origin::Env { name, file: Some((source, span)) } => format!("env {name} ({})", location(source, span)),
        Origin::Flag(flag) => format!("flag {flag}"),
    };
    if !node.variables.is_empty() {
        let names: Vec<String> = node.variables.iter().map(|name| format!("${{{name}}}")).collect();
        text += &format!(" with {}", names.join(", "));
    }
    text
}

struct SecretMask<'a> {
    loaded: &'a LoadedConfig,
    redactor: Redactor,
}

impl SecretMask<'_> {
    fn mask(&self, value: &mut Value, path: &Path) {
        match value {
            Value::Object(table) => table.iter_mut().for_each(|(key, inner)| self.mask(inner, &path.key(key))),
            Value::Array(list) => list.iter_mut().enumerate().for_each(|(at, inner)| self.mask(inner, &path.index(at))),
            Value::String(text) if self.is_secret(path) && !text.starts_with('•') => {
                *text = SecretText::new(text.as_str()).masked();
            }
            Value::Number(_) if self.is_secret(path) => *value = "••••".into(),
            _ => {}
        }
    }

    fn is_secret(&self, path: &Path) -> bool {
        // Only tools have keys with names chosen by users. The name of the tool itself does not make its values secret.
        let names = match path.0.as_slice() {
            [KeySegment::Key(section), _, inside @ ..] if section == "tools" => inside,
            _ => &[],
        };
        let has_secret_name = names.iter().any(|segment| match segment {
            KeySegment::Key(key) => self.redactor.is_secret(key),
            KeySegment::Index(_) => false,
        });
        let variables = self.loaded.tree.get(path).map(|node| node.variables.as_slice()).unwrap_or_default();
        has_secret_name || variables.iter().any(|name| is_secret_setting(name))
    }
}

/// Writes TOML line by line, each line with its optional origin.
struct TomlWriter<'a> {
    loaded: &'a LoadedConfig,
    origins: bool,
    lines: Vec<(String, Option<String>)>,
}

impl TomlWriter<'_> {
    /// Writes a table: its own values first, then its subtables. `header` is the path as TOML writes it, without indexes.
    fn write_table(&mut self, table: &Map<String, Value>, path: &Path, header: &Path) {
        let is_table_list =
            |value: &Value| value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_object));
        for (key, value) in table.iter().filter(|(_, value)| !value.is_object() && !is_table_list(value)) {
            let line = format!("{} = {}", Path::of([key.as_str()]), toml_literal(value));
            self.lines.push((line, self.origins.then(|| describe_origin(self.loaded, &path.key(key)))));
        }
        for (key, value) in table {
            let (path, header) = (path.key(key), header.key(key));
            match value {
                Value::Object(inner) => {
                    let only_subtables = !inner.is_empty() && inner.values().all(Value::is_object);
                    if !only_subtables {
                        self.lines.push((format!("\n[{header}]"), None));
                    }
                    self.write_table(inner, &path, &header);
                }
                Value::Array(list) if is_table_list(value) => {
                    for (at, inner) in list.iter().enumerate().filter_map(|(at, item)| Some((at, item.as_object()?))) {
                        self.lines.push((format!("\n[[{header}]]"), None));
                        self.write_table(inner, &path.index(at), &header);
                    }
                }
                _ => {}
            }
        }
    }

    /// Renders the lines, with the origins in one column.
    fn render(&self) -> String {
        const MAX_COLUMN: usize = 44;
        let lengths = self.lines.iter().filter(|(_, origin)| origin.is_some()).map(|(line, _)| line.chars().count());
        let column = lengths.filter(|length| *length <= MAX_COLUMN).max().unwrap_or(0);
        let mut text = String::new();
        for (line, origin) in &self.lines {
            // Writing into a string cannot fail.
            let _ = match origin {
                Some(origin) => writeln!(text, "{line:column$}  # {origin}"),
                None => writeln!(text, "{line}"),
            };
        }
        text.trim_start().to_owned()
    }
}

/// A value as TOML.
fn toml_literal(value: &Value) -> String {
    match value {
        Value::Null => "\"\"".into(),
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(toml_literal).collect::<Vec<_>>().join(", ")),
        Value::Object(table) => {
            let inner =
                table.iter().map(|(key, value)| format!("{} = {}", Path::of([key.as_str()]), toml_literal(value)));
            format!("{{ {} }}", inner.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
