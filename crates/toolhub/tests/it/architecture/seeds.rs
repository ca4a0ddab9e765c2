//! `docs/seeds.md` names only tests that exist.
//!
//! In: the page and all Rust files. Out: one complaint for each row that names a test which does not exist.

use std::collections::HashSet;

use super::{assert_none, rust_files, source_files};

const PAGE: &str = "docs/seeds.md";

/// Rows are `| item | where it lives | test or "not yet" |`; tests are in backticks, with or without their module.
fn missing_tests(page: &str, functions: &HashSet<&str>) -> Vec<String> {
    let mut complaints = Vec::new();
    let rows = page.lines().filter(|line| line.starts_with('|'));
    for row in rows.skip_while(|row| !is_table_separator(row)).skip(1) {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
        let &[item, _, tests] = cells.as_slice() else {
            complaints.push(format!("a row needs three cells: {row}"));
            continue;
        };
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && tests.trim_matches('"') != "not yet" {
            complaints.push(format!("{item}: name a test in backticks, or write: not yet"));
        }
        for test in named {
            let name = test.rsplit("::").next().unwrap_or(test);
            if !functions.contains(name) {
                complaints.push(format!("{item}: no test is called {test}"));
            }
        }
    }
    complaints
}

/// The line of dashes between a table's head and its rows.
fn is_table_separator(row: &str) -> bool {
    row.contains('-') && row.chars().all(|c| "|-: ".contains(c))
}

pub(crate) fn function_names(source: &str) -> impl Iterator<Item = &str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.filter_map(|line| {
        let (_, rest) = line.split_once("fn ")?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    })
}

#[test]
fn every_test_the_page_names_exists() {
    let sources = rust_files();
    let functions: HashSet<&str> = sources.iter().flat_map(|file| function_names(&file.text)).collect();
    let files = source_files();
    let page = files.iter().find(|file| file.path == PAGE).expect("docs/seeds.md exists");
    assert!(page.text.lines().any(is_table_separator), "{PAGE} has no table");
    assert_none(&missing_tests(&page.text, &functions));
}

#[track_caller]
fn check(row: &str, expected: &[&str]) {
    let source = "#[test]\nfn waits_double() {}\n    async fn gives_up<T>() {}\n// fn only_planned() {}";
    let page = format!("# Seeds\n\n| item | where it lives | test |\n|---|---|---|\n{row}\n");
    assert_eq!(missing_tests(&page, &function_names(source).collect()), expected);
}

#[test]
fn a_row_with_real_tests_or_none_yet_passes() {
    check("", &[]);
    check("| retry | core | `waits_double` |", &[]);
    check("| retry | core | `policy::waits_double`, `gives_up` |", &[]);
    check("| retry | core | not yet |", &[]);
    check("| retry | core | \"not yet\" |", &[]);
}

#[test]
fn a_row_that_promises_too_much_is_named() {
    check("| retry | core | `waits_triple` |", &["retry: no test is called waits_triple"]);
    check("| retry | core | `policy::only_planned` |", &["retry: no test is called policy::only_planned"]);
    check("| retry | core | soon |", &["retry: name a test in backticks, or write: not yet"]);
    check("| retry | core |", &["a row needs three cells: | retry | core |"]);
}
