//! Holds a tree to its shape.
//!
//! In: what was said, and what may be said. Out: everything that does not fit, each with its place and what to write
//! instead. What passes here can be read into the structs of `raw.rs`; what the values mean together is left to
//! `resolve.rs`.

mod words;

use toolhub::config::unit::short;

use super::{
    closest::closest,
    later,
    problem::{Problem, sounds_secret},
    shape::{Key, Shape, Table, Text, one_of},
    tree::{Node, Path, Value},
};

/// Everything in a whole config that does not fit.
pub(crate) fn whole(tree: &Node, shape: &Shape) -> Vec<Problem> {
    let mut checker = Checker { whole: shape, complete: true, problems: Vec::new() };
    checker.node(tree, shape, &Path::default());
    checker.problems
}

/// Everything in a part of a config that does not fit. What is missing may be said elsewhere.
pub(crate) fn part(node: &Node, path: &Path, shape: &Shape, whole: &Shape) -> Vec<Problem> {
    let mut checker = Checker { whole, complete: false, problems: Vec::new() };
    checker.node(node, shape, path);
    checker.problems
}

struct Checker<'a> {
    whole: &'a Shape,
    complete: bool,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn node(&mut self, node: &Node, shape: &Shape, path: &Path) {
        if node.unknown {
            return;
        }
        match (&node.value, shape) {
            (_, Shape::Any) => self.any(node, path),
            (Value::Bool(_), Shape::Bool) => {}
            (Value::Integer(number), Shape::Integer { min, max }) => {
                if number < min || number > max {
                    self.range(node, path, &number.to_string(), *min as f64, *max as f64);
                }
            }
            (Value::Integer(number), Shape::Number { min, max }) => self.number(node, path, *number as f64, *min, *max),
            (Value::Float(number), Shape::Number { min, max }) => self.number(node, path, *number, *min, *max),
            (Value::Text(text), Shape::Text(wanted)) => self.text(node, path, text, wanted),
            (Value::Moment(text), Shape::Text(Text::Moment)) => self.text(node, path, text, &Text::Moment),
            (Value::List(list), Shape::List { items, at_least }) => {
                for (at, item) in list.iter().enumerate() {
                    self.node(item, items, &path.place(at));
                }
                if list.len() < *at_least {
                    let help = "name at least one, or leave the key out";
                    self.say(node, path, format!("`{path}` is an empty list"), help);
                }
            }
            (Value::Table(keys), Shape::Table(table)) => {
                self.keys(node, keys, table, path);
            }
            (value, Shape::Either(all)) => match all.iter().find(|shape| words::is_sort(value, shape)) {
                Some(shape) => self.node(node, shape, path),
                None => self.sort(node, shape, path),
            },
            _ => self.sort(node, shape, path),
        }
    }

    /// Free values go through JSON, which has no such number.
    fn any(&mut self, node: &Node, path: &Path) {
        match &node.value {
            Value::Float(number) if !number.is_finite() => {
                self.say(node, path, format!("`{path}` is no finite number"), "leave it out");
            }
            Value::List(list) => list.iter().enumerate().for_each(|(at, item)| self.any(item, &path.place(at))),
            Value::Table(table) => table.iter().for_each(|(key, item)| self.any(item, &path.key(key))),
            _ => {}
        }
    }

    fn number(&mut self, node: &Node, path: &Path, number: f64, min: f64, max: f64) {
        if !(number >= min && number <= max) {
            self.range(node, path, &number.to_string(), min, max);
        }
    }

    fn range(&mut self, node: &Node, path: &Path, number: &str, min: f64, max: f64) {
        let help = match (min > -1e18, max < 1e18) {
            (true, true) if max >= f64::from(u32::MAX) => format!("use a number of at least {min}"),
            (true, true) => format!("use a number from {min} to {max}"),
            (true, false) => format!("use a number of at least {min}"),
            _ => format!("use a number of at most {max}"),
        };
        let word = if number.starts_with('-') || number.parse().is_ok_and(|number: f64| number < min) {
            "small"
        } else {
            "large"
        };
        self.say(node, path, format!("{number} is too {word} for `{path}`"), help);
    }

    fn text(&mut self, node: &Node, path: &Path, text: &str, wanted: &Text) {
        // A variable may hold anything, also what nobody should see.
        let shown = match node.variables.first() {
            Some(name) => format!("the value of ${{{name}}}"),
            None if is_secret(node, path) => "this value".into(),
            None => format!("\"{}\"", short(text)),
        };
        match wanted {
            Text::Plain { min, max } => {
                let length = text.chars().count();
                if length < *min {
                    self.say(node, path, format!("`{path}` is empty"), "write something, or leave the key out");
                } else if length > *max {
                    let help = format!("use at most {max} characters");
                    self.say(node, path, format!("`{path}` is longer than {max} characters"), help);
                }
            }
            Text::Unit(unit) => {
                if let Err(wrong) = unit.check(text) {
                    let (message, help) = if shown.starts_with('"') {
                        (wrong.message, wrong.help)
                    } else {
                        (format!("{shown} is not {}", unit.words()), format!("it must be {}", unit.words()))
                    };
                    self.say(node, path, format!("{message}, which `{path}` must be"), help);
                }
            }
            Text::Moment => {
                if super::resolve::moment(text).is_none() {
                    let help =
                        "write a date such as \"2027-01-31\", or a date and time such as \"2027-01-31T12:00:00Z\"";
                    self.say(node, path, format!("{shown} is no date, which `{path}` must be"), help);
                }
            }
            Text::Choice(words) if !words.iter().any(|word| word == text) => {
                if let Some(help) = later::value(path, text) {
                    return self.say(node, path, format!("{shown} cannot be used for `{path}`"), help);
                }
                let help = match closest(text, words.iter().map(String::as_str)) {
                    Some(word) => format!("did you mean {word:?}? It is one of {}", one_of(words)),
                    None => format!("use {}", one_of(words)),
                };
                self.say(node, path, format!("{shown} is nothing that `{path}` can be"), help);
            }
            Text::Choice(_) => {}
        }
    }

    /// It is not even the right sort of value.
    fn sort(&mut self, node: &Node, shape: &Shape, path: &Path) {
        let message = format!("`{path}` must be {}, not {}", shape.words(), node.value.sort());
        self.say(node, path, message, words::instead(node, shape, path));
    }

    fn keys(&mut self, node: &Node, keys: &std::collections::BTreeMap<String, Node>, table: &Table, path: &Path) {
        for (name, inner) in keys {
            let inner_path = path.key(name);
            match (table.keys.get(name), &table.others) {
                (Some(key), _) => self.node(inner, &key.shape, &inner_path),
                (None, Some(others)) => self.node(inner, others, &inner_path),
                (None, None) => self.unknown(inner, name, table, path),
            }
        }
        let complete = self.complete && !later::is_in(path, keys);
        for (name, key) in table.keys.iter().filter(|(name, key)| complete && key.required && !keys.contains_key(*name))
        {
            self.missing(node, name, key, path);
        }
        let known = || table.keys.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" and ");
        if keys.len() < table.at_least || keys.len() > table.at_most {
            self.say(node, path, format!("`{path}` must have one of {}", known()), "name exactly one of them");
        }
    }

    fn missing(&mut self, node: &Node, name: &str, key: &Key, path: &Path) {
        let help = match &key.shape {
            Shape::Text(Text::Choice(words)) => {
                let likely = closest(path.last_key(), words.iter().map(String::as_str)).unwrap_or(&words[0]);
                format!("add {name} = {likely:?}; it is one of {}", one_of(words))
            }
            Shape::Text(Text::Plain { .. }) => format!("add {name} = \"…\". {}", key.about),
            shape => format!("add `{name}`: {}. {}", shape.words(), key.about),
        };
        let problem =
            Problem::at(&node.key, &path.key(name), format!("`{name}` is missing in {}", words::section(path)));
        self.problems.push(problem.help(help));
    }

    fn unknown(&mut self, node: &Node, name: &str, table: &Table, path: &Path) {
        let whole = path.key(name);
        if let Some(help) = later::key(&whole) {
            let problem = Problem::at(&node.key, &whole, format!("`{whole}` is not built yet"));
            return self.problems.push(problem.help(help));
        }
        let problem =
            Problem::at(&node.key, &whole, format!("there is no key `{}` in {}", short(name), words::section(path)));
        let help = words::meant(name, table, self.whole);
        self.problems.push(problem.help(help));
    }

    fn say(&mut self, node: &Node, path: &Path, message: String, help: impl Into<String>) {
        self.problems.push(Problem::at(&node.origin, path, message).help(help));
    }
}

/// Whether a value must not be shown.
pub(crate) fn is_secret(node: &Node, path: &Path) -> bool {
    sounds_secret(path.last_key()) || node.variables.iter().any(|name| sounds_secret(name))
}
