//! Replaces escapes of lone surrogates in JSON text.
//!
//! In: JSON text. Out: the same text, with U+FFFD in place of each escape such as `\ud800` that is no half of a pair. JavaScript writes
//! them when a text was cut within a character, and no JSON parser for UTF-8 strings accepts them.

use std::borrow::Cow;

/// The length of an escape such as `\ud800`.
const ESCAPE_BYTES: usize = 6;

pub(super) fn replace_lone(text: &str) -> Cow<'_, str> {
    // The only cost of most messages: a vectorized search.
    if !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let (mut replaced, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        let next = match escape(&bytes[at..]) {
            // Any other escape has two bytes; the second may be a backslash.
            None => at + 2,
            Some(0xd800..=0xdbff) if is_low(escape(&bytes[at + ESCAPE_BYTES..])) => at + 2 * ESCAPE_BYTES,
            Some(0xd800..=0xdfff) => {
                replaced.push_str(&text[copied..at]);
                replaced.push('\u{fffd}');
                copied = at + ESCAPE_BYTES;
                copied
            }
            Some(_) => at + ESCAPE_BYTES,
        };
        at = next.min(bytes.len());
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    replaced.push_str(&text[copied..]);
    Cow::Owned(replaced)
}

/// The UTF-16 code unit of an escape at the begin of the text.
fn escape(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn is_low(unit: Option<u16>) -> bool {
    matches!(unit, Some(0xdc00..=0xdfff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(replace_lone(text), expected);
    }

    #[test]
    fn only_halves_without_their_other_half_are_replaced() {
        for unchanged in
            [r#""""#, r#""\u0041 \ud83d\ude00 \uD83D\uDE00""#, r#""\\ud800""#, r#""\n\\\"""#, "\\", "\\u", "\\ud8"]
        {
            check(unchanged, unchanged);
        }
        check(r#""a\ud800b""#, "\"a\u{fffd}b\"");
        check(r#""\uDC00\ud83d""#, "\"\u{fffd}\u{fffd}\"");
        check(r#""\ud83d\ud83d\ude00\ude00""#, "\"\u{fffd}\\ud83d\\ude00\u{fffd}\"");
        check(r#""\ud800\n\\\ud800""#, "\"\u{fffd}\\n\\\\\u{fffd}\"");
        check(r#""é\ud800\u0041""#, "\"é\u{fffd}\\u0041\"");
    }
}
