//! Percent-encoding of values. Everything except letters, digits and `-._~` is encoded, since servers and proxies disagree about the
//! rest.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters to encode.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a value for a path, a query or a form.
pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_letters_digits_and_a_few_others_is_encoded() {
        assert_eq!(percent_encode("aZ9-._~"), "aZ9-._~");
        assert_eq!(percent_encode("a/b?c#d%2f&=+ ü\r\n"), "a%2Fb%3Fc%23d%252f%26%3D%2B%20%C3%BC%0D%0A");
    }
}
