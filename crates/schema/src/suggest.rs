//! Suggests known names for a misspelled one.
//!
//! In: the requested name and the known names. Out: the similar ones, best first; empty if none is similar.
//! Knows neither tools nor fields; the caller formats the message.

/// Less similar names share letters only by chance.
const MIN_SIMILARITY: f64 = 0.6;
/// Longer names are truncated: comparing costs the product of both lengths, and the names may come from a hostile caller.
const MAX_LENGTH: usize = 128;

/// The known names closest to the requested one, best first, at most `limit`.
///
/// Case is ignored, and `-`, `_` and a space are equivalent; a name that contains the other is close to it.
#[must_use]
pub fn closest<'a>(requested: &str, known: impl IntoIterator<Item = &'a str>, limit: usize) -> Vec<&'a str> {
    let requested = normalize(requested);
    let mut similar: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| (similarity(&requested, &normalize(name)), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    similar.into_iter().take(limit).map(|(_, name)| name).collect()
}

fn normalize(name: &str) -> String {
    let unify_separator = |c: char| if matches!(c, '-' | ' ') { '_' } else { c };
    name.chars().take(MAX_LENGTH).flat_map(char::to_lowercase).map(unify_separator).collect()
}

fn similarity(requested: &str, name: &str) -> f64 {
    if requested == name {
        return 1.0;
    }
    let edit_similarity = strsim::normalized_damerau_levenshtein(requested, name);
    let (short, long) = if requested.len() < name.len() { (requested, name) } else { (name, requested) };
    // One name contains the other: a part was forgotten or added. The larger the common part, the closer.
    let is_contained = short.len() >= 3 && long.contains(short);
    let containment = if is_contained { 0.6 + 0.19 * short.len() as f64 / long.len() as f64 } else { 0.0 };
    let abbreviation = if is_abbreviation(short, long) { MIN_SIMILARITY } else { 0.0 };
    edit_similarity.max(containment).max(word_overlap(requested, name)).max(abbreviation)
}

/// Whether a name is the other with letters left out after the first three: `args` for `arguments`.
fn is_abbreviation(short: &str, long: &str) -> bool {
    let mut rest = long.chars();
    let same_start = short.chars().count() > 3 && short.chars().take(3).eq(long.chars().take(3));
    same_start && short.chars().all(|wanted| rest.any(|c| c == wanted))
}

/// The share of common words of two names: `add_cart` is close to `add_to_cart`.
fn word_overlap(requested: &str, name: &str) -> f64 {
    let words = |text: &str| text.split('_').filter(|word| !word.is_empty()).map(String::from).collect::<Vec<_>>();
    let (requested, mut unmatched) = (words(requested), words(name));
    let total = requested.len() + unmatched.len();
    let shared = requested.iter().filter(|word| {
        let index = unmatched.iter().position(|other| other == *word);
        index.map(|index| unmatched.swap_remove(index)).is_some()
    });
    match shared.count() {
        0 => 0.0,
        shared => 2.0 * shared as f64 / total as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = ["city", "quantity", "fs__read_file", "fs__write_file", "unit", "q"];

    #[track_caller]
    fn check(requested: &str, expected: &[&str]) {
        assert_eq!(closest(requested, KNOWN, 2), expected, "for {requested}");
    }

    #[test]
    fn misspelled_names_find_what_was_meant() {
        check("cty", &["city"]);
        check("City", &["city"]);
        check("quantty", &["quantity"]);
        check("units", &["unit"]);
        assert_eq!(closest("args", ["arguments", "threadId"], 2), ["arguments"]);
    }

    #[test]
    fn separators_and_forgotten_prefixes_do_not_matter() {
        check("read_file", &["fs__read_file"]);
        check("FS  read-file", &["fs__read_file", "fs__write_file"]);
        check("my city", &["city"]);
        assert_eq!(closest("add_cart", ["add", "add_to_cart", "show_cart"], 1), ["add_to_cart"]);
    }

    #[test]
    fn a_name_like_no_other_finds_nothing() {
        check("temperature", &[]);
        check("", &[]);
        check("x", &[]);
        check(&"y".repeat(100_000), &[]);
    }
}
