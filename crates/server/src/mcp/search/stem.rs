//! English words without the endings that their variants have.
//!
//! In: a word in lower case. Out: what its variants have in common. A word in another script stays as it is.

use smol_str::SmolStr;

/// A word without its ending: `repositories` and `repository` are `repositor`.
pub(super) fn stem(word: &str) -> SmolStr {
    if !word.is_ascii() {
        return word.into();
    }
    let mut stem = word.to_owned();
    if let Some(start) = word.strip_suffix("ies").filter(|start| start.len() >= 2) {
        stem = format!("{start}y");
    } else if word.len() >= 4 && word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        stem.pop();
    }
    if let Some(start) = stem.strip_suffix("ied").filter(|start| start.len() >= 3) {
        stem = format!("{start}y");
    } else if let Some(start) = strip_at_least(&stem, "ing", 4).or_else(|| strip_at_least(&stem, "ed", 3)) {
        let last = start.chars().next_back();
        // `running` is `run`, but `billing` is `bill`.
        let is_doubled =
            start.chars().rev().nth(1) == last && last.is_some_and(|c| is_consonant(c) && !"ls".contains(c));
        stem = start[..start.len() - usize::from(is_doubled)].to_owned();
    }
    let before_last = stem.chars().rev().nth(1);
    let drops_last =
        stem.len() >= 4 && (stem.ends_with('e') || (stem.ends_with('y') && before_last.is_some_and(is_consonant)));
    if drops_last {
        stem.pop();
    }
    stem.into()
}

fn strip_at_least<'a>(word: &'a str, ending: &str, least: usize) -> Option<&'a str> {
    word.strip_suffix(ending).filter(|start| start.len() >= least)
}

fn is_consonant(c: char) -> bool {
    c.is_ascii_alphabetic() && !"aeiou".contains(c)
}
