//! Suggests the known name closest to a misspelled one.

use toolhub::suggest;

/// The closest known name, if one is close. Case is ignored, and `-`, `_` and a space are equal.
pub(crate) fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    suggest::closest(name, known, 1).into_iter().next()
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
