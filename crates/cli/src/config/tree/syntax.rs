//! What to do about a line that is no TOML.
//!
//! In: the text and the place where reading stopped. Out: advice about the mistakes that people make most often.

use std::ops::Range;

use super::super::problem::TextPosition;

/// What whoever wrote this probably wants to know.
pub(super) fn syntax_help(text: &str, span: &Range<usize>) -> String {
    let place = TextPosition::locate(text, span);
    let line = place.text.trim();
    let wrong = text.get(span.clone()).unwrap_or_default();
    if text.trim_start().starts_with('{') {
        return "this looks like JSON; write [server] on a line of its own, and port = 8080 below it".into();
    }
    if let Some((key, value)) = line.split_once('=') {
        return value_help(text, place.line, key.trim(), value.trim(), wrong);
    }
    if line.starts_with('[') {
        return match find_earlier_line(text, place.line, |other| other.trim() == line) {
            Some(first) => format!("{line} stands on line {first} already; move its keys there"),
            None => "a section is [name] or [name.inner], and [[name]] where there may be several".into(),
        };
    }
    match line.split_once(':') {
        Some((key, value)) => format!("write {} = {}: TOML has no colons", key.trim(), value.trim()),
        None => "write key = value, or [section]".into(),
    }
}

fn value_help(text: &str, line: usize, key: &str, value: &str, wrong: &str) -> String {
    let same = |other: &str| other.split_once('=').is_some_and(|(other, _)| other.trim() == key);
    if let Some(first) = find_earlier_line(text, line, same) {
        return format!("`{key}` stands on line {first} already; remove one of the two");
    }
    if value.is_empty() {
        return "write a value behind the =".into();
    }
    if value.matches('"').count() % 2 == 1 {
        return "a text ends with \" on the line it begins on".into();
    }
    if value == wrong && value.chars().all(|c| c.is_alphanumeric() || "._-:/".contains(c)) {
        return format!("a text stands in quotes: {key} = \"{value}\"");
    }
    "a value is a \"text\", a number, true, false, a [list] or a { table = \"on one line\" }".into()
}

/// The first line before this one that looks so: in the same section, or for a section in the whole file.
fn find_earlier_line(text: &str, line: usize, same: impl Fn(&str) -> bool) -> Option<usize> {
    let begins_section = |line: &str| line.trim().starts_with('[');
    let lines: Vec<&str> = text.lines().take(line.saturating_sub(1)).collect();
    let section = text.lines().nth(line.saturating_sub(1)).is_some_and(begins_section);
    let last = lines.iter().rposition(|line| begins_section(line)).map_or(0, |at| at + 1);
    let from = if section { 0 } else { last };
    lines.iter().enumerate().skip(from).find(|(_, other)| same(other)).map(|(at, _)| at + 1)
}
