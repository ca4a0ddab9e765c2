//! Finds paths in Rust source, well enough for sources that compile.
//!
//! In: a text. Out: the first name of every path that begins at the root of the crate, the modules a root declares, and what it
//! re-exports. Knows no macro that builds paths; we have none.

use std::collections::{BTreeMap, BTreeSet};

/// The source with comments and literals blanked out, line by line as it was.
pub(super) fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let blank = |out: &mut String, part: &str| out.extend(part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    while at < bytes.len() {
        let rest = &text[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with('"') {
            string_literal_length(rest)
        } else if !follows_identifier(bytes, at)
            && let Some(length) = raw_string_length(rest)
        {
            length
        } else if let Some(length) = char_literal_length(rest) {
            length
        } else {
            let c = rest.chars().next().unwrap_or_default();
            out.push(c);
            at += c.len_utf8();
            continue;
        };
        blank(&mut out, &rest[..length]);
        at += length;
    }
    out
}

fn follows_identifier(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn string_literal_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and so on.
fn raw_string_length(rest: &str) -> Option<usize> {
    let hashes = rest.strip_prefix('r')?;
    let marks = hashes.len() - hashes.trim_start_matches('#').len();
    let body = hashes[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    Some(1 + marks + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()))
}

/// `'a'`, `'\n'`; a lifetime is none.
fn char_literal_length(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        return inside[1..].find('\'').map(|at| at + 3).filter(|length| *length < 14);
    }
    inside[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

/// The modules a root declares in files of their own.
pub(super) fn declared_modules(root: &str) -> BTreeSet<&str> {
    let words = root.split("mod ").skip(1).filter_map(|rest| rest.split_once(';'));
    words.map(|(name, _)| name.trim()).filter(|name| is_identifier(name)).collect()
}

/// What a root re-exports, and the top-level module each comes from.
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

/// The first names of all paths that begin at the root, with their lines. `depth` is how far below the root the file's module is.
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

/// How often `super::` stands here, one after the other.
fn count_supers(rest: &str) -> usize {
    let mut many = 0;
    let mut rest = rest;
    while let Some(next) = rest.strip_prefix("super::") {
        (many, rest) = (many + 1, next);
    }
    many
}

/// Whether what follows `mod` is a module with its body.
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

/// The paths of a `use` tree, or the one path that stands here.
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
