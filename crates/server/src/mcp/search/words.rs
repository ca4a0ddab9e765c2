//! The words of a text, in a form that is the same for variants of a word.
//!
//! In: names and sentences in English. Out: lower-case words without common endings; names such as `createPullRequest` are split.
//! A text in another language yields its words as they are.

use std::collections::HashSet;

use smol_str::SmolStr;

/// Words that say nothing about a tool.
const STOP_WORDS: [&str; 48] = [
    "a", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "given", "has", "have",
    "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "need", "of", "on", "or", "our", "please", "so",
    "some", "that", "the", "their", "there", "this", "to", "want", "was", "we", "what", "which", "with", "you",
];

/// Words that mean the same in the names of tools.
const SYNONYMS: [&[&str]; 54] = [
    &["get", "fetch", "read", "retriev", "show", "view", "see", "display"],
    &["list", "all", "ever", "enumerat"],
    &["creat", "add", "mak", "new"],
    &["delet", "remov", "drop", "clear", "tak"],
    &["updat", "chang", "edit", "modif", "set", "alter", "renam", "replac"],
    &["search", "find", "lookup", "quer", "look"],
    &["send", "post", "submit", "publish", "deliver"],
    &["stop", "cancel", "abort", "end", "halt", "terminat", "kill", "quit", "shut"],
    &["run", "execut", "trigger", "start", "launch", "begin"],
    &["check", "verif", "test", "whether"],
    &["enabl", "allow", "permit", "activat", "let"],
    &["disabl", "forbid", "prevent", "block"],
    &["declin", "reject", "refus", "den", "dismiss"],
    &["approv", "accept", "confirm"],
    &["ignor", "exclud", "skip", "omit"],
    &["revok", "invalidat", "withdraw"],
    &["restrict", "limit"],
    &["convert", "render", "transform", "format", "translat"],
    &["shar", "grant", "invit", "giv", "assign"],
    &["follow", "subscrib", "watch"],
    &["repl", "answer", "respond", "comment"],
    &["cop", "duplicat", "clon", "fork"],
    &["merg", "combin", "join"],
    &["mov", "transfer"],
    &["download", "export"],
    &["upload", "import"],
    &["retr", "again", "repeat", "redo"],
    &["finish", "complet", "don"],
    &["hid", "visibl", "visibilit"],
    &["user", "person", "member", "peopl", "who", "account"],
    &["colleagu", "collaborator", "teammat", "contributor"],
    &["repo", "repositor"],
    &["organization", "org", "compan"],
    &["secret", "password", "credential"],
    &["fil", "document"],
    &["folder", "director"],
    &["version", "revision"],
    &["issu", "ticket", "bug"],
    &["permission", "access", "right", "rol"],
    &["label", "tag"],
    &["email", "mail"],
    &["invit", "invitation"],
    &["websit", "sit", "pag", "web"],
    &["child", "nest"],
    &["histor", "log", "audit"],
    &["siz", "spac", "usag"],
    &["location", "plac", "wher"],
    &["main", "primar", "default"],
    &["previous", "earlier", "old", "former"],
    &["set", "config", "configuration", "option", "preferenc"],
    &["pictur", "imag", "photo", "avatar"],
    &["cost", "pric", "bill", "charg"],
    &["machin", "server", "host", "runner"],
    &["job", "task"],
];

/// The words of a text, in order.
pub(super) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// Each word once, in the order of their first appearance.
    pub(super) fn distinct(self) -> Vec<SmolStr> {
        let mut seen = HashSet::new();
        self.filter(|word| seen.insert(word.clone())).collect()
    }
}

impl Iterator for Words<'_> {
    type Item = SmolStr;

    fn next(&mut self) -> Option<SmolStr> {
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| !c.is_alphanumeric());
            if self.rest.is_empty() {
                return None;
            }
            let (word, rest) = self.rest.split_at(end_of_word(self.rest));
            self.rest = rest;
            let word = word.to_lowercase();
            if STOP_WORDS.binary_search(&word.as_str()).is_err() {
                return Some(stem(&word));
            }
        }
    }
}

/// Where the first word of a text ends: before a character that is no letter or digit, and before a capital that begins a word, as in
/// `pullRequest` and `HTTPServer`.
fn end_of_word(text: &str) -> usize {
    let mut previous: Option<char> = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if !c.is_alphanumeric() {
            return at;
        }
        let next_is_lower = characters.peek().is_some_and(|(_, next)| next.is_lowercase());
        if let Some(previous) = previous
            && c.is_uppercase()
            && (previous.is_lowercase() || previous.is_numeric() || (previous.is_uppercase() && next_is_lower))
        {
            return at;
        }
        previous = Some(c);
    }
    text.len()
}

/// A word without the endings that its variants have: `repositories` and `repository` are `repositor`.
fn stem(word: &str) -> SmolStr {
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

/// The words that mean the same.
pub(super) fn synonyms(word: &str) -> impl Iterator<Item = &'static str> {
    let groups = SYNONYMS.iter().filter(move |group| group.contains(&word));
    groups.flat_map(|group| group.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::{STOP_WORDS, SYNONYMS, Words, stem};

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let words: Vec<_> = Words::of(text).collect();
        assert_eq!(words, expected, "{text}");
    }

    #[test]
    fn names_and_sentences_have_the_same_words() {
        check("createPullRequest", &["creat", "pull", "request"]);
        check("create a pull-request", &["creat", "pull", "request"]);
        check("pulls/list_review_comments", &["pull", "list", "review", "comment"]);
        check("HTTPServers", &["http", "server"]);
        check("the repositories of repository", &["repositor", "repositor"]);
        check("deleting, deleted, deletes, delete", &["delet"; 4]);
        check("", &[]);
        check("…!", &[]);
        check("读取文件 наблюдать", &["读取文件", "наблюдать"]);
    }

    #[test]
    fn the_tables_are_in_the_form_that_they_are_looked_up_in() {
        assert!(STOP_WORDS.is_sorted());
        for word in SYNONYMS.iter().flat_map(|group| group.iter()) {
            assert_eq!(stem(word), *word);
        }
    }
}
