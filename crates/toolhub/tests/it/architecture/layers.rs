//! Top-level modules of a crate must not import each other in a cycle.
//!
//! In: the Rust files of a crate. Out: one complaint for each cycle, naming every import in it, and one for each path whose
//! module cannot be told. Every path from the crate's root counts, `crate::…` and `super::` chains that lead there; in `use`
//! or inline, in tests too. A path to an item that the root re-exports by name counts for the module it comes from.
//!
//! The rule fails closed: what would hide an import (a glob from the root, an item defined in the root, the root under
//! another name, `#[path]`, a file outside the module tree) is a complaint of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{SourceFile, assert_none, metadata, rust_files};

mod paths;

/// An import of one top-level module by another, and its location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
    location: String,
}

/// What a crate's sources say about its modules.
#[derive(Default)]
struct Layers {
    imports: Vec<Import>,
    /// Paths and files whose module cannot be told.
    unclear: Vec<String>,
}

/// Every import between top-level modules of the crate whose sources are in `folder`.
fn read_layers(folder: &str, files: &[SourceFile]) -> Layers {
    let in_crate: Vec<(&str, &str)> =
        files.iter().filter_map(|file| Some((file.path.strip_prefix(folder)?, file.text.as_str()))).collect();
    let is_root = |path: &str| path == "lib.rs" || path == "main.rs";
    let mut layers = Layers::default();
    // Benchmarks have no `src`.
    if in_crate.is_empty() {
        return layers;
    }
    let roots: Vec<_> = in_crate.iter().filter(|(path, _)| is_root(path)).collect();
    let [(root_path, root_text)] = roots[..] else {
        layers.unclear.push(format!("{folder} has {} roots (lib.rs, main.rs) instead of one", roots.len()));
        return layers;
    };
    let root = paths::tokens(root_path, root_text);
    let modules = paths::declared_modules(&root);
    let exported = paths::re_exports(&root, &modules);
    let hiding = paths::hiding_declarations(&root);
    layers.unclear.extend(hiding.into_iter().map(|what| format!("{folder}{root_path} {what}")));
    for (path, text) in &in_crate {
        let gives_path =
            |line: &str| line.starts_with("#[path") || (line.starts_with("#[cfg_attr") && line.contains(" path ="));
        let with_path = text.lines().position(|line| gives_path(line.trim_start()));
        if let Some(line) = with_path {
            layers.unclear.push(format!("{folder}{path}:{} gives a module another file with #[path]", line + 1));
        }
        let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        if is_root(path) {
            continue;
        }
        if !modules.contains(parts[0]) {
            layers.unclear.push(format!("{folder}{path} is in no module that {root_path} declares"));
        }
        for paths::RootPath { line, segments } in paths::root_paths(&paths::tokens(path, text), parts.len()) {
            let location = format!("{folder}{path}:{line}");
            let target = segments.first().map_or("", String::as_str);
            let to: Vec<&String> = match modules.get(target) {
                Some(module) => vec![module],
                None => exported.get(target).into_iter().flatten().collect(),
            };
            if to.is_empty() {
                let separator = if target.is_empty() { "" } else { "::" };
                layers.unclear.push(format!(
                    "{location} imports `crate{separator}{target}`, which is no module and no item that {root_path} re-exports by name"
                ));
            }
            for to in to.into_iter().filter(|to| *to != parts[0]) {
                let location = format!("{location} imports {to}");
                layers.imports.push(Import { from: parts[0].to_owned(), to: to.clone(), location });
            }
        }
    }
    layers
}

/// All complaints about a crate.
fn complaints(folder: &str, files: &[SourceFile]) -> Vec<String> {
    let Layers { imports, mut unclear } = read_layers(folder, files);
    unclear.extend(import_cycles(&imports));
    unclear
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
    let core = read_layers("crates/core/src/", &files);
    assert!(
        core.imports.iter().any(|import| import.from == "pipeline" && import.to == "engine"),
        "imports are not found"
    );
    let found: Vec<String> = folders.iter().flat_map(|folder| complaints(folder, &files)).collect();
    assert_none(&found);
}

