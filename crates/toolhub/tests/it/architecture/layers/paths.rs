//! Finds the paths of Rust source that lead to the root of its crate.
//!
//! In: the tokens of a module and its depth below the root. Out: every path from the root, `use` trees expanded, and what a
//! root declares. Does not decide which module a path means; `layers.rs` does.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path from the root of the crate: its segments after the root, empty for the root itself.
pub(super) struct RootPath {
    pub(super) line: usize,
    pub(super) segments: Vec<String>,
}

/// The tokens of a source file that compiles.
pub(super) fn tokens(path: &str, text: &str) -> Vec<TokenTree> {
    let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}"));
    stream.into_iter().collect()
}

/// The modules that a root declares in their own files.
pub(super) fn declared_modules(root: &[TokenTree]) -> BTreeSet<String> {
    let declared = root.windows(3).filter(|three| is_word(&three[0], "mod") && is_punct(&three[2], ';'));
    declared.filter_map(|three| word(&three[1])).collect()
}

/// The names that a root imports or re-exports one by one, and the top-level modules each comes from.
pub(super) fn re_exports(root: &[TokenTree], modules: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let uses = root.iter().enumerate().filter(|(_, token)| is_word(token, "use"));
    let leaves = uses.flat_map(|(at, _)| parse_tree(&root[at + 1..], Vec::new()).0);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Leaf { segments, alias } in leaves {
        let segments: Vec<String> = segments.into_iter().skip_while(|name| name == "crate" || name == "self").collect();
        if let (Some(first), Some(last)) = (segments.first(), segments.last())
            && modules.contains(first)
            && last != "*"
        {
            found.entry(alias.unwrap_or_else(|| last.clone())).or_default().insert(first.clone());
        }
    }
    found
}

/// All paths from the root in a module that is `depth` levels below it.
pub(super) fn root_paths(tokens: &[TokenTree], depth: usize) -> Vec<RootPath> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let follows = |offset: usize| tokens.get(at + offset);
        let line = token.span().start().line;
        if let TokenTree::Group(group) = token {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            if at >= 1 && is_punct(&tokens[at - 1], '#') {
                found.extend(attribute_paths(&inside, depth, line));
            }
            let is_module = at >= 2 && is_word(&tokens[at - 2], "mod") && group.delimiter() == Delimiter::Brace;
            found.extend(root_paths(&inside, depth + usize::from(is_module)));
        } else if is_word(token, "extern") && follows(2).is_some_and(|third| is_word(third, "self")) {
            found.push(RootPath { line, segments: Vec::new() });
        } else if starts_path(token, follows(1)) {
            let (leaves, length) = parse_tree(&tokens[at..], Vec::new());
            let from_root = leaves.into_iter().filter_map(|leaf| below_root(leaf.segments, depth));
            found.extend(from_root.map(|segments| RootPath { line, segments }));
            at += length;
            continue;
        }
        at += 1;
    }
    found
}

/// The paths from the root in the string literals of an attribute, such as `#[serde(with = "crate::millis")]`.
fn attribute_paths(attribute: &[TokenTree], depth: usize, line: usize) -> Vec<RootPath> {
    let mut found = Vec::new();
    for token in attribute.iter().filter(|_| !attribute.first().is_some_and(|name| is_word(name, "doc"))) {
        match token {
            TokenTree::Group(group) => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                found.extend(attribute_paths(&inside, depth, line));
            }
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let path = text.trim_matches('"').parse::<TokenStream>();
                let path: Vec<TokenTree> = path.into_iter().flatten().collect();
                found.extend(root_paths(&path, depth).into_iter().map(|path| RootPath { line, ..path }));
            }
            _ => {}
        }
    }
    found
}

/// What a root says that would hide imports from this rule.
pub(super) fn hiding_declarations(root: &[TokenTree]) -> Vec<&'static str> {
    let renames = |three: &[TokenTree]| is_word(&three[0], "extern") && is_word(&three[2], "self");
    let lends = |two: &[TokenTree]| match &two[1] {
        TokenTree::Group(group) if is_punct(&two[0], '#') => {
            group.stream().into_iter().next().is_some_and(|first| is_word(&first, "macro_use"))
        }
        _ => false,
    };
    let renamed = root.windows(3).any(renames).then_some("gives the crate another name with `extern crate self`");
    let lent = root.windows(2).any(lends).then_some("lends macros without a path with `#[macro_use]`");
    renamed.into_iter().chain(lent).collect()
}

/// Whether a path that may lead to the root starts here. `self as` is a cast of a value, unlike the others.
fn starts_path(token: &TokenTree, next: Option<&TokenTree>) -> bool {
    let followed_by_path = next.is_some_and(|next| is_punct(next, ':'));
    let renamed = next.is_some_and(|next| is_word(next, "as"));
    let root = is_word(token, "crate") || is_word(token, "super");
    (root && (followed_by_path || renamed)) || (is_word(token, "self") && followed_by_path)
}

/// The segments of a path after the root, if it leads there from `depth` levels below.
fn below_root(mut segments: Vec<String>, depth: usize) -> Option<Vec<String>> {
    if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    let above: Vec<&String> = segments.iter().take_while(|name| *name == "super" || *name == "self").collect();
    let supers = above.iter().filter(|name| **name == "super").count();
    let skipped = match segments.first() {
        Some(first) if first == "crate" => 1,
        _ if supers == depth => above.len(),
        _ => return None,
    };
    Some(segments.split_off(skipped))
}

struct Leaf {
    segments: Vec<String>,
    alias: Option<String>,
}

/// The paths of the `use` tree or the single path at the start of the tokens, and how many tokens it takes.
fn parse_tree(tokens: &[TokenTree], before: Vec<String>) -> (Vec<Leaf>, usize) {
    let (mut segments, mut at) = (before, 0);
    loop {
        match tokens.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let branches = inside.split(|token| is_punct(token, ',')).filter(|branch| !branch.is_empty());
                return (branches.flat_map(|branch| parse_tree(branch, segments.clone()).0).collect(), at + 1);
            }
            Some(token) if is_punct(token, '*') => {
                segments.push("*".to_owned());
                return (vec![Leaf { segments, alias: None }], at + 1);
            }
            Some(token) if word(token).is_some() => {
                segments.extend(word(token));
                at += 1;
            }
            _ => return (vec![Leaf { segments, alias: None }], at),
        }
        let continues = tokens.get(at..at + 2).is_some_and(|two| two.iter().all(|token| is_punct(token, ':')));
        if !continues {
            let alias = match tokens.get(at..at + 2) {
                Some([renamed, alias]) if is_word(renamed, "as") => word(alias),
                _ => None,
            };
            let length = if alias.is_some() { at + 2 } else { at };
            return (vec![Leaf { segments, alias }], length);
        }
        at += 2;
    }
}

fn word(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(name) => Some(name.to_string().trim_start_matches("r#").to_owned()),
        _ => None,
    }
}

fn is_word(token: &TokenTree, expected: &str) -> bool {
    matches!(token, TokenTree::Ident(name) if name == expected)
}

fn is_punct(token: &TokenTree, expected: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == expected)
}
