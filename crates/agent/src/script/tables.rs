//! Reads tables of TOML, and gathers what is wrong in them.
//!
//! In: values that know where they stand. Out: plain values, or a problem with its line. Knows no key of its own.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolhub_core::units::{self, DURATION_UNITS};

use super::problem::{ScriptProblem, closest};

/// A value, and where it stands.
pub(super) type Node<'a> = Spanned<DeValue<'a>>;

/// Everything that is wrong so far.
pub(super) struct Problems<'a> {
    pub(super) text: &'a str,
    pub(super) found: Vec<ScriptProblem>,
}

impl Problems<'_> {
    pub(super) fn add(&mut self, place: &Range<usize>, message: impl Into<String>, help: Option<String>) {
        let line = self.line(place);
        self.found.push(ScriptProblem { line, message: message.into(), help });
    }

    pub(super) fn line(&self, place: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..place.start.min(self.text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// The members of a table; those nobody knows are told and left out.
    pub(super) fn members<'t>(&mut self, table: DeTable<'t>, known: &[&str], of: &str) -> BTreeMap<String, Node<'t>> {
        let mut members = BTreeMap::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                members.insert(name.to_owned(), value);
                continue;
            }
            let help = match closest(name, known.iter().copied()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("{of} has {}", quoted_list(known)),
            };
            self.add(&key.span(), format!("{of} has no `{name}`"), Some(help));
        }
        members
    }

    fn add_type_error(&mut self, key: &str, value: &Node<'_>, wanted: &str) {
        self.add(&value.span(), format!("`{key}` is {wanted}"), None);
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
                self.add_type_error(key, value, "a text in quotes");
                None
            }
        }
    }

    /// A text, or a list of them.
    pub(super) fn texts(&mut self, key: &str, value: Node<'_>) -> Vec<String> {
        match value.get_ref() {
            DeValue::String(text) => vec![text.to_string()],
            DeValue::Array(_) => {
                let DeValue::Array(list) = value.into_inner() else { return Vec::new() };
                list.into_iter().filter_map(|one| self.text(key, &one)).collect()
            }
            _ => {
                self.add_type_error(key, &value, "the name of a tool, or a list of names");
                Vec::new()
            }
        }
    }

    pub(super) fn bool(&mut self, key: &str, value: &Node<'_>) -> bool {
        match value.get_ref() {
            DeValue::Boolean(yes) => *yes,
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
            DeValue::String(text) => parse_duration(text),
            _ => None,
        };
        if time.is_none() {
            self.add_type_error(key, value, "a time in quotes, such as \"250ms\", \"2s\" or \"1m\"");
        }
        time
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let [(number, scale)] = units::parse_amounts(text, &DURATION_UNITS[..3])?[..] else { return None };
    let number = u32::try_from(number).ok()?;
    Some(Duration::from_millis(u64::from(number) * scale))
}

fn quoted_list(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
