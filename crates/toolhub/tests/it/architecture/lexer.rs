//! Splits Rust source into code, comments and literals.
//!
//! In: a text that compiles. Out: spans in order, which together are the whole text. The rules beside it read names and texts from them.

use std::ops::Range;

/// What a part of a source file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Code,
    Comment,
    Literal,
}

/// The parts of a source file, in order.
pub(super) fn spans(text: &str) -> Vec<(Kind, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut found: Vec<(Kind, Range<usize>)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let (kind, length) = if rest.starts_with("//") {
            (Kind::Comment, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (Kind::Comment, rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if rest.starts_with('"') {
            (Kind::Literal, string_literal_length(rest))
        } else if !follows_identifier(bytes, at)
            && let Some(length) = raw_string_length(rest)
        {
            (Kind::Literal, length)
        } else if let Some(length) = char_literal_length(rest) {
            (Kind::Literal, length)
        } else {
            (Kind::Code, rest.chars().next().map_or(1, char::len_utf8))
        };
        match found.last_mut() {
            Some((Kind::Code, span)) if kind == Kind::Code => span.end += length,
            _ => found.push((kind, at..at + length)),
        }
        at += length;
    }
    found
}

/// The source with comments and literals replaced by spaces; line breaks stay.
pub(super) fn blank_comments_and_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (kind, span) in spans(text) {
        match kind {
            Kind::Code => out.push_str(&text[span]),
            Kind::Comment | Kind::Literal => {
                out.extend(text[span].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            }
        }
    }
    out
}

/// The number of the line that holds this byte.
pub(super) fn line_number(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

/// The source before its unit tests, which stand last in a file.
pub(super) fn without_unit_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

pub(super) fn follows_identifier(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn string_literal_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and so on.
fn raw_string_length(rest: &str) -> Option<usize> {
    let hashes = rest.strip_prefix('r')?;
    let marks = hashes.len() - hashes.trim_start_matches('#').len();
    let body = hashes[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    Some(1 + marks + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()))
}

/// `'a'`, `'\n'`; a lifetime is none.
fn char_literal_length(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        return inside.get(2..)?.find('\'').map(|at| at + 4).filter(|length| *length < 14);
    }
    inside[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

#[test]
fn comments_and_literals_are_told_from_code() {
    let text = "let a = \"x // y\"; // c \"d\"\nlet b: &'static str = r#\"e\"f\"#; let c = '\\'';";
    let parts = |wanted: Kind| -> Vec<&str> {
        spans(text).into_iter().filter(|(kind, _)| *kind == wanted).map(|(_, span)| &text[span]).collect()
    };
    assert_eq!(parts(Kind::Comment), ["// c \"d\""]);
    assert_eq!(parts(Kind::Literal), ["\"x // y\"", "r#\"e\"f\"#", "'\\''"]);
    assert_eq!(blank_comments_and_literals("a \"b\nc\" d"), "a   \n   d");
}
