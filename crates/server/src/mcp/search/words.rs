//! The words of a text, in a form that is the same for variants of a word.
//!
//! In: names and sentences in English. Out: lower-case words without common endings; names such as `createPullRequest` are split.
//! A text in another language yields its words as they are.

use smol_str::SmolStr;

use super::{stem::stem, vocabulary};

/// Words that say nothing about a tool.
#[rustfmt::skip]
const STOP_WORDS: [&str; 100] = [
    "a", "about", "again", "also", "an", "and", "another", "any", "are", "as", "at", "be", "been", "being", "but", "by", "can",
    "certain", "could", "d", "did", "do", "does", "doing", "for", "from", "given", "had", "has", "have", "having", "he", "her",
    "here", "his", "how", "i", "if", "in", "into", "is", "it", "its", "just", "ll", "may", "might", "must", "need", "nor", "of",
    "on", "one", "only", "or", "our", "ours", "per", "please", "re", "s", "shall", "she", "should", "so", "some", "such", "t",
    "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "too", "upon", "us", "very",
    "via", "want", "was", "we", "were", "what", "when", "which", "while", "will", "with", "would", "yes", "yet", "you", "your",
];

/// Words that undo what the word without `un` does.
const REVERSALS: [&str; 23] = [
    "unarchive",
    "unassign",
    "unban",
    "unblock",
    "undelete",
    "unfollow",
    "unfreeze",
    "unhide",
    "uninstall",
    "unlike",
    "unlink",
    "unlock",
    "unmark",
    "unmute",
    "unpin",
    "unpublish",
    "unset",
    "unshare",
    "unstar",
    "unsubscribe",
    "unsuspend",
    "untag",
    "unwatch",
];

/// The terms of a text, in order: its words without those that say nothing.
pub(super) fn terms(text: &str) -> impl Iterator<Item = SmolStr> {
    let words = plain_words(text).filter(|word| !is_stop_word(word));
    words.flat_map(with_reversed).map(|word| stem(&word))
}

/// The words of a text as they stand there, in lower case, with abbreviations written out.
pub(super) fn plain_words(text: &str) -> impl Iterator<Item = SmolStr> {
    let words = SplitWords { rest: text }.map(|word| SmolStr::from(word.to_lowercase()));
    words.flat_map(|word| match vocabulary::written_out(&word) {
        Some(words) => words.split(' ').map(SmolStr::from).collect(),
        None => vec![word],
    })
}

pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// A word, and if it undoes something, what it undoes: `unlock` is `unlock`, `lock`, `remove`.
pub(super) fn with_reversed(word: SmolStr) -> Vec<SmolStr> {
    match REVERSALS.binary_search(&word.as_str()) {
        Ok(_) => vec![word.clone(), word["un".len()..].into(), "remove".into()],
        Err(_) => vec![word],
    }
}

/// The words of a text, in order.
struct SplitWords<'a> {
    rest: &'a str,
}

impl<'a> Iterator for SplitWords<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start_matches(|c: char| !c.is_alphanumeric());
        if self.rest.is_empty() {
            return None;
        }
        let (word, rest) = self.rest.split_at(end_of_word(self.rest));
        self.rest = rest;
        Some(word)
    }
}

/// Where the first word of a text ends: before a character that is no letter or digit, and before a capital that begins a word, as in
/// `pullRequest` and `HTTPServer`, but not in `URLs`.
fn end_of_word(text: &str) -> usize {
    let mut previous: Option<char> = None;
    for (at, c) in text.char_indices() {
        if !c.is_alphanumeric() {
            return at;
        }
        if let Some(previous) = previous
            && c.is_uppercase()
            && (previous.is_lowercase()
                || previous.is_numeric()
                || (previous.is_uppercase() && begins_word(&text[at..])))
        {
            return at;
        }
        previous = Some(c);
    }
    text.len()
}

/// Whether a capital after a capital begins a word: a small letter follows that is not the `s` of a plural.
fn begins_word(text: &str) -> bool {
    let mut following = text.chars().skip(1);
    match following.next() {
        Some('s') => following.next().is_some_and(char::is_lowercase),
        next => next.is_some_and(char::is_lowercase),
    }
}

#[cfg(test)]
mod tests {
    use super::{REVERSALS, STOP_WORDS, terms};

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let words: Vec<_> = terms(text).collect();
        assert_eq!(words, expected, "{text}");
    }

    #[test]
    fn names_and_sentences_have_the_same_words() {
        check("createPullRequest", &["creat", "pull", "request"]);
        check("create a pull-request", &["creat", "pull", "request"]);
        check("pulls/list_review_comments", &["pull", "list", "review", "comment"]);
        check("HTTPServers", &["http", "server"]);
        check("the URLsOf open PRs", &["url", "open", "pull", "request"]);
        check("the repositories of repository, repos", &["repositor"; 3]);
        check("deleting, deleted, deletes, delete", &["delet"; 4]);
        check("unlock", &["unlock", "lock", "remov"]);
        check("", &[]);
        check("…!", &[]);
        check("读取文件 наблюдать", &["读取文件", "наблюдать"]);
    }

    #[test]
    fn the_tables_are_sorted_for_their_lookup() {
        assert!(STOP_WORDS.is_sorted());
        assert!(REVERSALS.is_sorted());
    }
}
