//! Keeps unsafe code out of `src/`.
//!
//! In: Rust files. Out: one complaint for each line that would permit it. Test code outside `src/` is not checked.

use std::path::Path;

use super::{assert_none, metadata, relative_to_root, rust_files};

const FORBID: &str = "#![forbid(unsafe_code)]";

fn unsafe_lines(path: &str, text: &str) -> Vec<String> {
    if !path.split('/').any(|folder| folder == "src") {
        return Vec::new();
    }
    let lines = text.lines().zip(1..).filter(|(line, _)| line.trim() != FORBID && line.contains("unsafe"));
    lines.map(|(line, number)| format!("{path}:{number}: {}", line.trim())).collect()
}

/// The root files of everything we ship: libraries and binaries, not examples, tests and build scripts.
fn crate_roots() -> Vec<String> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let targets = packages.iter().flat_map(|package| package["targets"].as_array()).flatten();
    targets
        .filter(|target| ["lib", "bin"].iter().any(|kind| target["kind"][0] == *kind))
        .map(|target| relative_to_root(Path::new(target["src_path"].as_str().expect("a target has a source file"))))
        .collect()
}

#[test]
fn no_source_file_mentions_unsafe_code_but_to_forbid_it() {
    let complaints: Vec<String> = rust_files().iter().flat_map(|file| unsafe_lines(&file.path, &file.text)).collect();
    assert_none(&complaints);
}

#[test]
fn every_library_and_binary_forbids_unsafe_code() {
    let files = rust_files();
    let roots = crate_roots();
    assert!(roots.len() > 1, "expected several crates, found {roots:?}");
    let forbids =
        |root: &str| files.iter().any(|file| file.path == root && file.text.lines().any(|line| line == FORBID));
    let complaints: Vec<String> =
        roots.iter().filter(|root| !forbids(root)).map(|root| format!("{root} lacks {FORBID}")).collect();
    assert_none(&complaints);
}

#[track_caller]
fn check(path: &str, text: &str, expected: &[&str]) {
    assert_eq!(unsafe_lines(path, text), expected);
}

#[test]
fn unsafe_code_is_named_with_its_line_and_only_in_src() {
    check("crates/core/src/lib.rs", "#![forbid(unsafe_code)]\nmod tool;\n", &[]);
    check("crates/core/src/a.rs", "\n  unsafe { f() }", &["crates/core/src/a.rs:2: unsafe { f() }"]);
    check("crates/core/src/a.rs", "#![allow(unsafe_code)]", &["crates/core/src/a.rs:1: #![allow(unsafe_code)]"]);
    check("crates/core/tests/it/alloc.rs", "unsafe { f() }", &[]);
}
