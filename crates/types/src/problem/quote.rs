//! Quotes untrusted values and names in messages: short, on one line, control characters escaped.
//!
//! In: any JSON or text, of any size. Out: at most about sixty characters of it.

use std::{fmt::Write as _, io};

use serde_json::Value;

use crate::hidden_chars::needs_escape;

const MAX_CHARS: usize = 60;

/// A value as truncated JSON.
pub fn value(value: &Value) -> String {
    // The writer stops serialization at its limit, so that a large value costs no more than a small one.
    let mut writer = LimitedWriter(Vec::new());
    let is_complete = serde_json::to_writer(&mut writer, value).is_ok();
    let shown = String::from_utf8_lossy(&writer.0);
    if is_complete { text(&shown) } else { text(&format!("{shown}…")) }
}

/// A text truncated to 60 characters, its control characters escaped.
pub fn text(text: &str) -> String {
    truncate(text, MAX_CHARS)
}

/// A text truncated to `max_chars` characters, its control characters escaped.
pub fn truncate(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    let mut length = 0;
    for c in text.chars() {
        let before = shown.len();
        if needs_escape(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
        length += shown[before..].chars().count();
        if length > max_chars {
            // Drop one more character to make room for the ellipsis.
            let truncated = shown.chars().take(max_chars - 1).collect::<String>();
            return truncated + "…";
        }
    }
    shown
}

/// The first values of a list: `"s", "m", "l"`, and how many more there are.
pub fn list<'a>(values: impl ExactSizeIterator<Item = &'a Value>) -> String {
    const MAX_LISTED: usize = 10;
    let omitted = values.len().saturating_sub(MAX_LISTED);
    let mut shown: Vec<String> = values.take(MAX_LISTED).map(value).collect();
    if omitted > 0 {
        shown.push(format!("and {omitted} more"));
    }
    shown.join(", ")
}

/// A value with its type: `the string "two"`, `an array of 3 items`.
pub fn describe(value: &Value) -> String {
    match value {
        Value::String(_) => format!("the string {}", self::value(value)),
        Value::Number(number) => format!("the number {number}"),
        Value::Array(items) if items.len() == 1 => "an array of 1 item".into(),
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Object(members) if members.len() == 1 => "an object of 1 property".into(),
        Value::Object(members) => format!("an object of {} properties", members.len()),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// A writer that fails once its buffer is full.
struct LimitedWriter(Vec<u8>);

impl io::Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A character takes at most four bytes, so at least `MAX_CHARS` characters fit.
        let capacity = (MAX_CHARS * 4).saturating_sub(self.0.len());
        if capacity == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let taken = capacity.min(bytes.len());
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: &Value, expected: &str) {
        let shown = describe(value);
        assert_eq!(shown, expected);
    }

    #[test]
    fn values_are_shown_with_their_kind() {
        check(&json!("two"), "the string \"two\"");
        check(&json!(2.5), "the number 2.5");
        check(&json!(null), "null");
        check(&json!([1, 2]), "an array of 2 items");
        check(&json!({"a": 1}), "an object of 1 property");
    }

    #[test]
    fn long_and_odd_texts_stay_short_and_on_one_line() {
        check(&json!("x".repeat(5_000_000)), &format!("the string \"{}…", "x".repeat(58)));
        check(&json!("a\nb\u{7f}\u{202e}c"), "the string \"a\\nb\\u{7f}\\u{202e}c\"");
        assert_eq!(value(&json!(vec!["ü".repeat(50); 50])).chars().count(), MAX_CHARS);
        assert_eq!(text("\u{1}").as_str(), "\\u{1}");
    }

    #[test]
    fn many_values_are_named_in_part() {
        let values: Vec<Value> = (0..12).map(Value::from).collect();
        assert_eq!(list(values[..2].iter()), "0, 1");
        assert_eq!(list(values.iter()), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 2 more");
    }
}
