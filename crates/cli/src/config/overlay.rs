//! Sets single values of a config: variables `TOOLHUB__SERVER__PORT` and flags `--set server.port=80`.
//!
//! In: a key path and a value, both as text, and the shape of the config, which tells how to parse the value. Out: the tree with
//! the value set, or a problem. A string is taken literally; a list of strings may be written with commas; everything else is
//! written as in TOML.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    check,
    environment::{Environment, KEY_PREFIX, variable_for_key},
    planned_keys,
    problem::Problem,
    renamed_keys,
    shape::{Shape, TableShape},
    suggest::closest,
    tree::{self, KeySegment, Node, Origin, Path, Source, Value},
};

/// Applies every variable that sets a key.
pub(crate) fn apply_environment(tree: &mut Node, shape: &Shape, environment: &Environment) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut names: Vec<&str> = environment.names().filter(|name| name.starts_with(KEY_PREFIX)).collect();
    // Sort list indexes numerically: item 10 comes after item 2.
    names.sort_by_key(|name| name.split("__").map(|part| (part.parse::<u64>().ok(), part)).collect::<Vec<_>>());
    for name in names {
        let origin = environment.origin(name);
        let parts: Vec<&str> = name[KEY_PREFIX.len()..].split("__").collect();
        let value = environment.get(name).unwrap_or_default();
        let resolver = KeyResolver { tree, root: shape, origin: &origin };
        match resolver.resolve_variable(&parts) {
            Ok((path, value_shape)) => set_value(tree, shape, &path, value_shape, value, &origin, &mut problems),
            Err(problem) => problems.push(problem),
        }
    }
    problems
}

/// Applies one `key=value` flag.
pub(crate) fn apply_flag(tree: &mut Node, shape: &Shape, assignment: &str, origin: &Origin) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some((key, value)) = assignment.split_once('=') else {
        let problem = Problem::new(origin.clone(), "", format!("`{assignment}` has no `=`"));
        return vec![problem.help("write --set key=value, e.g. --set server.port=8080")];
    };
    let resolver = KeyResolver { tree, root: shape, origin };
    match parse_key_path(key.trim()).map(|segments| resolver.resolve_keys(&segments)) {
        Some(Ok((path, value_shape))) => {
            set_value(tree, shape, &path, value_shape, value.trim(), origin, &mut problems);
        }
        Some(Err(problem)) => problems.push(problem),
        None => {
            let problem = Problem::new(origin.clone(), "", format!("`{}` is not a key", key.trim()));
            problems.push(problem.help("write a dotted key, e.g. server.port or tools.notes.timeout"));
        }
    }
    problems
}

/// The segments of a dotted key, as TOML parses it.
fn parse_key_path(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '=', '#']) {
        return None;
    }
    let text = format!("{key} = 0");
    let mut table = toml::de::DeTable::parse(&text).ok()?.into_inner();
    let mut segments = Vec::new();
    loop {
        let (key, value) = table.into_iter().next()?;
        segments.push(key.into_inner().into_owned());
        match value.into_inner() {
            toml::de::DeValue::Table(inner) => table = inner,
            _ => return Some(segments),
        }
    }
}

/// Parses the value and sets it.
fn set_value(
    tree: &mut Node,
    root: &Shape,
    path: &Path,
    shape: &Shape,
    text: &str,
    origin: &Origin,
    problems: &mut Vec<Problem>,
) {
    let node = parse_value(text, shape, origin);
    let value_problems = check::validate_partial(&node, path, shape, root);
    if !value_problems.is_empty() {
        return problems.extend(value_problems);
    }
    if let Err(problem) = insert(tree, &path.0, path, node) {
        problems.push(problem);
    }
}

fn insert(tree: &mut Node, segments: &[KeySegment], path: &Path, node: Node) -> Result<(), Problem> {
    let Some((segment, rest)) = segments.split_first() else {
        tree.merge(node);
        return Ok(());
    };
    let origin = node.origin.clone();
    let empty = || Node::new(Value::Table(BTreeMap::new()), &origin);
    match segment {
        KeySegment::Key(key) => {
            if !matches!(tree.value, Value::Table(_)) {
                tree.value = Value::Table(BTreeMap::new());
            }
            let Value::Table(table) = &mut tree.value else { return Ok(()) };
            insert(table.entry(key.clone()).or_insert_with(empty), rest, path, node)
        }
        KeySegment::Index(index) => {
            if !matches!(tree.value, Value::List(_)) {
                *tree = Node::new(Value::List(Vec::new()), &origin);
            }
            let Value::List(list) = &mut tree.value else { return Ok(()) };
            if *index > list.len() {
                let problem = Problem::at(&origin, path, format!("this list has no item {index}"));
                return Err(problem.help(format!(
                    "the list has {} items, counted from 0; the next index is {}",
                    list.len(),
                    list.len()
                )));
            }
            if *index == list.len() {
                list.push(empty());
            }
            insert(&mut list[*index], rest, path, node)
        }
    }
}

