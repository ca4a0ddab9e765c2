//! Keeps references to other documents out of the repository: it must be readable alone.
//!
//! In: every text we write. Out: one complaint for each line with a paragraph sign or the number of a seed document.

use super::{assert_none, source_files};

/// The one page whose purpose is to track those numbers.
const EXEMPT: &str = "docs/seeds.md";

// Written as its code, since this file is searched as well.
const PARAGRAPH_SIGN: char = '\u{a7}';

fn numbered_lines(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| line.contains(PARAGRAPH_SIGN) || has_seed_number(line));
    lines.map(|(line, number)| format!("{path}:{number}: {}", line.trim())).collect()
}

/// A word made of a capital S and one or two digits.
fn has_seed_number(line: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| {
        word.strip_prefix('S')
            .is_some_and(|rest| (1..=2).contains(&rest.len()) && rest.chars().all(|c| c.is_ascii_digit()))
    })
}

#[test]
fn no_text_points_at_a_numbered_paragraph_or_seed() {
    let files = source_files();
    assert!(files.len() > 10, "expected a repository, found {} files", files.len());
    let texts = files.iter().filter(|file| file.path != EXEMPT);
    let complaints: Vec<String> = texts.flat_map(|file| numbered_lines(&file.path, &file.text)).collect();
    assert_none(&complaints);
}

#[track_caller]
fn check(line: &str, refused: bool) {
    let expected = if refused { vec![format!("a.rs:2: {line}")] } else { Vec::new() };
    assert_eq!(numbered_lines("a.rs", &format!("//! First.\n{line}\n")), expected);
}

#[test]
fn numbers_of_other_documents_are_found_and_other_words_are_not() {
    check(&format!("// As {PARAGRAPH_SIGN}4 says."), true);
    // Assembled here, for the reason given above.
    check(&format!("// Needed by {}{}.", 'S', 0), true);
    check(&format!("// Needed by ({}{}).", 'S', 12), true);
    check("// Reads the SHA256 of S and of the state's S_0.", false);
    check("// The part number is XS4 or S1234.", false);
}

#[test]
fn a_newcomer_finds_the_guide() {
    let files = source_files();
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    assert!(text("README.md").is_some_and(|readme| readme.contains("docs/guide/first-tools.md")));
    assert!(text("docs/guide/first-tools.md").is_some());
}
