//! Validates a config tree against its shape.
//!
//! In: the tree and the shape. Out: every mismatch, with its location and a fix. A tree without problems deserializes into the
//! structs of `raw.rs`; `resolve.rs` checks how values fit together.

mod hints;

use toolhub::{config::unit::ellipsize, redact::is_secret_setting};

use super::{
    planned_keys,
    problem::{Problem, is_secret_name},
    renamed_keys,
    shape::{KeyShape, Shape, TableShape, TextShape, format_choices},
    suggest::closest,
    tree::{Node, Path, Value},
};

/// Validates a root config.
pub(crate) fn validate(tree: &Node, shape: &Shape) -> Vec<Problem> {
    let mut checker = Checker { root: shape, require_complete: true, problems: Vec::new() };
    checker.check_node(tree, shape, &Path::default());
    checker.problems
}

/// Validates a part of a config. A missing key is no problem, because another layer may set it.
pub(crate) fn validate_partial(node: &Node, path: &Path, shape: &Shape, root: &Shape) -> Vec<Problem> {
    let mut checker = Checker { root, require_complete: false, problems: Vec::new() };
    checker.check_node(node, shape, path);
    checker.problems
}

struct Checker<'a> {
    root: &'a Shape,
    require_complete: bool,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn check_node(&mut self, node: &Node, shape: &Shape, path: &Path) {
        if node.unresolved {
            return;
        }
        match (&node.value, shape) {
            (_, Shape::Any) => self.check_any(node, path),
            (Value::Bool(_), Shape::Bool) => {}
            (Value::Integer(number), Shape::Integer { min, max }) => {
                if number < min || number > max {
                    self.report_out_of_range(node, path, &number.to_string(), *min as f64, *max as f64);
                }
            }
            (Value::Integer(number), Shape::Number { min, max }) => {
                self.check_number(node, path, *number as f64, *min, *max);
            }
            (Value::Float(number), Shape::Number { min, max }) => self.check_number(node, path, *number, *min, *max),
            (Value::Text(text), Shape::Text(shape)) => self.check_text(node, path, text, shape),
            (Value::Datetime(text), Shape::Text(TextShape::Datetime)) => {
                self.check_text(node, path, text, &TextShape::Datetime);
            }
            (Value::List(list), Shape::List { items, min_items }) => {
                for (at, item) in list.iter().enumerate() {
                    self.check_node(item, items, &path.index(at));
                }
                if list.len() < *min_items {
                    let help = "name at least one, or omit the key";
                    self.report(node, path, format!("`{path}` is an empty list"), help);
                }
            }
            (Value::Table(keys), Shape::Table(table)) => {
                self.check_table(node, keys, table, path);
            }
            (value, Shape::AnyOf(all)) => match all.iter().find(|shape| hints::matches_type(value, shape)) {
                Some(shape) => self.check_node(node, shape, path),
                None => self.report_wrong_type(node, shape, path),
            },
            _ => self.report_wrong_type(node, shape, path),
        }
    }

    /// Free-form values are converted to JSON, which has no NaN and no infinity.
    fn check_any(&mut self, node: &Node, path: &Path) {
        match &node.value {
            Value::Float(number) if !number.is_finite() => {
                self.report(node, path, format!("`{path}` is not a finite number"), "omit it");
            }
            Value::List(list) => list.iter().enumerate().for_each(|(at, item)| self.check_any(item, &path.index(at))),
            Value::Table(table) => table.iter().for_each(|(key, item)| self.check_any(item, &path.key(key))),
            _ => {}
        }
    }

    fn check_number(&mut self, node: &Node, path: &Path, number: f64, min: f64, max: f64) {
        if !(number >= min && number <= max) {
            self.report_out_of_range(node, path, &number.to_string(), min, max);
        }
    }

    fn report_out_of_range(&mut self, node: &Node, path: &Path, number: &str, min: f64, max: f64) {
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
        self.report(node, path, format!("{number} is too {word} for `{path}`"), help);
    }

    fn check_text(&mut self, node: &Node, path: &Path, text: &str, shape: &TextShape) {
        // A variable may hold a secret, so its value is not shown.
        let shown = match node.variables.first() {
            Some(name) => format!("the value of ${{{name}}}"),
            None if is_secret(node, path) => "this value".into(),
            None => format!("\"{}\"", ellipsize(text)),
        };
        match shape {
            TextShape::Plain { min, max } => {
                let length = text.chars().count();
                if length < *min {
                    self.report(node, path, format!("`{path}` is empty"), "write a value, or omit the key");
                } else if length > *max {
                    let help = format!("use at most {max} characters");
                    self.report(node, path, format!("`{path}` is longer than {max} characters"), help);
                }
            }
            TextShape::Unit(unit) => {
                if let Err(error) = unit.check(text) {
                    let (message, help) = if shown.starts_with('"') {
                        (error.message, error.help)
                    } else {
                        (format!("{shown} is not {}", unit.describe()), format!("it must be {}", unit.describe()))
                    };
                    self.report(node, path, format!("`{path}`: {message}"), help);
                }
            }
            TextShape::Datetime => {
                if super::resolve::parse_datetime(text).is_none() {
                    let help =
                        "write a date such as \"2027-01-31\", or a date and time such as \"2027-01-31T12:00:00Z\"";
                    self.report(node, path, format!("`{path}`: {shown} is not a date"), help);
                }
            }
            TextShape::Choice(allowed) if !allowed.iter().any(|word| word == text) => {
                if let Some(help) = planned_keys::value_help(path, text) {
                    return self.report(node, path, format!("{shown} is not supported for `{path}`"), help);
                }
                let help = match closest(text, allowed.iter().map(String::as_str)) {
                    Some(word) => format!("did you mean {word:?}? Use {}", format_choices(allowed)),
                    None => format!("use {}", format_choices(allowed)),
                };
                self.report(node, path, format!("{shown} is not a valid value of `{path}`"), help);
            }
            TextShape::Choice(_) => {}
        }
    }

    /// Reports a value of the wrong type.
    fn report_wrong_type(&mut self, node: &Node, shape: &Shape, path: &Path) {
        let message = format!("`{path}` must be {}, not {}", shape.describe(), node.value.type_name());
        self.report(node, path, message, hints::wrong_type_help(node, shape, path));
    }

    fn check_table(
        &mut self,
        node: &Node,
        keys: &std::collections::BTreeMap<String, Node>,
        table: &TableShape,
        path: &Path,
    ) {
        for (name, inner) in keys {
            let inner_path = path.key(name);
            match (table.keys.get(name), &table.additional) {
                (Some(key), _) => self.check_node(inner, &key.shape, &inner_path),
                (None, Some(shape)) => self.check_node(inner, shape, &inner_path),
                (None, None) => self.report_unknown(inner, name, table, path),
            }
        }
        let complete = self.require_complete && !planned_keys::contains_planned(path, keys);
        for (name, key) in table.keys.iter().filter(|(name, key)| complete && key.required && !keys.contains_key(*name))
        {
            self.report_missing(node, name, key, path);
        }
        let known = || table.keys.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" and ");
        if keys.len() < table.min_keys || keys.len() > table.max_keys {
            self.report(node, path, format!("`{path}` must have one of {}", known()), "name exactly one of them");
        }
    }

    fn report_missing(&mut self, node: &Node, name: &str, key: &KeyShape, path: &Path) {
        let help = match &key.shape {
            Shape::Text(TextShape::Choice(allowed)) => {
                let likely = closest(path.last_key(), allowed.iter().map(String::as_str)).unwrap_or(&allowed[0]);
                format!("add {name} = {likely:?}; use {}", format_choices(allowed))
            }
            Shape::Text(TextShape::Plain { .. }) => format!("add {name} = \"…\". {}", key.description),
            shape => format!("add `{name}`: {}. {}", shape.describe(), key.description),
        };
        let problem = Problem::at(
            &node.key_origin,
            &path.key(name),
            format!("`{name}` is missing in {}", hints::section_name(path)),
        );
        self.problems.push(problem.help(help));
    }

    fn report_unknown(&mut self, node: &Node, name: &str, table: &TableShape, path: &Path) {
        let key_path = path.key(name);
        if let Some(new) = renamed_keys::successor(&key_path) {
            let problem = Problem::at(&node.key_origin, &key_path, format!("`{key_path}` was renamed to `{new}`"));
            return self.problems.push(problem.help(format!("write `{}` instead of `{name}`", new.last_key())));
        }
        if let Some(reason) = renamed_keys::removal_reason(&key_path) {
            let problem = Problem::at(&node.key_origin, &key_path, format!("`{key_path}` has no effect: {reason}"));
            return self.problems.push(problem.help("delete it"));
        }
        if let Some(help) = planned_keys::key_help(&key_path) {
            let problem = Problem::at(&node.key_origin, &key_path, format!("`{key_path}` is not supported yet"));
            return self.problems.push(problem.help(help));
        }
        let problem = Problem::at(
            &node.key_origin,
            &key_path,
            format!("there is no key `{}` in {}", ellipsize(name), hints::section_name(path)),
        );
        let help = hints::unknown_key_help(name, table, self.root);
        self.problems.push(problem.help(help));
    }

    fn report(&mut self, node: &Node, path: &Path, message: String, help: impl Into<String>) {
        self.problems.push(Problem::at(&node.origin, path, message).help(help));
    }
}

/// Whether a value must not be shown.
pub(crate) fn is_secret(node: &Node, path: &Path) -> bool {
    is_secret_name(path.last_key()) || node.variables.iter().any(|name| is_secret_setting(name))
}
