//! Encodes argument values for paths, queries, forms and headers, so that they cannot change the structure of a request.
//!
//! In: any text. Out: the same, encoded for its location, or why it is not allowed there. Everything except letters, digits and
//! `-._~` is percent-encoded, since servers and proxies disagree about the rest.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The characters to encode in a value.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
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

/// Encodes a value for a path, a query or a form.
pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

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
        assert_eq!(percent_encode("aZ9-._~"), "aZ9-._~");
        assert_eq!(percent_encode("a/b?c#d%2f&=+ ü\r\n"), "a%2Fb%3Fc%23d%252f%26%3D%2B%20%C3%BC%0D%0A");
        assert_eq!(encode_literal("a b/%20/ü?{"), "a%20b/%20/%C3%BC%3F%7B");
        assert_eq!(decode("a%20b+%zz%C3%BC%"), "a b %zzü%");
    }
}
