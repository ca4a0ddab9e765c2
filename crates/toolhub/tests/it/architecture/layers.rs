//! Top-level modules of a crate must not import each other in a cycle.
//!
//! In: the Rust files of a crate. Out: one complaint for each cycle, naming every import in it. Every path from the
//! crate's root counts, `crate::…` and `super::` chains that lead there; in `use` or inline, in tests too. A path to an
//! item that the root re-exports counts for the module it comes from.

use std::collections::{BTreeMap, BTreeSet};

use super::{SourceFile, assert_none, lexer::blank_comments_and_literals, metadata, rust_files};

mod paths;

/// An import of one top-level module by another, and its location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
    location: String,
}

/// Every import between top-level modules of the crate whose sources are in `folder`.
fn imports(folder: &str, files: &[SourceFile]) -> Vec<Import> {
    let in_crate = || files.iter().filter_map(|file| Some((file.path.strip_prefix(folder)?, &file.text)));
    let is_root = |path: &str| path == "lib.rs" || path == "main.rs";
    let root: String =
        in_crate().filter(|(path, _)| is_root(path)).map(|(_, text)| blank_comments_and_literals(text)).collect();
    let modules: BTreeSet<&str> = paths::declared_modules(&root);
    let exported = paths::re_exports(&root, &modules);
    let mut found = Vec::new();
    for (path, text) in in_crate().filter(|(path, _)| !is_root(path)) {
        let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        for (line, target) in paths::paths_from_root(&blank_comments_and_literals(text), parts.len()) {
            let to = modules.get(target.as_str()).copied().or_else(|| exported.get(&target).map(String::as_str));
            if let Some(to) = to.filter(|to| *to != parts[0]) {
                let place = format!("{folder}{path}:{line} imports {to}");
                found.push(Import { from: parts[0].to_owned(), to: to.to_owned(), location: place });
            }
        }
    }
    found
}

/// The groups of modules that reach each other, each with all imports inside it.
fn import_cycles(imports: &[Import]) -> Vec<String> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Import { from, to, .. } in imports {
        next.entry(from).or_default().insert(to);
    }
    let reaches = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = open.pop() {
            for to in next.get(module.as_str()).into_iter().flatten() {
                if seen.insert((*to).to_owned()) {
                    open.push((*to).to_owned());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = next.keys().map(|module| (*module, reaches(module))).collect();
    let mut complaints = BTreeSet::new();
    for module in next.keys().filter(|module| reached[*module].contains(**module)) {
        let mutual = |other: &str| {
            reached[module].contains(other) && reached.get(other).is_some_and(|reached| reached.contains(*module))
        };
        let inside = imports.iter().filter(|import| mutual(&import.from) && mutual(&import.to));
        let places: BTreeSet<&str> = inside.map(|import| import.location.as_str()).collect();
        let members: Vec<&str> = next.keys().copied().filter(|other| mutual(other)).collect();
        let lines: Vec<&str> = places.into_iter().collect();
        complaints.insert(format!("{} import each other:\n  {}", members.join(", "), lines.join("\n  ")));
    }
    complaints.into_iter().collect()
}

/// The folders of sources of all our crates, as `crates/core/src/`.
fn source_folders() -> Vec<String> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let manifests = packages.iter().filter_map(|package| package["manifest_path"].as_str());
    let folders = manifests.filter_map(|path| path.strip_suffix("Cargo.toml"));
    folders.map(|folder| super::relative_to_root(format!("{folder}src").as_ref()) + "/").collect()
}

#[test]
fn the_top_level_modules_of_no_crate_import_each_other_in_a_circle() {
    let (files, folders) = (rust_files(), source_folders());
    assert!(folders.iter().any(|folder| folder == "crates/core/src/"), "{folders:?}");
    let core = imports("crates/core/src/", &files);
    assert!(core.iter().any(|import| import.from == "pipeline" && import.to == "engine"), "imports are not found");
    let complaints: Vec<String> = folders.iter().flat_map(|folder| import_cycles(&imports(folder, &files))).collect();
    assert_none(&complaints);
}

#[track_caller]
fn check(sources: &[(&str, &str)], complaints: &[&str]) {
    let file = |(path, text): &(&str, &str)| SourceFile { path: format!("c/src/{path}"), text: (*text).to_owned() };
    let files: Vec<SourceFile> = sources.iter().map(file).collect();
    assert_eq!(import_cycles(&imports("c/src/", &files)), complaints);
}

#[test]
fn imports_that_go_one_way_pass() {
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Thing;\n");
    check(&[root, ("a.rs", "use crate::{b::B, c};\n"), ("b.rs", "use crate::Thing;\n"), ("c.rs", "")], &[]);
    // A module may import itself, and a path in a comment or a string does not count.
    check(
        &[root, ("a.rs", "use crate::b;"), ("b.rs", "// crate::a\nconst A: &str = \"crate::a::X\";\nuse crate::b::c;")],
        &[],
    );
    check(&[root, ("a.rs", "use crate::b;"), ("b.rs", "mod tests {\n    use super::a;\n}\nuse super::super::a;")], &[]);
}

#[test]
fn a_planted_circle_is_named_with_each_import_on_it() {
    let root = ("lib.rs", "mod a;\npub mod b;\nmod c;\npub use a::{Thing, deep::Other as Renamed};\n");
    let message = "a, b import each other:\n  c/src/a.rs:1 imports b\n  c/src/b.rs:2 imports a";
    check(&[root, ("a.rs", "use crate::b::B;\nuse crate::c;"), ("b.rs", "\nfn f() -> crate::a::A {}\n")], &[message]);
    check(&[root, ("a.rs", "use crate::{c, b::{self, B}};"), ("b.rs", "\nuse crate::{Thing};")], &[message]);
    check(&[root, ("a.rs", "use crate::b;"), ("b.rs", "\nuse crate::Renamed;")], &[message]);
    check(&[root, ("a.rs", "use super::b;"), ("b.rs", "\nuse super::a::A;")], &[message]);
    let deeper = "a, b import each other:\n  c/src/a/x.rs:1 imports b\n  c/src/b.rs:1 imports a";
    check(&[root, ("a/x.rs", "use super::super::b;"), ("b.rs", "#[cfg(test)] mod tests { use crate::a; }")], &[deeper]);
}

#[test]
fn a_circle_through_a_third_module_is_found() {
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;");
    let sources = [
        root,
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c;"),
        ("c.rs", "use crate::a;"),
        ("d.rs", "use crate::a;"),
    ];
    let message =
        "a, b, c import each other:\n  c/src/a.rs:1 imports b\n  c/src/b.rs:1 imports c\n  c/src/c.rs:1 imports a";
    check(&sources, &[message]);
}