#[track_caller]
fn check(sources: &[(&str, &str)], expected: &[&str]) {
    let file = |(path, text): &(&str, &str)| SourceFile { path: format!("c/src/{path}"), text: (*text).to_owned() };
    let files: Vec<SourceFile> = sources.iter().map(file).collect();
    assert_eq!(complaints("c/src/", &files), expected);
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

/// Each of these would hide that `a` and `b` import each other.
#[test]
fn an_import_that_hides_its_module_is_a_complaint() {
    let roots = "mod a;\nmod b;\n";
    let hidden = [
        // (added to the root, imported by b, what the complaint names)
        ("pub use a::*;", "use crate::Thing;", "`crate::Thing`"),
        ("use a::A; pub struct Here(A);", "use crate::Here;", "`crate::Here`"),
        ("pub mod api { pub use crate::a::A; }", "use crate::api::A;", "`crate::api`"),
        ("use a::A as Once; pub use Once as Twice;", "use crate::Twice;", "`crate::Twice`"),
        ("", "use crate::*;", "`crate::*`"),
        ("", "use super::*;", "`crate::*`"),
        ("", "use crate as c; use c::a;", "`crate`"),
        ("", "use crate::{self as c}; use c::a;", "`crate`"),
        ("", "use super::{self as c}; use c::a;", "`crate`"),
        ("", "extern crate self as me; use me::a;", "`crate`"),
        ("", "macro_rules! m { ($x:ident) => { $crate::$x::f() } }", "`crate`"),
        ("", "fn f() { crate::exported!() }", "`crate::exported`"),
    ];
    for (in_root, in_b, named) in hidden {
        let root = format!("{roots}{in_root}");
        let message =
            format!("c/src/b.rs:1 imports {named}, which is no module and no item that lib.rs re-exports by name");
        check(&[("lib.rs", &root), ("a.rs", "use crate::b;"), ("b.rs", in_b)], &[&message]);
    }
    let a = ("a.rs", "use crate::b;");
    check(
        &[("lib.rs", roots), a, ("b.rs", "#[path = \"../x.rs\"]\nmod x;")],
        &["c/src/b.rs:1 gives a module another file with #[path]"],
    );
    check(
        &[("lib.rs", roots), a, ("bin/tool.rs", "mod a;")],
        &["c/src/bin/tool.rs is in no module that lib.rs declares"],
    );
    check(
        &[("lib.rs", roots), a, ("b.rs", "#[cfg_attr(unix, path = \"../x.rs\")]\nmod x;")],
        &["c/src/b.rs:1 gives a module another file with #[path]"],
    );
    check(
        &[("lib.rs", "extern crate self as me;\nmod a;\nmod b;"), a, ("b.rs", "use me::a;")],
        &["c/src/lib.rs gives the crate another name with `extern crate self`"],
    );
    check(
        &[("lib.rs", "#[macro_use]\nmod a;\nmod b;"), a, ("b.rs", "m!();")],
        &["c/src/lib.rs lends macros without a path with `#[macro_use]`"],
    );
    let twice = "#[cfg(unix)]\npub use a::X;\n#[cfg(not(unix))]\npub use b::X;";
    check(
        &[("lib.rs", &format!("{roots}{twice}")), a, ("b.rs", "use crate::X;")],
        &["a, b import each other:\n  c/src/a.rs:1 imports b\n  c/src/b.rs:1 imports a"],
    );
    check(&[("lib.rs", roots), ("main.rs", "mod b;")], &["c/src/ has 2 roots (lib.rs, main.rs) instead of one"]);
}

#[test]
fn every_spelling_of_an_import_is_read() {
    let spellings = [
        "use super::{super::b};",
        "use self::super::super::b;",
        "use {crate::b};",
        "use crate::r#b::B;",
        "mod deep { use super::super::super::b; }",
        "mod deep { mod deeper { use super::{super::{super::super::b::B}}; } }",
        "fn f() { println!(\"{}\", crate::b::B) }",
        "macro_rules! m { () => { $crate::b::f() } }",
        "/* /* nested */ comment */ use crate::b;",
        "pub(in crate::b) struct X;",
        "type T = Vec<crate::b::B>;",
        "type T = crate::a::Of::<crate::b::B>;",
        "fn f(b: crate::b::B) {}",
        "struct S { b: crate::b::B }",
        "struct S<T: crate::b::B>(T);",
        "const S: S = S { b: crate::b::B };",
        "struct S { #[serde(with = \"crate::b\")] field: u8 }",
        "struct S { #[serde(default = \"super::super::b::default\")] field: u8 }",
    ];
    for spelling in spellings {
        let message = "a, b import each other:\n  c/src/a/x.rs:1 imports b\n  c/src/b.rs:1 imports a";
        check(
            &[("lib.rs", "mod a;\nmod b;"), ("a.rs", ""), ("a/x.rs", spelling), ("b.rs", "use crate::a;")],
            &[message],
        );
    }
}
