//! Every file that a document names exists.
//!
//! In: the Markdown files of the repository and the names of all files. Out: one complaint for each path in backticks with an ending
//! of ours that no file has. A path may leave out its beginning and `src`: `core/pipeline/open.rs` is enough.

use super::{SourceFile, assert_none, source_files};

const ENDINGS: [&str; 2] = [".rs", ".md"];

fn complaints(page: &SourceFile, files: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_sample = false;
    for (number, line) in page.text.lines().enumerate() {
        in_sample ^= line.trim_start().starts_with("```");
        let quoted = line.split('`').skip(1).step_by(2).filter(|_| !in_sample);
        for path in quoted.filter(|text| ENDINGS.iter().any(|ending| text.ends_with(ending)) && !text.contains(' ')) {
            let wanted = path.trim_start_matches("../").trim_start_matches("./");
            // A glob names several files.
            if !wanted.contains('*') && !files.iter().any(|file| ends_with_path(file, wanted)) {
                found.push(format!("{}:{}: no file is named `{path}`", page.path, number + 1));
            }
        }
    }
    found
}

/// Whether a file's path, with or without the folder `src`, ends with these components.
fn ends_with_path(file: &str, wanted: &str) -> bool {
    let ends = |file: &str| file.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    ends(file) || ends(&file.replace("/src/", "/"))
}

#[test]
fn documents_name_files_that_exist() {
    let all = source_files();
    let files: Vec<&str> = all.iter().map(|file| file.path.as_str()).collect();
    let pages = all.iter().filter(|file| file.path.ends_with(".md"));
    assert_none(&pages.flat_map(|page| complaints(page, &files)).collect::<Vec<String>>());
}

#[test]
fn a_path_without_a_file_is_named() {
    let page = |text: &str| SourceFile { path: "a.md".to_owned(), text: text.to_owned() };
    let check = |text: &str| complaints(&page(text), &["crates/core/src/pipeline/open.rs", "docs/cli.md"]).len();
    assert_eq!(check("`core/pipeline/open.rs`, `core/src/pipeline/open.rs` and `docs/cli.md`"), 0);
    assert_eq!(check("`pipeline/opened.rs`"), 1);
    assert_eq!(check("`line/open.rs`"), 1);
    assert_eq!(check("```\n`gone.rs`\n```\n`tests/*.rs`"), 0);
}
