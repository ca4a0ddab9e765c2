//! Finds the known name that a misspelled one was probably meant to be.

/// Below this two names share letters by chance.
const SIMILAR: f64 = 0.6;
/// Comparing costs the product of both lengths.
const LONGEST: usize = 128;

/// The closest known name, if one is close. Capitals do not count, and `-`, `_` and a space are the same.
pub(crate) fn closest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = plain(wanted);
    let likeness = |name: &str| {
        let name = plain(name);
        let spelled = strsim::normalized_damerau_levenshtein(&wanted, &name);
        let (short, long) = if wanted.len() < name.len() { (&wanted, &name) } else { (&name, &wanted) };
        // One inside the other: a word was forgotten or added.
        let inside = short.len() >= 3 && long.contains(short.as_str());
        if inside { spelled.max(SIMILAR + 0.1) } else { spelled }
    };
    let rated = known.into_iter().map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= SIMILAR);
    rated.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1))).map(|(_, name)| name)
}

fn plain(name: &str) -> String {
    let one = |c: char| if matches!(c, '-' | ' ') { '_' } else { c };
    name.chars().take(LONGEST).flat_map(char::to_lowercase).map(one).collect()
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
