//! What to write instead of what does not fit.

use super::{
    super::{
        closest::closest,
        shape::{Shape, Table, Text},
        tree::{Node, Path, Step, Value},
    },
    is_secret,
};

/// Whether a value is of the sort a shape wants, right or wrong.
pub(super) fn is_sort(value: &Value, shape: &Shape) -> bool {
    match (value, shape) {
        (_, Shape::Any)
        | (Value::Bool(_), Shape::Bool)
        | (Value::Integer(_), Shape::Integer { .. } | Shape::Number { .. })
        | (Value::Float(_), Shape::Number { .. })
        | (Value::Text(_), Shape::Text(_))
        | (Value::List(_), Shape::List { .. })
        | (Value::Table(_), Shape::Table(_)) => true,
        (value, Shape::Either(all)) => all.iter().any(|shape| is_sort(value, shape)),
        _ => false,
    }
}

/// How a part of a config is called.
pub(super) fn section(path: &Path) -> String {
    match path.0.as_slice() {
        [] => "the config".into(),
        [.., Step::Place(_)] => {
            let list = Path(path.0[..path.0.len() - 1].to_vec());
            format!("[[{list}]]")
        }
        _ => format!("[{path}]"),
    }
}

/// What to do about a key that nobody knows.
pub(super) fn meant(name: &str, table: &Table, whole: &Shape) -> String {
    if let Some(key) = closest(name, table.keys.keys().map(String::as_str)) {
        return format!("did you mean `{key}`?");
    }
    let elsewhere = whole.table().into_iter().flat_map(|table| &table.keys).filter_map(|(section, key)| {
        let inner = key.shape.table().or_else(|| key.shape.items().and_then(Shape::table))?;
        let word = if key.shape.items().is_some() { format!("[[{section}]]") } else { format!("[{section}]") };
        inner.keys.contains_key(name).then_some(word)
    });
    let elsewhere: Vec<String> = elsewhere.collect();
    if !elsewhere.is_empty() {
        return format!("`{name}` belongs in {}", elsewhere.join(" or "));
    }
    let known: Vec<&str> = table.keys.keys().map(String::as_str).collect();
    if known.is_empty() { "remove it".into() } else { format!("known here: {}", known.join(", ")) }
}

/// What to write instead of a value of the wrong sort.
pub(super) fn instead(node: &Node, shape: &Shape, path: &Path) -> Option<String> {
    let key = path.last_key();
    match (&node.value, shape) {
        (Value::Text(_), _) if is_secret(node, path) => None,
        (Value::Text(text), Shape::Integer { .. } | Shape::Number { .. } | Shape::Bool) => {
            let fits = match shape {
                Shape::Bool => text == "true" || text == "false",
                Shape::Integer { .. } => text.parse::<i64>().is_ok(),
                _ => text.parse::<f64>().is_ok_and(f64::is_finite),
            };
            if fits {
                return Some(format!("write it without quotes: {key} = {text}"));
            }
            let from_env = || {
                let keys = path.0.iter().map(|step| match step {
                    Step::Key(key) => key.to_uppercase(),
                    Step::Place(place) => place.to_string(),
                });
                format!("to set it from the environment, use TOOLHUB__{}", keys.collect::<Vec<_>>().join("__"))
            };
            Some(if node.variables.is_empty() { format!("write {key} = {}", example(shape)) } else { from_env() })
        }
        (Value::Integer(number), Shape::Text(Text::Unit(unit))) => Some(unit.instead_of(*number)),
        (Value::Float(number), Shape::Text(Text::Unit(unit))) => Some(unit.instead_of(*number as i64)),
        (Value::Integer(number), Shape::Text(_)) => Some(format!("write it in quotes: {key} = \"{number}\"")),
        (Value::Float(number), Shape::Text(_)) => Some(format!("write it in quotes: {key} = \"{number}\"")),
        (Value::Float(number), Shape::Integer { .. }) => Some(format!("write {key} = {}", number.round())),
        (Value::Bool(yes), Shape::Text(Text::Unit(_))) if !yes => Some("leave the key out".into()),
        (Value::Text(text), Shape::List { items, .. }) if is_sort(&node.value, items) => {
            Some(format!("write it in brackets: {key} = [{text:?}]"))
        }
        (_, Shape::Table(_)) if path.0.len() == 1 => {
            Some(format!("write [{path}] on a line of its own, and its keys below it"))
        }
        (_, Shape::Table(table)) => {
            let first = table.keys.keys().next()?;
            Some(format!("write {key} = {{ {first} = … }}"))
        }
        (Value::Table(_), Shape::List { items, .. }) if items.table().is_some() => {
            Some(format!("write [[{path}]], with two brackets: there may be several"))
        }
        (_, shape) => Some(format!("write {}", shape.words())),
    }
}

fn example(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "true".into(),
        Shape::Integer { min, .. } => (*min).clamp(1, 8).to_string(),
        _ => "1.0".into(),
    }
}
