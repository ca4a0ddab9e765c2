//! Help texts for TOML syntax errors.
//!
//! In: the text and the position of the error. Out: a hint for the most common mistakes.

use std::ops::Range;

use super::super::problem::TextPosition;

/// The most likely fix.
pub(super) fn syntax_help(text: &str, span: &Range<usize>) -> String {
    let position = TextPosition::locate(text, span);
    let line = position.text.trim();
    let rejected = text.get(span.clone()).unwrap_or_default();
    if text.trim_start().starts_with('{') {
        return "this looks like JSON; write [server] on a line of its own, and port = 8080 below it".into();
    }
    if let Some((key, value)) = line.split_once('=') {
        return value_help(text, position.line, key.trim(), value.trim(), rejected);
    }
    if line.starts_with('[') {
        return match find_earlier_line(text, position.line, |other| other.trim() == line) {
            Some(first) => format!("{line} is already on line {first}; move its keys there"),
            None => "write a section as [name] or [name.inner], and [[name]] for a list of tables".into(),
        };
    }
    match line.split_once(':') {
        Some((key, value)) => format!("write {} = {}: TOML has no colons", key.trim(), value.trim()),
        None => "write key = value, or [section]".into(),
    }
}

fn value_help(text: &str, line: usize, key: &str, value: &str, rejected: &str) -> String {
    let has_key = |other: &str| other.split_once('=').is_some_and(|(other, _)| other.trim() == key);
    if let Some(first) = find_earlier_line(text, line, has_key) {
        return format!("`{key}` is already set on line {first}; remove one of the two");
    }
    if value.is_empty() {
        return "write a value after the =".into();
    }
    if value.matches('"').count() % 2 == 1 {
        return "close the string with \" on the same line".into();
    }
    if value == rejected && value.chars().all(|c| c.is_alphanumeric() || "._-:/".contains(c)) {
        return format!("write a string in quotes: {key} = \"{value}\"");
    }
    "a value is a \"string\", a number, true, false, a [list] or an { inline = \"table\" }".into()
}

/// The first earlier line that matches: in the same section, or for a section header in the whole file.
fn find_earlier_line(text: &str, line: usize, matches: impl Fn(&str) -> bool) -> Option<usize> {
    let begins_section = |line: &str| line.trim().starts_with('[');
    let lines: Vec<&str> = text.lines().take(line.saturating_sub(1)).collect();
    let is_section = text.lines().nth(line.saturating_sub(1)).is_some_and(begins_section);
    let section_start = lines.iter().rposition(|line| begins_section(line)).map_or(0, |at| at + 1);
    let start = if is_section { 0 } else { section_start };
    lines.iter().enumerate().skip(start).find(|(_, other)| matches(other)).map(|(at, _)| at + 1)
}
