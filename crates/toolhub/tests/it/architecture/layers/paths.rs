//! Finds paths in Rust source, well enough for sources that compile.
//!
//! In: a text. Out: the first name of every path from the root of the crate, the modules that a root declares, and its
//! re-exports. Does not expand macros that build paths; there are none.

use std::collections::{BTreeMap, BTreeSet};

use super::super::lexer::follows_identifier;

/// The modules that a root declares in their own files.
pub(super) fn declared_modules(root: &str) -> BTreeSet<&str> {
    let words = root.split("mod ").skip(1).filter_map(|rest| rest.split_once(';'));
    words.map(|(name, _)| name.trim()).filter(|name| is_identifier(name)).collect()
}

/// The re-exports of a root, and the top-level module each comes from.
pub(super) fn re_exports(root: &str, modules: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for rest in root.split("use ").skip(1) {
        for path in parse_use_tree(rest.trim_start().trim_start_matches("crate::")) {
            let name = path.alias.or_else(|| path.segments.last().cloned());
            if let (Some(first), Some(name)) = (path.segments.first(), name)
                && modules.contains(first.as_str())
            {
                found.insert(name, first.clone());
            }
        }
    }
    found
}

/// The first names of all paths from the root, with their lines. `depth` is how far below the root the file's module
/// is.
pub(super) fn paths_from_root(code: &str, depth: usize) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut line, mut inline) = (1, Vec::new());
    let mut braces = 0_usize;
    let mut at = 0;
    while at < code.len() {
        let rest = &code[at..];
        let c = rest.chars().next().unwrap_or_default();
        let mut step = c.len_utf8();
        match c {
            '\n' => line += 1,
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if inline.last() == Some(&braces) {
                    inline.pop();
                }
            }
            _ if is_identifier_start(c) && !follows_identifier(code.as_bytes(), at) => {
                let word: &str =
                    rest.split(|c| !is_identifier_start(c) && !c.is_ascii_digit()).next().unwrap_or_default();
                step = word.len();
                let supers = if word == "super" { count_supers(rest) } else { 0 };
                let after_colons = code[..at].ends_with("::");
                if word == "mod" && is_inline_module(&rest[step..]) {
                    inline.push(braces);
                } else if word == "crate" && rest[step..].starts_with("::") {
                    found.extend(first_segments(&rest[step + 2..], line));
                } else if supers > 0 && supers == depth + inline.len() && !after_colons {
                    step = "super::".len() * supers;
                    found.extend(first_segments(&rest[step..], line));
                } else if supers > 0 {
                    step = "super::".len() * supers;
                }
            }
            _ => {}
        }
        at += step;
    }
    found
}

/// How many `super::` follow each other here.
fn count_supers(rest: &str) -> usize {
    let mut many = 0;
    let mut rest = rest;
    while let Some(next) = rest.strip_prefix("super::") {
        (many, rest) = (many + 1, next);
    }
    many
}

/// Whether a `mod` is followed by an inline body.
fn is_inline_module(rest: &str) -> bool {
    let name = rest.trim_start();
    let end = name.find(|c: char| !is_identifier_start(c) && !c.is_ascii_digit()).unwrap_or(name.len());
    end > 0 && name[end..].trim_start().starts_with('{')
}

fn first_segments(rest: &str, line: usize) -> impl Iterator<Item = (usize, String)> {
    parse_use_tree(rest).into_iter().filter_map(move |path| path.segments.into_iter().next().map(|name| (line, name)))
}

struct Path {
    segments: Vec<String>,
    alias: Option<String>,
}

/// The paths of a `use` tree, or the single path here.
fn parse_use_tree(text: &str) -> Vec<Path> {
    parse_use_branch(text, Vec::new()).0
}

fn parse_use_branch(text: &str, before: Vec<String>) -> (Vec<Path>, &str) {
    let (mut segments, mut rest) = (before, text.trim_start());
    loop {
        if let Some(mut inside) = rest.strip_prefix('{') {
            let mut paths = Vec::new();
            loop {
                inside = inside.trim_start().trim_start_matches(',').trim_start();
                if let Some(after) = inside.strip_prefix('}') {
                    return (paths, after);
                }
                let (found, after) = parse_use_branch(inside, segments.clone());
                if after.len() == inside.len() {
                    return (paths, after);
                }
                paths.extend(found);
                inside = after;
            }
        }
        let end = rest.find(|c: char| !is_identifier_start(c) && !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            let after = rest.strip_prefix('*').unwrap_or(rest);
            return (vec![Path { segments, alias: None }], after);
        }
        let name = &rest[..end];
        rest = &rest[end..];
        if name != "self" {
            segments.push(name.to_owned());
        }
        if let Some(next) = rest.strip_prefix("::") {
            rest = next;
            continue;
        }
        let alias = rest.trim_start().strip_prefix("as ").map(|alias| {
            let alias = alias.trim_start();
            &alias[..alias.find(|c: char| !is_identifier_start(c) && !c.is_ascii_digit()).unwrap_or(alias.len())]
        });
        let after = match alias {
            Some(alias) => rest.split_once(alias).map_or(rest, |(_, after)| after),
            None => rest,
        };
        return (vec![Path { segments, alias: alias.map(str::to_owned) }], after);
    }
}

fn is_identifier_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| is_identifier_start(c) || c.is_ascii_digit())
}
