//! Help texts: what to write instead of an invalid key or value.

use super::{
    super::{
        environment::variable_for_key,
        raw::RawConfig,
        shape::{Shape, TableShape, TextShape},
        suggest::closest,
        tree::{KeySegment, Node, Origin, Path, Value},
    },
    is_secret,
};

/// Whether a value has the type of a shape, whether or not it is valid.
pub(super) fn matches_type(value: &Value, shape: &Shape) -> bool {
    match (value, shape) {
        (_, Shape::Any)
        | (Value::Bool(_), Shape::Bool)
        | (Value::Integer(_), Shape::Integer { .. } | Shape::Number { .. })
        | (Value::Float(_), Shape::Number { .. })
        | (Value::Text(_), Shape::Text(_))
        | (Value::List(_), Shape::List { .. })
        | (Value::Table(_), Shape::Table(_)) => true,
        (value, Shape::AnyOf(all)) => all.iter().any(|shape| matches_type(value, shape)),
        _ => false,
    }
}

/// The name of a part of a config in messages.
pub(super) fn section_name(path: &Path) -> String {
    match path.0.as_slice() {
        [] => "the config".into(),
        [.., KeySegment::Index(_)] => {
            let list = Path(path.0[..path.0.len() - 1].to_vec());
            format!("[[{list}]]")
        }
        _ => format!("[{path}]"),
    }
}

/// Help for an unknown key.
pub(super) fn unknown_key_help(name: &str, table: &TableShape, root: &Shape) -> String {
    let close = closest(name, table.keys.keys().map(String::as_str));
    let elsewhere = root.table().into_iter().flat_map(|table| &table.keys).filter_map(|(section, key)| {
        let inner = key.shape.table().or_else(|| key.shape.items().and_then(Shape::table))?;
        let header = if key.shape.items().is_some() { format!("[[{section}]]") } else { format!("[{section}]") };
        inner.keys.contains_key(name).then_some(header)
    });
    let elsewhere = elsewhere.collect::<Vec<_>>().join(" or ");
    match (close, elsewhere.as_str()) {
        (Some(key), "") => return format!("did you mean `{key}`?"),
        (None, "") => {}
        (Some(key), section) => return format!("`{name}` belongs in {section}; a similar key here is `{key}`"),
        (None, section) => return format!("`{name}` belongs in {section}"),
    }
    let known: Vec<&str> = table.keys.keys().map(String::as_str).collect();
    if known.is_empty() { "remove it".into() } else { format!("known keys: {}", known.join(", ")) }
}

/// Help for a value of the wrong type.
pub(super) fn wrong_type_help(node: &Node, shape: &Shape, path: &Path) -> String {
    let key = path.last_key();
    match (&node.value, shape) {
        _ if is_secret(node, path) => format!("write {}", shape.describe()),
        (Value::Text(text), Shape::Integer { .. } | Shape::Number { .. } | Shape::Bool) => {
            if !node.variables.is_empty() {
                return format!(
                    "a ${{variable}} is always a string; set this key with {} instead",
                    variable_for_key(path)
                );
            }
            if !matches!(node.origin, Origin::File { .. }) {
                return format!("set it to {}", shape.describe());
            }
            let is_valid = match shape {
                Shape::Bool => text == "true" || text == "false",
                Shape::Integer { .. } => text.parse::<i64>().is_ok(),
                _ => text.parse::<f64>().is_ok_and(f64::is_finite),
            };
            let default = default_value(path);
            let example = default.as_deref().unwrap_or(example_value(shape));
            let value = if is_valid { text.as_str() } else { example };
            format!("write it without quotes: {key} = {value}")
        }
        (Value::Integer(number), Shape::Text(TextShape::Unit(unit))) => unit.suggest_with_unit(*number as f64),
        (Value::Float(number), Shape::Text(TextShape::Unit(unit))) => unit.suggest_with_unit(*number),
        (Value::Integer(number), Shape::Text(_)) => format!("write it in quotes: {key} = \"{number}\""),
        (Value::Float(number), Shape::Text(_)) => format!("write it in quotes: {key} = \"{number}\""),
        (Value::Float(number), Shape::Integer { .. }) => format!("write {key} = {}", number.round()),
        (Value::Bool(boolean), Shape::Text(TextShape::Unit(_))) if !boolean => "omit the key".into(),
        (Value::Text(text), shape) if shape.items().is_some_and(|items| matches_type(&node.value, items)) => {
            format!("write it in brackets: {key} = [{text:?}]")
        }
        (_, Shape::Table(_)) if path.0.len() == 1 => {
            format!("write [{path}] on a line of its own, and its keys below it")
        }
        (_, Shape::Table(table)) => {
            let first = table.keys.keys().next().map_or("name", String::as_str);
            format!("write {key} = {{ {first} = … }}")
        }
        (Value::Table(_), Shape::List { items, .. }) if items.table().is_some() => {
            format!("write [[{path}]], with two brackets: there may be several")
        }
        (_, shape) => format!("write {}", shape.describe()),
    }
}

/// The default of a key, if it is a number or a boolean.
fn default_value(path: &Path) -> Option<String> {
    let mut value = &serde_json::to_value(RawConfig::default()).ok()?;
    for segment in &path.0 {
        value = match segment {
            KeySegment::Key(key) => value.get(key)?,
            KeySegment::Index(_) => return None,
        };
    }
    (value.is_number() || value.is_boolean()).then(|| value.to_string())
}

fn example_value(shape: &Shape) -> &'static str {
    match shape {
        Shape::Bool => "true",
        Shape::Integer { .. } => "8",
        _ => "1.5",
    }
}
