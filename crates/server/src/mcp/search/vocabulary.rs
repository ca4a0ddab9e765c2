//! What words of a question mean in the words of interfaces.
//!
//! In: words. Out: what stands for them in names and descriptions of tools. The tables are text files: English words of software,
//! work and administration.

use std::{collections::HashMap, sync::LazyLock};

use smol_str::SmolStr;

use super::stem::stem;

/// The largest number of words in a phrase.
const MAX_PHRASE: usize = 3;

static ABBREVIATIONS: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| pairs(include_str!("vocabulary/abbreviations.txt")).collect());
static PHRASES: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| pairs(include_str!("vocabulary/phrases.txt")).collect());
static ALTERNATIVES: LazyLock<HashMap<SmolStr, Vec<SmolStr>>> = LazyLock::new(read_alternatives);

/// The words that an abbreviation stands for, separated by blanks.
pub(super) fn written_out(word: &str) -> Option<&'static str> {
    ABBREVIATIONS.get(word).copied()
}

/// The words of a question with what its phrases mean: `get rid of` is `delete`.
pub(super) fn without_phrases(words: &[SmolStr]) -> Vec<SmolStr> {
    let (mut found, mut rest) = (Vec::new(), words);
    while let [word, following @ ..] = rest {
        let longest_first = (1..=MAX_PHRASE.min(rest.len())).rev();
        let mut phrases =
            longest_first.filter_map(|length| Some((length, *PHRASES.get(rest[..length].join(" ").as_str())?)));
        match phrases.next() {
            Some((length, meaning)) => {
                found.extend(meaning.split(' ').map(SmolStr::from));
                rest = &rest[length..];
            }
            None => {
                found.push(word.clone());
                rest = following;
            }
        }
    }
    found
}

/// The terms that mean the same as a term, or that it is an everyday word for.
pub(super) fn alternatives(term: &str) -> &'static [SmolStr] {
    ALTERNATIVES.get(term).map_or(&[], Vec::as_slice)
}

fn read_alternatives() -> HashMap<SmolStr, Vec<SmolStr>> {
    let mut alternatives: HashMap<SmolStr, Vec<SmolStr>> = HashMap::new();
    let mut add = |word: &SmolStr, other: &SmolStr| {
        let others = alternatives.entry(word.clone()).or_default();
        if word != other && !others.contains(other) {
            others.push(other.clone());
        }
    };
    for group in lines(include_str!("vocabulary/synonyms.txt")) {
        let group: Vec<SmolStr> = group.split(' ').map(stem).collect();
        for word in &group {
            group.iter().for_each(|other| add(word, other));
        }
    }
    for (meant, said) in pairs(include_str!("vocabulary/everyday.txt")) {
        said.split(' ').for_each(|word| add(&stem(word), &stem(meant)));
    }
    alternatives
}

/// The lines `KEY: VALUE` of a table.
fn pairs(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    lines(table).filter_map(|line| line.split_once(": "))
}

/// The lines of a table that are no comment.
fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::{alternatives, lines, pairs, without_phrases};
    use crate::mcp::search::words::is_stop_word;

    #[test]
    fn each_line_of_the_tables_can_be_looked_up() {
        let pair_tables = [
            include_str!("vocabulary/abbreviations.txt"),
            include_str!("vocabulary/phrases.txt"),
            include_str!("vocabulary/everyday.txt"),
        ];
        for table in pair_tables {
            assert_eq!(lines(table).count(), pairs(table).count());
        }
        let everyday = pairs(include_str!("vocabulary/everyday.txt")).map(|(_, said)| said);
        for words in lines(include_str!("vocabulary/synonyms.txt")).chain(everyday) {
            for word in words.split(' ') {
                assert!(!word.is_empty() && !is_stop_word(word), "`{word}` in `{words}`");
            }
        }
    }

    #[test]
    fn words_stand_for_others() {
        let meaning = |words: &str| without_phrases(&words.split(' ').map(Into::into).collect::<Vec<_>>()).join(" ");
        assert_eq!(meaning("get rid of a file"), "delete a file");
        assert_eq!(meaning("turn the lights on"), "turn the lights on");
        assert!(alternatives("ticket").iter().any(|term| term == "issu"));
        assert!(alternatives("homework").iter().any(|term| term == "assignment"));
        assert!(alternatives("zzz").is_empty());
    }
}
