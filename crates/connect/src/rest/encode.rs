//! Checks and encodes texts for paths, queries and headers, so that they cannot change the structure of a request.
//!
//! In: any text. Out: the same, encoded for its location, or why it is not allowed there.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The characters to encode in a literal text of a setting.
const INVALID_IN_URL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'#')
    .add(b'?');

/// Encodes the literal text of a path or query: percent-encoded parts stay, and characters that are invalid in a URL are encoded.
pub(crate) fn encode_literal(text: &str) -> String {
    utf8_percent_encode(text, INVALID_IN_URL).to_string()
}

/// Decodes the literal text of a query name or value.
pub(crate) fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Checks a path segment built from arguments: an empty or dot segment would change the structure of the path.
///
/// # Errors
/// Why the segment is not allowed.
pub(crate) fn check_segment(segment: &str, values: &[&str]) -> Result<(), String> {
    if segment.is_empty() {
        return Err("may not be empty in a path".into());
    }
    // Some servers and proxies decode %2F to a slash, so no part of the value may be a dot segment either.
    let is_dots = |part: &str| matches!(part, "." | "..");
    if is_dots(segment) || values.iter().any(|value| value.split(['/', '\\']).any(is_dots)) {
        return Err("may not be or contain the path segments `.` or `..`".into());
    }
    if values.iter().any(|value| value.contains('\0')) {
        return Err("may not contain a null character".into());
    }
    Ok(())
}

/// Checks that a text is allowed in a header.
///
/// # Errors
/// Why it is not.
pub(crate) fn check_header(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control() && *c != '\t') {
        Some(c) => Err(format!("may not contain the control character U+{:04X} in a header", u32::from(c))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_nothing_to_anybody_stays() {
        assert_eq!(encode_literal("a b/%20/ü?{"), "a%20b/%20/%C3%BC%3F%7B");
        assert_eq!(decode("a%20b+%zz%C3%BC%"), "a b %zzü%");
    }
}
