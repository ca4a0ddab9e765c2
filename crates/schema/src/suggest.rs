//! Finds the known names a misspelled one was probably meant to be.
//!
//! In: what was asked for and what exists. Out: the similar ones, best first; nothing when nothing is similar.
//! Knows neither tools nor fields; the caller puts the names into a sentence.

/// Below this two names share letters by chance rather than by intention.
const MIN_SIMILARITY: f64 = 0.6;
/// Comparing costs the product of both lengths, and the names may come from a hostile caller.
const MAX_LENGTH: usize = 128;

/// The known names closest to the wanted one, best first, at most `most`.
///
/// Case does not count and `-`, `_` and a space are the same; a name that contains the other is close to it.
#[must_use]
pub fn closest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let wanted = normalize(wanted);
    let mut similar: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| (similarity(&wanted, &normalize(name)), name))
        .filter(|(likeness, _)| *likeness >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    similar.into_iter().take(most).map(|(_, name)| name).collect()
}

fn normalize(name: &str) -> String {
    let one = |c: char| if matches!(c, '-' | ' ') { '_' } else { c };
    name.chars().take(MAX_LENGTH).flat_map(char::to_lowercase).map(one).collect()
}

fn similarity(wanted: &str, name: &str) -> f64 {
    if wanted == name {
        return 1.0;
    }
    let spelled = strsim::normalized_damerau_levenshtein(wanted, name);
    let (short, long) = if wanted.len() < name.len() { (wanted, name) } else { (name, wanted) };
    // One name inside the other: letters were forgotten or invented. The tighter the fit, the closer.
    let inside = short.len() >= 3 && long.contains(short);
    let contained = if inside { 0.6 + 0.19 * short.len() as f64 / long.len() as f64 } else { 0.0 };
    spelled.max(contained).max(word_overlap(wanted, name))
}

/// How much of two names is the same words, whatever stands between them: `add_cart` is close to `add_to_cart`.
fn word_overlap(wanted: &str, name: &str) -> f64 {
    let words = |text: &str| text.split('_').filter(|word| !word.is_empty()).map(String::from).collect::<Vec<_>>();
    let (wanted, mut left) = (words(wanted), words(name));
    let all = wanted.len() + left.len();
    let shared = wanted
        .iter()
        .filter(|word| left.iter().position(|other| other == *word).map(|at| left.swap_remove(at)).is_some());
    match shared.count() {
        0 => 0.0,
        shared => 2.0 * shared as f64 / all as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = ["city", "quantity", "fs__read_file", "fs__write_file", "unit", "q"];

    #[track_caller]
    fn check(wanted: &str, expected: &[&str]) {
        assert_eq!(closest(wanted, KNOWN, 2), expected, "for {wanted}");
    }

    #[test]
    fn misspelled_names_find_what_was_meant() {
        check("cty", &["city"]);
        check("City", &["city"]);
        check("quantty", &["quantity"]);
        check("units", &["unit"]);
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
