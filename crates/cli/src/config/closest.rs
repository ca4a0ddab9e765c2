//! Finds the known name that a misspelled one was probably meant to be.

use toolhub::suggest;

/// The closest known name, if one is close. Capitals do not count, and `-`, `_` and a space are the same.
pub(crate) fn closest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    suggest::closest(wanted, known, 1).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_finds_what_was_meant() {
        let known = ["port", "public_url", "host", "body_timeout", "header_timeout"];
        for (wanted, expected) in [
            ("prot", Some("port")),
            ("publicUrl", Some("public_url")),
            ("Body-Timeout", Some("body_timeout")),
            ("url", Some("public_url")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(closest(wanted, known), expected, "{wanted}");
        }
        assert_eq!(closest(&"x".repeat(100_000), known), None);
    }
}
