//! Writes values so that they stay what they are, wherever they stand.
//!
//! In: any text. Out: the same, encoded for its place, or why it cannot stand there. Everything that could mean something to
//! anybody on the way is encoded: only letters, digits and `-._~` stay.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What is encoded in a value.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What is encoded in the owner's own text.
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

/// A text that goes into a path, a query or a form.
pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The owner's own text of a path or query: what is encoded already stays so, and what cannot be sent is encoded.
pub(crate) fn encode_literal(text: &str) -> String {
    utf8_percent_encode(text, INVALID_IN_URL).to_string()
}

/// The owner's own text of a name or value in the query, read as it was meant.
pub(crate) fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// What a path segment made of arguments may not be: it would vanish, or lead elsewhere.
///
/// # Errors
/// Why.
pub(crate) fn check_segment(segment: &str, values: &[&str]) -> Result<(), String> {
    if segment.is_empty() {
        return Err("may not be empty in a path".into());
    }
    // Some servers and proxies read %2F as a slash; then no part of the value may lead elsewhere either.
    let dots = |part: &str| matches!(part, "." | "..");
    if dots(segment) || values.iter().any(|value| value.split(['/', '\\']).any(dots)) {
        return Err("may not be or contain the path segments `.` or `..`".into());
    }
    if values.iter().any(|value| value.contains('\0')) {
        return Err("may not contain a null character".into());
    }
    Ok(())
}

/// Whether a text can stand in a header as it is.
///
/// # Errors
/// Why not.
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
