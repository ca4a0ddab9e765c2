//! A config as a tree of values, each with its origin.
//!
//! In: the text of a TOML file. Out: nodes, and the syntax errors. Trees are merged: tables key by key, everything else is replaced.
//! Knows no keys.

mod syntax;

use std::{collections::BTreeMap, fmt, ops::Range, path::PathBuf, sync::Arc};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub(crate) use toolhub::config::{KeyPath as Path, KeySegment};

use super::problem::Problem;

/// A file that was read.
#[derive(PartialEq, Eq)]
pub(crate) struct Source {
    /// Its name in messages.
    pub(crate) name: String,
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its content.
    pub(crate) text: String,
}

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In a file, at this byte range.
    File { source: Arc<Source>, span: Range<usize> },
    /// By an environment variable, which may be set in an env file.
    Env { name: String, file: Option<(Arc<Source>, Range<usize>)> },
    /// By a flag, as typed.
    Flag(String),
}

/// A value and its origin.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
    /// Where its key was written.
    pub(crate) key_origin: Origin,
    /// The variables that were expanded in it.
    pub(crate) variables: Vec<String>,
    /// Its value is unknown, because a variable is not set.
    pub(crate) unresolved: bool,
}

/// A TOML value.
#[derive(Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// A date or a time, as written.
    Datetime(String),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Node {
    pub(crate) fn new(value: Value, origin: &Origin) -> Self {
        Self { value, origin: origin.clone(), key_origin: origin.clone(), variables: Vec::new(), unresolved: false }
    }

    /// An empty config.
    pub(crate) fn empty() -> Self {
        Self::new(Value::Table(BTreeMap::new()), &Origin::Flag(String::new()))
    }

    /// The value at a path.
    pub(crate) fn get(&self, path: &Path) -> Option<&Self> {
        path.0.iter().try_fold(self, |node, segment| match (&node.value, segment) {
            (Value::Table(table), KeySegment::Key(key)) => table.get(key),
            (Value::List(list), KeySegment::Index(index)) => list.get(*index),
            _ => None,
        })
    }

    /// The variables that were expanded in it and in all values inside it.
    pub(crate) fn variables_below(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.variables.iter().map(String::as_str).collect();
        match &self.value {
            Value::List(list) => names.extend(list.iter().flat_map(Self::variables_below)),
            Value::Table(table) => names.extend(table.values().flat_map(Self::variables_below)),
            _ => {}
        }
        names
    }

    /// The value at a path, or the closest enclosing one.
    pub(crate) fn nearest(&self, path: &Path) -> &Self {
        let lengths = (0..=path.0.len()).rev();
        let found = lengths.into_iter().find_map(|length| self.get(&Path(path.0[..length].to_vec())));
        found.unwrap_or(self)
    }

    /// Merges another tree over this one.
    pub(crate) fn merge(&mut self, other: Self) {
        match (&mut self.value, other.value) {
            (Value::Table(under), Value::Table(other)) => {
                for (key, node) in other {
                    match under.get_mut(&key) {
                        Some(existing) => existing.merge(node),
                        None => drop(under.insert(key, node)),
                    }
                }
            }
            (_, value) => *self = Self { value, ..other },
        }
    }

    /// The value as JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Text(text) | Value::Datetime(text) => text.clone().into(),
            Value::Integer(number) => (*number).into(),
            Value::Float(number) => (*number).into(),
            Value::Bool(boolean) => (*boolean).into(),
            Value::List(list) => list.iter().map(Self::to_json).collect(),
            Value::Table(table) => {
                serde_json::Value::Object(table.iter().map(|(key, node)| (key.clone(), node.to_json())).collect())
            }
        }
    }
}

// A file may hold secrets, so `Debug` must not print its text.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) => list.fmt(f),
            Self::Table(table) => table.fmt(f),
            other => f.write_str(other.type_name()),
        }
    }
}

impl Value {
    /// The type, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::Datetime(_) => "a date or time",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Maximum nesting depth, because the functions on trees are recursive.
const MAX_DEPTH: usize = 64;

/// Parses a file. Returns what could be parsed even if there are problems.
pub(crate) fn parse(source: &Arc<Source>) -> (Node, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut problems: Vec<Problem> = errors
        .iter()
        .map(|error| {
            let span = error.span().unwrap_or(0..0);
            let help = syntax::syntax_help(&source.text, &span);
            let origin = Origin::File { source: source.clone(), span };
            Problem::new(origin, "", format!("invalid TOML: {}", error.message())).help(help)
        })
        .collect();
    let span = table.span();
    let origin = Origin::File { source: source.clone(), span };
    let value = TreeBuilder { source, problems: &mut problems }.table(table.into_inner(), 0);
    (Node::new(value, &origin), problems)
}

struct TreeBuilder<'a> {
    source: &'a Arc<Source>,
    problems: &'a mut Vec<Problem>,
}

impl TreeBuilder<'_> {
    fn origin(&self, span: Range<usize>) -> Origin {
        Origin::File { source: self.source.clone(), span }
    }

    fn table(&mut self, table: DeTable<'_>, depth: usize) -> Value {
        let entries = table.into_iter().map(|(key, value)| {
            let key_origin = self.origin(key.span());
            let mut node = self.node(value, depth + 1);
            node.key_origin = key_origin;
            (key.into_inner().into_owned(), node)
        });
        Value::Table(entries.collect())
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>, depth: usize) -> Node {
        let origin = self.origin(value.span());
        if depth > MAX_DEPTH {
            self.problems.push(
                Problem::new(origin.clone(), "", format!("nested deeper than {MAX_DEPTH} levels"))
                    .help("no key needs that; check for a superfluous bracket"),
            );
            return Node::new(Value::Bool(false), &origin);
        }
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => {
                    self.problems.push(
                        Problem::new(origin.clone(), "", "this number is too large".into()).help("use a smaller one"),
                    );
                    Value::Integer(0)
                }
            },
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(boolean) => Value::Bool(boolean),
            DeValue::Datetime(datetime) => Value::Datetime(datetime.to_string()),
            DeValue::Array(list) => Value::List(list.into_iter().map(|value| self.node(value, depth + 1)).collect()),
            DeValue::Table(table) => self.table(table, depth),
        };
        Node::new(value, &origin)
    }
}
