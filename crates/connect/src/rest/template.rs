//! Text templates: `{city}` stands for an argument.
//!
//! In: a text, and later the arguments. Out: its pieces, and the text with its placeholders filled. There are no expressions: a
//! placeholder is the name of an argument. Encoding is left to the caller.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The arguments of a call.
pub(crate) type Arguments = Map<String, Value>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template(pub(crate) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Argument(String),
}

impl Template {
    /// Parses a text. `{{` and `}}` are literal braces.
    ///
    /// # Errors
    /// Why its braces are invalid.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut plain) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, tail) = rest[at..].split_at(1);
            if let Some(after) = tail.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err("has an unmatched `}`; write `}}` for a literal brace".into());
            }
            let end = tail.find(['{', '}']).filter(|end| tail[*end..].starts_with('}'));
            let name = end.map(|end| &tail[..end]).filter(|name| !name.is_empty());
            let Some(name) = name else {
                return Err("has a `{` without an argument name and a `}`; write `{{` for a literal brace".into());
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Argument(name.to_owned()));
            rest = &tail[name.len() + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The names of the arguments it uses.
    pub(crate) fn argument_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The texts between the arguments.
    pub(crate) fn literal_texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Argument(_) => None,
        })
    }

    /// The argument, if the template is exactly one placeholder.
    pub(crate) fn sole_argument(&self) -> Option<&str> {
        match &self.0[..] {
            [Piece::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// The filled text; `None` if an argument is absent.
    pub(crate) fn fill(&self, arguments: &Arguments) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Argument(name) => text.push_str(&to_text(present_argument(arguments, name)?)),
            }
        }
        Some(text)
    }
}

/// The value of an argument, unless it is absent or `null`.
pub(crate) fn present_argument<'a>(arguments: &'a Arguments, name: &str) -> Option<&'a Value> {
    arguments.get(name).filter(|value| !value.is_null())
}

/// A value as text: a list is comma-separated, an object is JSON.
pub(crate) fn to_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(items) => Cow::Owned(items.iter().map(to_text).collect::<Vec<_>>().join(",")),
        other => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let arguments = json!({"a": "x y", "n": 3, "list": [1, "b"], "off": null, "o": {"k": 1}, "b.c": true});
        let filled = Template::parse(text).unwrap().fill(arguments.as_object().unwrap());
        assert_eq!(filled.as_deref(), expected, "{text}");
    }

    #[test]
    fn holes_are_filled_and_braces_can_be_written() {
        check("", Some(""));
        check("{a}", Some("x y"));
        check("<{a}{n}>", Some("<x y3>"));
        check("{list}/{b.c}", Some("1,b/true"));
        check("{o}", Some(r#"{"k":1}"#));
        check("{{a}} {n}}}", Some("{a} 3}"));
        check("{off}", None);
        check("x{gone}", None);
    }

    #[test]
    fn braces_that_make_no_sense_are_refused() {
        for invalid in ["{", "}", "{}", "{a", "a}", "{a{b}}", "{{a}"] {
            assert!(Template::parse(invalid).is_err(), "{invalid}");
        }
    }
}
