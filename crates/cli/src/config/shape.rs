//! The shape of a config: the schema in a form that is easy to walk.
//!
//! In: the schema. Out: shapes, which `check.rs` validates trees against, `overlay.rs` uses to parse variables and flags, and the
//! documentation is generated from. A test rejects JSON Schema keywords that are not supported here, because they would not be
//! enforced.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhub::config::Unit;

use super::schema;

/// The shape of a value.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Any value.
    Any,
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Text(TextShape),
    List {
        items: Box<Shape>,
        min_items: usize,
    },
    Table(TableShape),
    /// One of these, distinguished by the type of the value.
    AnyOf(Vec<Shape>),
}

/// The shape of a string.
#[derive(Debug, Clone)]
pub(crate) enum TextShape {
    /// A length in characters.
    Plain { min: usize, max: usize },
    /// A number with a unit.
    Unit(Unit),
    /// A date, or a date and a time with its offset.
    Datetime,
    /// One of these values.
    Choice(Vec<String>),
}

/// The shape of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableShape {
    pub(crate) keys: BTreeMap<String, KeyShape>,
    /// The shape of values under other names; `None` if there must not be any.
    pub(crate) additional: Option<Box<Shape>>,
    /// The minimum number of keys.
    pub(crate) min_keys: usize,
    pub(crate) max_keys: usize,
}

/// A key of a table.
#[derive(Debug, Clone)]
pub(crate) struct KeyShape {
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    pub(crate) description: String,
}

impl Shape {
    /// The shape of a whole config.
    pub(crate) fn of_config() -> Self {
        let schema = schema::value_schema();
        SchemaReader { root: &schema }.read(&schema)
    }

    /// The table shape, or one among the alternatives.
    pub(crate) fn table(&self) -> Option<&TableShape> {
        match self {
            Self::Table(table) => Some(table),
            Self::AnyOf(all) => all.iter().find_map(Self::table),
            _ => None,
        }
    }

    /// The shape of list items, or of those of an alternative.
    pub(crate) fn items(&self) -> Option<&Shape> {
        match self {
            Self::List { items, .. } => Some(items),
            Self::AnyOf(all) => all.iter().find_map(Self::items),
            _ => None,
        }
    }

    /// A description for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Any => "anything".into(),
            Self::Bool => "true or false".into(),
            Self::Integer { .. } => "an integer".into(),
            Self::Number { .. } => "a number".into(),
            Self::Text(TextShape::Plain { .. }) => "a string".into(),
            Self::Text(TextShape::Unit(unit)) => unit.describe().into(),
            Self::Text(TextShape::Datetime) => "a date, such as \"2027-01-31\"".into(),
            Self::Text(TextShape::Choice(allowed)) => format_choices(allowed),
            Self::List { items, .. } => format!("a list of {}", items.describe_plural()),
            Self::Table(_) => "a table".into(),
            Self::AnyOf(all) if all.iter().filter_map(Self::table).any(|table| table.keys.contains_key("env")) => {
                "a string, { env = \"NAME\" } or { file = \"path\" }".into()
            }
            Self::AnyOf(all) => all.iter().map(Self::describe).collect::<Vec<_>>().join(" or "),
        }
    }

    fn describe_plural(&self) -> String {
        match self {
            Self::Text(TextShape::Plain { .. }) => "strings".into(),
            Self::Table(_) => "tables".into(),
            Self::Text(TextShape::Choice(allowed)) => {
                allowed.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
            }
            other => other.describe(),
        }
    }
}

/// `"a", "b" or "c"`.
pub(crate) fn format_choices(allowed: &[String]) -> String {
    let allowed: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
    match allowed.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

struct SchemaReader<'a> {
    root: &'a Value,
}

impl SchemaReader<'_> {
    fn read(&self, schema: &Value) -> Shape {
        let target = schema["$ref"].as_str().and_then(|pointer| self.root.pointer(pointer.trim_start_matches('#')));
        if let Some(target) = target {
            return self.read(target);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            return Shape::AnyOf(choices.iter().map(|choice| self.read(choice)).collect());
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let allowed = choices.iter().flat_map(|choice| match &choice["enum"] {
                Value::Array(allowed) => allowed.clone(),
                _ => vec![choice["const"].clone()],
            });
            return Shape::Text(TextShape::Choice(allowed.map(choice_text).collect()));
        }
        if let Some(allowed) = schema["enum"].as_array() {
            return Shape::Text(TextShape::Choice(allowed.iter().cloned().map(choice_text).collect()));
        }
        match schema["type"].as_str() {
            Some("boolean") => Shape::Bool,
            Some("integer") => Shape::Integer {
                min: schema["minimum"].as_i64().unwrap_or(i64::MIN),
                max: schema["maximum"].as_i64().unwrap_or(i64::MAX),
            },
            Some("number") => Shape::Number {
                min: schema["minimum"].as_f64().unwrap_or(f64::MIN),
                max: schema["maximum"].as_f64().unwrap_or(f64::MAX),
            },
            Some("string") => Shape::Text(self.read_text(schema)),
            Some("array") => Shape::List {
                items: Box::new(self.read(&schema["items"])),
                min_items: as_usize(&schema["minItems"]).unwrap_or(0),
            },
            Some("object") => Shape::Table(self.read_table(schema)),
            _ => Shape::Any,
        }
    }

    fn read_text(&self, schema: &Value) -> TextShape {
        let format = schema["format"].as_str().unwrap_or_default();
        if let Some(unit) = Unit::ALL.into_iter().find(|unit| unit.format() == format) {
            return TextShape::Unit(unit);
        }
        if format == "toolhub-moment" {
            return TextShape::Datetime;
        }
        let (min, max) = (as_usize(&schema["minLength"]), as_usize(&schema["maxLength"]));
        TextShape::Plain { min: min.unwrap_or(0), max: max.unwrap_or(usize::MAX) }
    }

    fn read_table(&self, schema: &Value) -> TableShape {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let keys = schema["properties"].as_object().into_iter().flatten().map(|(name, key)| {
            let description = key["description"].as_str().unwrap_or_default().replace('\n', " ");
            let required = required.contains(&name.as_str());
            (name.clone(), KeyShape { shape: self.read(key), required, description })
        });
        let additional = match &schema["additionalProperties"] {
            Value::Bool(false) => None,
            Value::Object(_) => Some(Box::new(self.read(&schema["additionalProperties"]))),
            _ => Some(Box::new(Shape::Any)),
        };
        let (min_keys, max_keys) = (as_usize(&schema["minProperties"]), as_usize(&schema["maxProperties"]));
        TableShape {
            keys: keys.collect(),
            additional,
            min_keys: min_keys.unwrap_or(0),
            max_keys: max_keys.unwrap_or(usize::MAX),
        }
    }
}

fn as_usize(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}

fn choice_text(word: Value) -> String {
    match word {
        Value::String(word) => word,
        other => other.to_string(),
    }
}
