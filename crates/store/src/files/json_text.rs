//! Lossless pretty-printing of JSON, and back to the exact original bytes.
//!
//! In: the bytes of a record. Out: their encoding in a file: as JSON if that is lossless, otherwise as text or hex. Works on
//! the text without parsing values: numbers, duplicate keys and escapes stay as they are.

use serde::de::IgnoredAny;

/// JSON that is nested deeper stays on one line: it would be mostly indentation.
const MAX_PRETTY_DEPTH: usize = 32;

/// The encoding of a record's bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueEncoding<'a> {
    /// Compact JSON, without whitespace between tokens.
    Json(&'a str),
    /// Any other text.
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> ValueEncoding<'a> {
    pub(super) fn of(value: &'a [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(value) else { return Self::Bytes(value) };
        let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
        if is_json && !outside_strings(text).any(|(c, _)| is_space(c)) { Self::Json(text) } else { Self::Text(text) }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}

/// The characters of a JSON text outside of strings, with their byte offsets; a string yields only its opening quote.
fn outside_strings(text: &str) -> impl Iterator<Item = (char, usize)> {
    let (mut inside, mut escaped) = (false, false);
    text.char_indices().filter_map(move |(at, c)| {
        if inside {
            (inside, escaped) = (escaped || c != '"', !escaped && c == '\\');
            return None;
        }
        inside = c == '"';
        Some((c, at))
    })
}

/// Removes whitespace between tokens.
pub(super) fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (_, at) in outside_strings(text).filter(|(c, _)| is_space(*c)) {
        out.push_str(&text[from..at]);
        from = at + 1;
    }
    out.push_str(&text[from..]);
    out
}

/// Pretty-prints compact JSON. All lines but the first are indented by at least `indent` spaces.
pub(super) fn pretty_print(out: &mut String, text: &str, indent: usize) {
    if depth(text) > MAX_PRETTY_DEPTH {
        return out.push_str(text);
    }
    let new_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent + 2 * depth));
    };
    let (mut depth, mut from) = (0, 0);
    for (c, at) in outside_strings(text) {
        let is_empty = |end: char| text[at + 1..].starts_with(end);
        let copy_before = |out: &mut String| out.push_str(&text[from..at]);
        match c {
            '{' | '[' if !is_empty(if c == '{' { '}' } else { ']' }) => {
                copy_before(out);
                depth += 1;
                out.push(c);
                new_line(out, depth);
            }
            '}' | ']' if !text[..at].ends_with(if c == '}' { '{' } else { '[' }) => {
                copy_before(out);
                depth -= 1;
                new_line(out, depth);
                out.push(c);
            }
            ',' => {
                copy_before(out);
                out.push(',');
                new_line(out, depth);
            }
            ':' => {
                copy_before(out);
                out.push_str(": ");
            }
            _ => continue,
        }
        from = at + 1;
    }
    out.push_str(&text[from..]);
}

fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for (c, _) in outside_strings(text) {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Bytes as hex digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Bytes from hex digits.
pub(super) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(16 * digit(pair.first()?)? + digit(pair.get(1)?)?)).collect()
}

/// A text as a JSON string.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_spread_over_lines_and_back_to_the_same_bytes() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for text in [
            "1",
            "null",
            r#""a b""#,
            "{}",
            "[]",
            "[[],{}]",
            r#"{"a":1.50,"a":{"b":[1,2,{}]},"":[]}"#,
            r#"{"q":"\"{[,: ]}\\","e":"\u00e9 \ud800","n":1e400}"#,
            r#"["\\\"",":",{"x,y":[" "]}]"#,
            &deep,
        ] {
            assert_eq!(ValueEncoding::of(text.as_bytes()), ValueEncoding::Json(text));
            let mut out = String::new();
            pretty_print(&mut out, text, 4);
            assert_eq!(compact(&out), text);
            assert_eq!(compact(text), text);
            assert!(out.len() < 3 * text.len() + 200, "{}", out.len());
        }
        let mut out = String::new();
        pretty_print(&mut out, r#"{"a":[1,{}],"b":{"c":null}}"#, 2);
        assert_eq!(out, "{\n    \"a\": [\n      1,\n      {}\n    ],\n    \"b\": {\n      \"c\": null\n    }\n  }");
    }

    #[test]
    fn what_is_no_compact_json_stands_as_text_or_digits() {
        for text in ["", " 1", "1\n", "{\"a\": 1}", "nul", "{", "a b", "\0"] {
            assert_eq!(ValueEncoding::of(text.as_bytes()), ValueEncoding::Text(text));
        }
        assert_eq!(ValueEncoding::of(&[0xff, 0]), ValueEncoding::Bytes(&[0xff, 0]));
        assert_eq!(from_hex(&to_hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!((from_hex("0"), from_hex("zz"), from_hex("")), (None, None, Some(Vec::new())));
    }
}
