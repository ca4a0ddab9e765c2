//! Holds that a private type name means one thing in a crate.
//!
//! In: the sources of each crate. Out: one complaint for each private name that more than two of its modules
//! define, with the places.

use std::collections::BTreeMap;

use super::{SourceFile, assert_none, lexer::blank_comments_and_literals, rust_files};

/// In how many modules of a crate a private name may be defined.
const MAX_MODULES: usize = 2;
/// Names that say the same wherever they stand.
const ALLOWED: &[&str] = &["Builder", "Config", "Error", "Handle", "Inner", "Options", "Output", "Record", "State"];

/// The private types that a source file defines, each with its line. Associated types are none.
fn private_types(text: &str) -> Vec<(String, usize)> {
    let code = blank_comments_and_literals(text);
    let mut found = Vec::new();
    for (line, number) in code.lines().zip(1..) {
        let rest = line.trim_start();
        let indented = rest.len() < line.len();
        let (restricted, rest) = match rest.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")) {
            Some((_, rest)) => (true, rest),
            None => (false, rest),
        };
        let (keyword, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let is_type = ["struct", "enum", "trait", "union"].contains(&keyword);
        // An indented `type` without visibility is an associated type.
        let is_alias = keyword == "type" && (restricted || !indented);
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if (is_type || is_alias) && !name.is_empty() {
            found.push((name, number));
        }
    }
    found
}

/// `crates/core/src/`: what is compiled as one crate. Tests define the same small tools and states again and again.
fn crate_folder(path: &str) -> Option<&str> {
    let end = path.strip_prefix("crates/")?.find("/src/")?;
    Some(&path[.."crates/".len() + end + "/src/".len()])
}

fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut names: BTreeMap<(&str, String), BTreeMap<&str, usize>> = BTreeMap::new();
    for file in files {
        let Some(folder) = crate_folder(&file.path) else { continue };
        for (name, line) in private_types(&file.text) {
            names.entry((folder, name)).or_default().entry(&file.path).or_insert(line);
        }
    }
    let repeated =
        names.into_iter().filter(|((_, name), places)| places.len() > MAX_MODULES && !ALLOWED.contains(&name.as_str()));
    repeated
        .map(|((folder, name), places)| {
            let places: Vec<String> = places.iter().map(|(path, line)| format!("{path}:{line}")).collect();
            format!("`{name}` is {} private types in {folder}: {}", places.len(), places.join(", "))
        })
        .collect()
}

#[test]
fn a_private_type_name_stands_for_one_thing() {
    assert_none(&complaints(&rust_files()));
}

#[test]
fn a_name_in_three_modules_is_refused_and_public_or_allowed_names_are_not() {
    let file = |name: &str, text: &str| SourceFile { path: format!("crates/a/src/{name}.rs"), text: text.into() };
    let three = |text: &str| complaints(&["x", "y", "z"].map(|name| file(name, text))).len();
    assert_eq!(three("struct Desk;"), 1);
    assert_eq!(three("pub(crate) enum Desk {}"), 1);
    assert_eq!(three("pub struct Desk;"), 0);
    assert_eq!(three("struct Inner;"), 0);
    assert_eq!(three("impl Iterator for A {\n    type Item = u8;\n}"), 0);
    assert_eq!(complaints(&[file("x", "struct Desk;"), file("y", "struct Desk;")]).len(), 0);
}
