//! Lays single values over a config: variables `TOOLHUB__SERVER__PORT` and flags `--set server.port=80`.
//!
//! In: a path as text, a value as text, and the shape of the config, which says what the text means. Out: the tree with the
//! value in its place, or what is wrong with either. A text stands for itself where a text is wanted; a list of texts may be
//! written with commas; everything else is written as in TOML.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    check,
    closest::closest,
    environment::Environment,
    planned_keys,
    problem::Problem,
    shape::{Shape, TableShape},
    tree::{self, KeySegment, Node, Origin, Path, Source, Value},
};

/// How the names of variables begin that set a key.
const PREFIX: &str = "TOOLHUB__";

/// Lays every variable that sets a key over the tree.
pub(crate) fn apply_environment(tree: &mut Node, shape: &Shape, environment: &Environment) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut names: Vec<&str> = environment.names().filter(|name| name.starts_with(PREFIX)).collect();
    // Places of lists by number: the tenth comes after the second.
    names.sort_by_key(|name| name.split("__").map(|part| (part.parse::<u64>().ok(), part)).collect::<Vec<_>>());
    for name in names {
        let origin = environment.origin(name);
        let parts: Vec<&str> = name[PREFIX.len()..].split("__").collect();
        let value = environment.get(name).unwrap_or_default();
        let walk = KeyResolver { tree, root: shape, origin: &origin };
        match walk.resolve_variable(&parts) {
            Ok((path, shape_there)) => set_value(tree, shape, &path, shape_there, value, &origin, &mut problems),
            Err(problem) => problems.push(problem),
        }
    }
    problems
}

/// Lays one `key=value` of a flag over the tree.
pub(crate) fn apply_flag(tree: &mut Node, shape: &Shape, said: &str, origin: &Origin) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some((key, value)) = said.split_once('=') else {
        let problem = Problem::new(origin.clone(), "", format!("`{said}` sets nothing"));
        return vec![problem.help("write --set key=value, such as --set server.port=8080")];
    };
    let walk = KeyResolver { tree, root: shape, origin };
    match parse_key_path(key.trim()).map(|steps| walk.resolve_keys(&steps)) {
        Some(Ok((path, shape_there))) => {
            set_value(tree, shape, &path, shape_there, value.trim(), origin, &mut problems);
        }
        Some(Err(problem)) => problems.push(problem),
        None => {
            let problem = Problem::new(origin.clone(), "", format!("`{}` is no key", key.trim()));
            problems.push(problem.help("write a key with dots, such as server.port or tools.notes.timeout"));
        }
    }
    problems
}

/// The parts of a key with dots, as TOML reads it.
fn parse_key_path(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '=', '#']) {
        return None;
    }
    let text = format!("{key} = 0");
    let mut table = toml::de::DeTable::parse(&text).ok()?.into_inner();
    let mut steps = Vec::new();
    loop {
        let (key, value) = table.into_iter().next()?;
        steps.push(key.into_inner().into_owned());
        match value.into_inner() {
            toml::de::DeValue::Table(inner) => table = inner,
            _ => return Some(steps),
        }
    }
}

/// Reads the value and puts it in its place.
fn set_value(
    tree: &mut Node,
    whole: &Shape,
    path: &Path,
    shape: &Shape,
    text: &str,
    origin: &Origin,
    problems: &mut Vec<Problem>,
) {
    let node = parse_value(text, shape, origin);
    let wrong = check::validate_partial(&node, path, shape, whole);
    if !wrong.is_empty() {
        return problems.extend(wrong);
    }
    if let Err(problem) = insert(tree, &path.0, path, node) {
        problems.push(problem);
    }
}

fn insert(tree: &mut Node, steps: &[KeySegment], path: &Path, node: Node) -> Result<(), Problem> {
    let Some((step, rest)) = steps.split_first() else {
        tree.merge(node);
        return Ok(());
    };
    let origin = node.origin.clone();
    let empty = || Node::new(Value::Table(BTreeMap::new()), &origin);
    match step {
        KeySegment::Key(key) => {
            if !matches!(tree.value, Value::Table(_)) {
                tree.value = Value::Table(BTreeMap::new());
            }
            let Value::Table(table) = &mut tree.value else { return Ok(()) };
            insert(table.entry(key.clone()).or_insert_with(empty), rest, path, node)
        }
        KeySegment::Index(place) => {
            if !matches!(tree.value, Value::List(_)) {
                *tree = Node::new(Value::List(Vec::new()), &origin);
            }
            let Value::List(list) = &mut tree.value else { return Ok(()) };
            if *place > list.len() {
                let problem = Problem::at(&origin, path, format!("there is no item {place} in this list"));
                return Err(problem.help(format!(
                    "the list has {} items, counted from 0; {} would be the next",
                    list.len(),
                    list.len()
                )));
            }
            if *place == list.len() {
                list.push(empty());
            }
            insert(&mut list[*place], rest, path, node)
        }
    }
}

/// What a text means where this shape is wanted.
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
    // A line end could begin another key.
    let text = format!("value = {}", text.replace(['\n', '\r'], " "));
    let source = Arc::new(Source { name: String::new(), path: "".into(), text });
    let (node, problems) = tree::parse(&source);
    let Value::Table(table) = node.value else { return None };
    let found = table.into_iter().next().filter(|_| problems.is_empty())?.1;
    Some(with_origin(found, origin))
}

/// The same value, said elsewhere.
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

/// Finds the way to a key through the shape.
struct KeyResolver<'t, 'a> {
    tree: &'t Node,
    root: &'a Shape,
    origin: &'t Origin,
}

impl<'a> KeyResolver<'_, 'a> {
    /// Names of variables have no small letters, so each part is compared with what is known; names of tools may hold `__`.
    fn resolve_variable(&self, parts: &[&str]) -> Result<(Path, &'a Shape), Problem> {
        let (mut path, mut shape, mut at) = (Path::default(), self.root, 0);
        while at < parts.len() {
            let (step, used) = match shape.table() {
                Some(table) => self.match_key(table, &path, &parts[at..]),
                None => (parts[at].to_lowercase(), 1),
            };
            (path, shape) = self.resolve_step(&path, shape, &step)?;
            at += used;
        }
        Ok((path, shape))
    }

    /// The next key that the parts begin with, and of how many parts it is made.
    fn match_key(&self, table: &TableShape, path: &Path, parts: &[&str]) -> (String, usize) {
        let there = self.tree.get(path).and_then(|node| match &node.value {
            Value::Table(table) => Some(table.keys()),
            _ => None,
        });
        let names: Vec<&String> = there.into_iter().flatten().chain(table.keys.keys()).collect();
        for used in (1..=parts.len()).rev() {
            let wanted = parts[..used].join("__");
            let same = |name: &str| name.replace('-', "_").eq_ignore_ascii_case(&wanted);
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
        if let (Some(items), Ok(place)) = (shape.items(), key.parse()) {
            return Ok((path.index(place), items));
        }
        if matches!(shape, Shape::Any) {
            return Ok((next, shape));
        }
        let Some(table) = shape.table() else {
            let problem = Problem::at(self.origin, &next, format!("there is nothing below `{path}`"));
            return Err(problem.help(format!("`{path}` is {}", shape.describe())));
        };
        match (table.keys.get(key), &table.additional) {
            (Some(key), _) => Ok((next, &key.shape)),
            (None, Some(others)) => Ok((next, others)),
            (None, None) => {
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
