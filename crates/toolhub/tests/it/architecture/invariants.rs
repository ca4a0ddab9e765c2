//! Holds that every invariant that is documented names a test that exists.
//!
//! In: `ARCHITECTURE.md`, `docs/invariants.md` and all Rust files. Out: one complaint for each row of a table "invariant, test"
//! that names no test, or one that does not exist.

use std::collections::HashSet;

use super::{assert_none, function_names, rust_files, source_files};

const PAGES: [&str; 2] = ["ARCHITECTURE.md", "docs/invariants.md"];
const HEADER: &str = "| invariant | test |";

fn complaints(page: &str, functions: &HashSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line == HEADER) {
        for row in lines.by_ref().skip(1).take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let tests: Vec<&str> = cells.last().map_or(Vec::new(), |cell| cell.split('`').skip(1).step_by(2).collect());
            if cells.len() != 2 || tests.is_empty() || !tests.iter().all(|test| functions.contains(test)) {
                found.push(format!("no such test: {row}"));
            }
        }
    }
    found
}

#[test]
fn every_invariant_names_a_test_that_exists() {
    let sources = rust_files();
    let functions: HashSet<&str> = sources.iter().flat_map(|file| function_names(&file.text)).collect();
    for page in source_files().iter().filter(|file| PAGES.contains(&file.path.as_str())) {
        assert!(page.text.contains(HEADER), "{} holds no table of invariants", page.path);
        assert_none(&complaints(&page.text, &functions));
    }
}

#[test]
fn a_row_without_a_real_test_is_named() {
    let functions = HashSet::from(["retries_are_bounded"]);
    let check = |row: &str| complaints(&format!("{HEADER}\n|---|---|\n{row}\n\ntext"), &functions).len();
    assert_eq!(check("| Retries are bounded | `retries_are_bounded` |"), 0);
    assert_eq!(check("| Retries are bounded | `retries_are_not` |"), 1);
    assert_eq!(check("| Retries are bounded | soon |"), 1);
}
