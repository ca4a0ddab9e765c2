//! Reads TOML values and collects the problems in them.
//!
//! In: values with their spans. Out: plain values, or a problem with its line. Knows no key of a script.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolhub_core::{
    suggest::closest,
    units::{self, DURATION_UNITS},
};

use super::problem::ScriptProblem;

/// A value and its span.
pub(super) type Node<'a> = Spanned<DeValue<'a>>;

/// The problems found so far.
pub(super) struct Problems<'a> {
    pub(super) text: &'a str,
    pub(super) found: Vec<ScriptProblem>,
}

impl Problems<'_> {
    pub(super) fn add(&mut self, span: &Range<usize>, message: impl Into<String>, help: Option<String>) {
        let line = self.line(span);
        self.found.push(ScriptProblem { line, message: message.into(), help });
    }

    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// The members of a table; unknown ones are reported and dropped.
    pub(super) fn members<'t>(
        &mut self,
        table: DeTable<'t>,
        known: &[&str],
        owner: &str,
    ) -> BTreeMap<String, Node<'t>> {
        let mut members = BTreeMap::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                members.insert(name.to_owned(), value);
                continue;
            }
            let help = match closest(name, known.iter().copied(), 1).first() {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("{owner} has {}", quoted_list(known)),
            };
            self.add(&key.span(), format!("{owner} has no `{name}`"), Some(help));
        }
        members
    }

    fn add_type_error(&mut self, key: &str, value: &Node<'_>, expected: &str) {
        self.add(&value.span(), format!("`{key}` must be {expected}"), None);
    }

    pub(super) fn table<'t>(&mut self, key: &str, value: Node<'t>) -> Option<DeTable<'t>> {
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            self.add_type_error(key, &value, "a table, such as { … }");
            return None;
        }
        match value.into_inner() {
            DeValue::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(super) fn text(&mut self, key: &str, value: &Node<'_>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.add_type_error(key, value, "a quoted string");
                None
            }
        }
    }

    /// A string or a list of strings.
    pub(super) fn texts(&mut self, key: &str, value: Node<'_>) -> Vec<String> {
        match value.get_ref() {
            DeValue::String(text) => vec![text.to_string()],
            DeValue::Array(_) => {
                let DeValue::Array(list) = value.into_inner() else { return Vec::new() };
                list.into_iter().filter_map(|item| self.text(key, &item)).collect()
            }
            _ => {
                self.add_type_error(key, &value, "a tool name or a list of tool names");
                Vec::new()
            }
        }
    }

    pub(super) fn bool(&mut self, key: &str, value: &Node<'_>) -> bool {
        match value.get_ref() {
            DeValue::Boolean(value) => *value,
            _ => {
                self.add_type_error(key, value, "true or false");
                false
            }
        }
    }

    pub(super) fn number(&mut self, key: &str, value: &Node<'_>, range: Range<u32>) -> Option<u32> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (first, last) = (range.start, range.end - 1);
            self.add_type_error(key, value, &format!("a whole number from {first} to {last}"));
        }
        number
    }

    pub(super) fn duration(&mut self, key: &str, value: &Node<'_>) -> Option<Duration> {
        let time = match value.get_ref() {
            DeValue::String(text) => units::parse_with(text, &DURATION_UNITS[..3], 1),
            _ => None,
        };
        if time.is_none() {
            self.add_type_error(key, value, "a quoted duration, such as \"250ms\", \"2s\" or \"1m\"");
        }
        time.map(Duration::from_millis)
    }
}

fn quoted_list(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
