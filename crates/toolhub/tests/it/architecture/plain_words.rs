//! Keeps private idiom out of messages (log lines, errors, operator texts, `--help`), documents and manifests.
//!
//! In: the sources of all crates, the Markdown and TOML files. Out: one complaint for each string literal, each doc comment of the
//! binary's commands and each line of a document that contains a word of the list. A reader searches for what a text says; these
//! words lead nowhere.

use super::{
    assert_none,
    lexer::{Kind, line_number, spans, without_unit_tests},
    rust_files, source_files,
};

/// Words and phrases that have a standard term.
const REFUSED: &[&str] = &[
    "anew",
    "anybody",
    "broke off",
    "by halves",
    "everybody",
    "fell over",
    "for the moment",
    "goodbye",
    "heeded",
    "is believed",
    "is said",
    "is told",
    "looks after",
    "mends",
    "nobody",
    "room that",
    "said by",
    "set aside",
    "so many",
    "somebody",
    "was told",
    "were told",
    "where nothing is said",
    "whoever",
    "whomever",
];

/// Literals and, where `with_docs`, doc comments with a refused word.
fn complaints(path: &str, text: &str, with_docs: bool) -> Vec<String> {
    let text = without_unit_tests(text);
    let mut found = Vec::new();
    for (kind, span) in spans(text) {
        let part = &text[span.clone()];
        let checked = match kind {
            Kind::Literal => true,
            Kind::Comment => with_docs && part.starts_with("///"),
            Kind::Code => false,
        };
        for phrase in REFUSED.iter().filter(|phrase| checked && contains_phrase(part, phrase)) {
            found.push(format!("{path}:{}: `{phrase}` in {part}", line_number(text, span.start)));
        }
    }
    found
}

/// Lines of a document with a refused word. Code in backticks does not count: names of tests are sentences about behaviour.
fn document_complaints(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_sample = false;
    for (number, line) in text.lines().enumerate() {
        in_sample ^= line.trim_start().starts_with("```");
        let prose: String = line.split('`').step_by(2).filter(|_| !in_sample).collect();
        for phrase in REFUSED.iter().filter(|phrase| contains_phrase(&prose, phrase)) {
            found.push(format!("{path}:{}: `{phrase}` in {line}", number + 1));
        }
    }
    found
}

/// Whether a text contains a phrase as whole words, in any case.
fn contains_phrase(text: &str, phrase: &str) -> bool {
    let text = text.to_lowercase();
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(phrase)
        .any(|(at, _)| !is_word(text[..at].chars().next_back()) && !is_word(text[at + phrase.len()..].chars().next()))
}

#[test]
fn messages_use_standard_terms() {
    let is_test = |path: &str| path.split('/').any(|part| part.trim_end_matches(".rs").ends_with("tests"));
    let files = rust_files();
    let sources = files.iter().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"));
    let found: Vec<String> = sources
        .filter(|file| !is_test(&file.path) && !file.path.starts_with("crates/testkit/"))
        .flat_map(|file| complaints(&file.path, &file.text, file.path.starts_with("crates/cli/src/")))
        .collect();
    assert_none(&found);
}

#[test]
fn documents_use_standard_terms() {
    let is_sample = |path: &str| path.starts_with("checks/") || path.contains("/tests/");
    let is_document = |path: &str| (path.ends_with(".md") || path.ends_with(".toml")) && !is_sample(path);
    let files = source_files();
    let documents = files.iter().filter(|file| is_document(&file.path));
    assert_none(&documents.flat_map(|file| document_complaints(&file.path, &file.text)).collect::<Vec<String>>());
}

#[track_caller]
fn check(text: &str, with_docs: bool, expected: usize) {
    assert_eq!(complaints("a.rs", text, with_docs).len(), expected, "{text}");
}

#[test]
fn refused_words_are_found_in_literals_and_help_and_nowhere_else() {
    check("warn!(\"Whoever asked is gone\");", false, 1);
    check("warn!(\"whoevers\"); // whoever", false, 0);
    check("/// Whoever asks.\nstruct A;", false, 0);
    check("/// Whoever asks.\nstruct A;", true, 1);
    check("fn a() {}\n#[cfg(test)]\nmod tests { const A: &str = \"nobody\"; }", false, 0);
    assert_eq!(document_complaints("a.md", "Whoever asks, `nobody_waits` waits.").len(), 1);
}