/// Parses a text by the shape of its key.
fn parse_value(text: &str, shape: &Shape, origin: &Origin) -> Node {
    let plain = || Node::new(Value::Text(text.into()), origin);
    match shape {
        Shape::Text(_) => plain(),
        Shape::List { items, .. } if !text.trim_start().starts_with('[') && matches!(**items, Shape::Text(_)) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            let list = items.map(|item| Node::new(Value::Text(item.into()), origin)).collect();
            Node::new(Value::List(list), origin)
        }
        Shape::AnyOf(all) if !text.trim_start().starts_with(['[', '{']) => {
            let texts = all.iter().find(|shape| matches!(shape, Shape::Text(_) | Shape::List { .. }));
            texts.map_or_else(
                || parse_toml_value(text, origin).unwrap_or_else(plain),
                |shape| parse_value(text, shape, origin),
            )
        }
        _ => parse_toml_value(text, origin).unwrap_or_else(plain),
    }
}

fn parse_toml_value(text: &str, origin: &Origin) -> Option<Node> {
    // A line end could start another key.
    let text = format!("value = {}", text.replace(['\n', '\r'], " "));
    let source = Arc::new(Source { name: String::new(), path: "".into(), text });
    let (node, problems) = tree::parse(&source);
    let Value::Table(table) = node.value else { return None };
    let found = table.into_iter().next().filter(|_| problems.is_empty())?.1;
    Some(with_origin(found, origin))
}

/// The same value with another origin.
fn with_origin(node: Node, origin: &Origin) -> Node {
    let value = match node.value {
        Value::List(list) => Value::List(list.into_iter().map(|node| with_origin(node, origin)).collect()),
        Value::Table(table) => {
            Value::Table(table.into_iter().map(|(key, node)| (key, with_origin(node, origin))).collect())
        }
        other => other,
    };
    Node::new(value, origin)
}

/// Resolves a key path against the shape.
struct KeyResolver<'t, 'a> {
    tree: &'t Node,
    root: &'a Shape,
    origin: &'t Origin,
}

impl<'a> KeyResolver<'_, 'a> {
    /// Variable names are upper case, so each part is compared with the known keys; names of tools may contain `__`.
    fn resolve_variable(&self, parts: &[&str]) -> Result<(Path, &'a Shape), Problem> {
        let (mut path, mut shape, mut at) = (Path::default(), self.root, 0);
        while at < parts.len() {
            let (key, used) = match shape.table() {
                Some(table) => self.match_key(table, &path, &parts[at..]),
                None => (parts[at].to_lowercase(), 1),
            };
            (path, shape) = self.resolve_step(&path, shape, &key)?;
            at += used;
        }
        Ok((path, shape))
    }

    /// The longest key that the parts start with, and how many parts it takes.
    fn match_key(&self, table: &TableShape, path: &Path, parts: &[&str]) -> (String, usize) {
        let existing = self.tree.get(path).and_then(|node| match &node.value {
            Value::Table(table) => Some(table.keys()),
            _ => None,
        });
        let names: Vec<&String> = existing.into_iter().flatten().chain(table.keys.keys()).collect();
        for used in (1..=parts.len()).rev() {
            let candidate = parts[..used].join("__");
            let same = |name: &str| name.replace('-', "_").eq_ignore_ascii_case(&candidate);
            if let Some(name) = names.iter().find(|name| same(name)) {
                return ((*name).clone(), used);
            }
        }
        (parts[0].to_lowercase(), 1)
    }

    fn resolve_keys(&self, keys: &[String]) -> Result<(Path, &'a Shape), Problem> {
        keys.iter().try_fold((Path::default(), self.root), |(path, shape), key| self.resolve_step(&path, shape, key))
    }

    fn resolve_step(&self, path: &Path, shape: &'a Shape, key: &str) -> Result<(Path, &'a Shape), Problem> {
        let next = path.key(key);
        if let (Some(items), Ok(index)) = (shape.items(), key.parse()) {
            return Ok((path.index(index), items));
        }
        if matches!(shape, Shape::Any) {
            return Ok((next, shape));
        }
        let Some(table) = shape.table() else {
            let problem = Problem::at(self.origin, &next, format!("`{path}` has no keys"));
            return Err(problem.help(format!("`{path}` is {}", shape.describe())));
        };
        match (table.keys.get(key), &table.additional) {
            (Some(key), _) => Ok((next, &key.shape)),
            (None, Some(shape)) => Ok((next, shape)),
            (None, None) => {
                if let Some(new) = renamed_keys::successor(&next) {
                    let problem = Problem::at(self.origin, &next, format!("`{next}` was renamed to `{new}`"));
                    return Err(problem.help(match self.origin {
                        Origin::Env { .. } => format!("set {} instead", variable_for_key(&new)),
                        Origin::File { .. } | Origin::Flag(_) => format!("write --set {new}=… instead"),
                    }));
                }
                if let Some(reason) = renamed_keys::removal_reason(&next) {
                    let problem = Problem::at(self.origin, &next, format!("`{next}` has no effect: {reason}"));
                    return Err(problem.help("delete it"));
                }
                let problem = Problem::at(self.origin, &next, format!("there is no key `{next}`"));
                let known = || format!("known: {}", table.keys.keys().cloned().collect::<Vec<_>>().join(", "));
                let close = closest(key, table.keys.keys().map(String::as_str));
                let help = planned_keys::key_help(&next)
                    .or_else(|| close.map(|key| format!("did you mean `{}`?", path.key(key))));
                Err(problem.help(help.unwrap_or_else(known)))
            }
        }
    }
}
