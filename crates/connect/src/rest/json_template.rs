//! JSON templates: JSON whose strings may contain placeholders.
//!
//! In: a JSON value, and later the arguments. Out: the same value with its placeholders filled. A string that is exactly one
//! placeholder becomes the argument itself, whatever its type; a value whose argument is absent is omitted.

use std::collections::HashSet;

use serde_json::Value;

use super::template::{Arguments, Piece, Template, present_argument};

/// A parsed JSON template.
#[derive(Debug)]
pub(crate) enum JsonTemplate {
    Fixed(Value),
    Text(Template),
    List(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    /// Parses a JSON template.
    ///
    /// # Errors
    /// Why a string is not a valid template.
    pub(crate) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => {
                let template = Template::parse(text).map_err(|reason| format!("a string {reason}"))?;
                match &template.0[..] {
                    [] => Self::Fixed(Value::String(String::new())),
                    [Piece::Text(text)] => Self::Fixed(Value::String(text.clone())),
                    _ => Self::Text(template),
                }
            }
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| Ok::<_, String>((name.clone(), Self::parse(value)?));
                Self::Object(members.iter().map(member).collect::<Result<_, _>>()?)
            }
            fixed => Self::Fixed(fixed.clone()),
        })
    }

    /// Adds the names of the arguments it uses.
    pub(crate) fn collect_argument_names(&self, names: &mut HashSet<String>) {
        match self {
            Self::Fixed(_) => {}
            Self::Text(template) => names.extend(template.argument_names().map(str::to_owned)),
            Self::List(items) => items.iter().for_each(|item| item.collect_argument_names(names)),
            Self::Object(members) => members.iter().for_each(|(_, member)| member.collect_argument_names(names)),
        }
    }

    /// The filled value; `None` if its argument is absent.
    pub(crate) fn fill(&self, arguments: &Arguments) -> Option<Value> {
        match self {
            Self::Fixed(value) => Some(value.clone()),
            Self::Text(template) => match template.sole_argument() {
                Some(argument) => present_argument(arguments, argument).cloned(),
                None => template.fill(arguments).map(Value::String),
            },
            Self::List(items) => Some(items.iter().filter_map(|item| item.fill(arguments)).collect()),
            Self::Object(members) => {
                let member = |(name, value): &(String, JsonTemplate)| Some((name.clone(), value.fill(arguments)?));
                Some(Value::Object(members.iter().filter_map(member).collect()))
            }
        }
    }
}
