//! Parses YAML to a JSON value.
//!
//! In: the text of one YAML document. Out: the value, or an error with its position. Scalars follow the core schema of YAML 1.2, so `yes`
//! is a string; keys are strings; of duplicate keys the last one wins, as in JSON; `<<` merges. Bounded in number of nodes, nesting and
//! alias expansion.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

/// Maximum number of scalars, lists and maps. The largest public documents have about two million.
const MAX_NODES: usize = 8_000_000;
const MAX_DEPTH: usize = 100;
/// Maximum total number of nodes in anchors and expanded aliases.
const MAX_ALIASED_NODES: usize = 200_000;
/// Prefix of the tags of the core schema.
const CORE_TAG_PREFIX: &str = "tag:yaml.org,2002:";

/// Parses a text.
///
/// # Errors
/// When it is not valid YAML, has more than one document, or exceeds a limit.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let options =
        granit_parser::options! { emit_comments: false, flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH };
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, _) = event.map_err(|error| describe_scan_error(&error))?;
        builder.handle_event(event)?;
    }
    Ok(builder.root.unwrap_or_default())
}

/// The error with its position.
fn describe_scan_error(error: &ScanError) -> String {
    let mark = error.marker();
    format!("{} at line {}, column {}", error.info(), mark.line(), mark.col() + 1)
}

#[derive(Default)]
struct Builder {
    stack: Vec<OpenNode>,
    root: Option<Value>,
    /// The values of anchors, with their numbers of nodes.
    anchors: HashMap<usize, (Value, usize)>,
    nodes: usize,
    aliased_nodes: usize,
    documents: usize,
}

/// A list or map that is not complete yet.
struct OpenNode {
    value: Value,
    /// The key whose value comes next.
    key: Option<String>,
    anchor: usize,
    /// Number of nodes before it began.
    nodes_before: usize,
    /// Maps merged by `<<`, whose members do not override those of the map itself.
    merged: Vec<Map<String, Value>>,
}

impl Builder {
    fn handle_event(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("it has more than one document".into());
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count_nodes(1)?;
                // A key is its literal text: `200` and `true` are strings.
                let is_key = self.stack.last().is_some_and(|open| open.value.is_object() && open.key.is_none());
                let plain = style == ScalarStyle::Plain && !is_key;
                let value = parse_scalar(&text, plain, tag.as_deref());
                self.add(value, anchor, 1)?;
            }
            Event::SequenceStart(_, anchor, _) => self.begin(Value::Array(Vec::new()), anchor)?,
            Event::MappingStart(_, anchor, _) => self.begin(Value::Object(Map::new()), anchor)?,
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => {
                // The anchor of an incomplete list or map is not stored yet, so a recursive alias is not found.
                let (value, nodes) = self.anchors.get(&anchor).ok_or("an alias refers to a node that contains it")?;
                let (value, nodes) = (value.clone(), *nodes);
                self.count_aliased(nodes)?;
                self.add(value, 0, nodes)?;
            }
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        self.count_nodes(1)?;
        if self.stack.len() >= MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        self.stack.push(OpenNode { value, key: None, anchor, nodes_before: self.nodes, merged: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut open) = self.stack.pop() else { return Ok(()) };
        if let Value::Object(members) = &mut open.value {
            for merged in open.merged {
                for (key, value) in merged {
                    members.entry(key).or_insert(value);
                }
            }
        }
        let nodes = 1 + self.nodes - open.nodes_before;
        self.add(open.value, open.anchor, nodes)
    }

    /// Adds a complete value to the innermost open list or map.
    fn add(&mut self, value: Value, anchor: usize, nodes: usize) -> Result<(), String> {
        if anchor != 0 {
            self.count_aliased(nodes)?;
            self.anchors.insert(anchor, (value.clone(), nodes));
        }
        let Some(open) = self.stack.last_mut() else {
            self.root = Some(value);
            return Ok(());
        };
        match (&mut open.value, open.key.take()) {
            (Value::Array(items), _) => items.push(value),
            (Value::Object(_), None) => match value {
                Value::String(key) => open.key = Some(key),
                _ => return Err("a key is a list or a map; only strings can be keys".into()),
            },
            (Value::Object(_), Some(key)) if key == "<<" => open.merge(value)?,
            (Value::Object(members), Some(key)) => drop(members.insert(key, value)),
            _ => {}
        }
        Ok(())
    }

    fn count_nodes(&mut self, nodes: usize) -> Result<(), String> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES { Err(format!("it has more than {MAX_NODES} nodes")) } else { Ok(()) }
    }

    fn count_aliased(&mut self, nodes: usize) -> Result<(), String> {
        self.aliased_nodes += nodes;
        self.count_nodes(nodes)?;
        if self.aliased_nodes > MAX_ALIASED_NODES {
            return Err(format!("its anchors and aliases expand to more than {MAX_ALIASED_NODES} nodes"));
        }
        Ok(())
    }
}

impl OpenNode {
    fn merge(&mut self, value: Value) -> Result<(), String> {
        match value {
            Value::Object(members) => self.merged.push(members),
            Value::Array(items) => items.into_iter().try_for_each(|item| self.merge(item))?,
            _ => return Err("the value of `<<` must be a map or a list of maps".into()),
        }
        Ok(())
    }
}

/// Converts a scalar, by its tag and style.
fn parse_scalar(text: &str, plain: bool, tag: Option<&Tag>) -> Value {
    let core = tag.map(ToString::to_string).and_then(|tag| tag.strip_prefix(CORE_TAG_PREFIX).map(str::to_owned));
    match core.as_deref() {
        Some("str") => text.into(),
        Some("int" | "float" | "bool" | "null") => resolve_plain_scalar(text),
        _ if plain && tag.is_none() => resolve_plain_scalar(text),
        _ => text.into(),
    }
}

/// Converts a plain scalar by the core schema.
fn resolve_plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    parse_number(text).map_or_else(|| text.into(), Value::Number)
}

fn parse_number(text: &str) -> Option<Number> {
    let radix = |digits: &str, base| u64::from_str_radix(digits, base).ok().map(Number::from);
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !unsigned.contains(|c: char| c.is_ascii_digit())
        || !unsigned.chars().all(|c| c.is_ascii_digit() || ".eE+-".contains(c))
    {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let integer = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    integer.ok().or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(yaml: &str, expected: &Value) {
        assert_eq!(parse(yaml).as_ref(), Ok(expected), "{yaml}");
    }

    #[track_caller]
    fn check_refused(yaml: &str, fragment: &str) {
        let error = parse(yaml).unwrap_err();
        assert!(error.contains(fragment), "{error}");
    }

    #[test]
    fn scalars_mean_what_the_core_schema_says() {
        check("[yes, no, on, off, y]", &json!(["yes", "no", "on", "off", "y"]));
        check("[true, False, null, ~, Null, '']", &json!([true, false, null, null, null, ""]));
        check("[1, -2, +3, 0x1f, 0o17, 017]", &json!([1, -2, 3, 31, 15, 17]));
        check("[1.5, 1e3, .5, -1.0, 1.10]", &json!([1.5, 1e3, 0.5, -1.0, 1.1]));
    }

    #[test]
    fn texts_that_look_like_other_things_stay_texts() {
        check(
            "[3.1.0, 1-2, 2024-01-01, '1', \"2\", e5, 12:30]",
            &json!(["3.1.0", "1-2", "2024-01-01", "1", "2", "e5", "12:30"]),
        );
        check("!!str 12", &json!("12"));
        check("!!int '12'", &json!(12));
        check("a: |\n  one\n  two\nb: >\n  one\n  two\n", &json!({"a": "one\ntwo\n", "b": "one two\n"}));
        check("18446744073709551615", &json!(u64::MAX));
    }

    #[test]
    fn keys_are_texts_and_the_last_of_two_counts() {
        check("{200: a, true: b, null: c, 1.0: d}", &json!({"200": "a", "true": "b", "null": "c", "1.0": "d"}));
        check("a: 1\na: 2\n", &json!({"a": 2}));
        check_refused("? [a]\n: b\n", "only strings can be keys");
    }

    #[test]
    fn aliases_repeat_and_merges_fill_in() {
        check("a: &x [1]\nb: *x\n", &json!({"a": [1], "b": [1]}));
        check("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n", &json!({"a": {"p": 1, "q": 2}, "b": {"q": 3, "p": 1}}));
        check(
            "- &x {p: 1}\n- &y {p: 2, q: 2}\n- {<<: [*x, *y]}\n",
            &json!([{"p": 1}, {"p": 2, "q": 2}, {"p": 1, "q": 2}]),
        );
        check_refused("a: &x [*x]\n", "refers to a node that contains it");
        check_refused("a: *nobody\n", "anchor");
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let deep = "[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1);
        assert!(parse(&deep).is_err());
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            bomb += &format!("a{level}: &a{level} [{}]\n", format!("*a{}, ", level - 1).repeat(10));
        }
        check_refused(&bomb, "expand to more than");
        check_refused("a: 1\n---\nb: 2\n", "more than one document");
    }
}
