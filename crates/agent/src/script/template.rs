//! Templates with placeholders: `$name`, `${name}`, `${result.path}`.
//!
//! In: a text of a script, and a function that resolves variables. Out: the filled-in text; `None` if a variable cannot
//! be resolved. `$$` is a literal dollar sign, and so is a `$` before anything but a name.

use serde_json::Value;

/// A parsed template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Template(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Placeholder(Placeholder),
}

/// A placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placeholder {
    pub(super) variable: Variable,
    /// Whether a string value is parsed as JSON, for arguments that are not strings.
    as_json: bool,
}

/// What a placeholder refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    /// What a group of a pattern captured.
    Group(String),
    /// The newest result, or a part of it.
    Result(Vec<String>),
    /// The newest result of a tool, or a part of it.
    ResultOf(String, Vec<String>),
    /// The names of the offered tools.
    Tools,
    /// Why a tool is not offered.
    Unavailable(String),
    /// The last user message.
    User,
}

/// The names that cannot be groups.
pub(super) const RESERVED_NAMES: [&str; 5] = ["result", "results", "tools", "unavailable", "user"];

impl Template {
    /// Parses a template; the error is a text for the script's author.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut segments, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(dollar) = rest.find('$') {
            literal.push_str(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                literal.push('$');
                rest = after;
                continue;
            }
            let inner = if let Some(braced) = rest.strip_prefix('{') {
                let end = braced.find('}').ok_or("`${` has no `}` after it; write `$$` for a dollar sign")?;
                rest = &braced[end + 1..];
                &braced[..end]
            } else {
                let is_name = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                let (name, after) = rest.split_at(if is_name { length } else { 0 });
                if name.is_empty() {
                    literal.push('$');
                    continue;
                }
                rest = after;
                name
            };
            if !literal.is_empty() {
                segments.push(Segment::Literal(std::mem::take(&mut literal)));
            }
            segments.push(Segment::Placeholder(parse_placeholder(inner)?));
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            segments.push(Segment::Literal(literal));
        }
        Ok(Self(segments))
    }

    /// Its placeholders.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Placeholder(placeholder) => Some(placeholder),
            Segment::Literal(_) => None,
        })
    }

    /// The filled-in text.
    pub(super) fn fill(&self, resolve: &dyn Fn(&Variable) -> Option<Value>) -> Option<String> {
        let segments = self.0.iter().map(|segment| match segment {
            Segment::Literal(text) => Some(text.clone()),
            Segment::Placeholder(placeholder) => resolve(&placeholder.variable).map(|value| value_text(&value)),
        });
        segments.collect()
    }

    /// The filled-in value: a template that is a single placeholder keeps the JSON type of its value.
    pub(super) fn value(&self, resolve: &dyn Fn(&Variable) -> Option<Value>) -> Option<Value> {
        let [Segment::Placeholder(placeholder)] = self.0.as_slice() else {
            return self.fill(resolve).map(Value::String);
        };
        let value = resolve(&placeholder.variable)?;
        match value {
            Value::String(text) if placeholder.as_json => serde_json::from_str(&text).ok(),
            value => Some(value),
        }
    }
}

fn parse_placeholder(inner: &str) -> Result<Placeholder, String> {
    let (path, as_json) = match inner.trim().strip_suffix(":json") {
        Some(path) => (path, true),
        None => (inner.trim(), false),
    };
    let mut segments = path.split('.').map(str::to_owned);
    let name = segments.next().unwrap_or_default();
    let segments: Vec<String> = segments.collect();
    if name.is_empty() || segments.iter().any(String::is_empty) {
        return Err(format!("`${{{inner}}}` has an empty name"));
    }
    let variable = match (name.as_str(), segments.as_slice()) {
        ("result", path) => Variable::Result(path.to_vec()),
        ("results", [tool, path @ ..]) => Variable::ResultOf(tool.clone(), path.to_vec()),
        ("results", []) => return Err("`${results}` needs a tool name, as in `${results.weather}`".into()),
        ("unavailable", [tool]) => Variable::Unavailable(tool.clone()),
        ("unavailable", _) => {
            return Err("`${unavailable}` needs a tool name, as in `${unavailable.report}`".into());
        }
        ("tools", []) => Variable::Tools,
        ("user", []) => Variable::User,
        (_, []) => Variable::Group(name),
        _ => return Err(format!("`${{{inner}}}`: only `result` and `results` have parts")),
    };
    Ok(Placeholder { variable, as_json })
}

/// A value as text: a string without quotes, other values as JSON.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolve(variable: &Variable) -> Option<Value> {
        match variable {
            Variable::Group(name) if name == "city" => Some("Oslo".into()),
            Variable::Group(name) if name == "many" => Some("7".into()),
            Variable::Result(path) if path == &["temp"] => Some(json!(4.5)),
            Variable::Tools => Some("a, b".into()),
            _ => None,
        }
    }

    #[test]
    fn places_are_filled_in_and_dollars_stay() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Template::parse(text).unwrap().fill(&resolve).as_deref(), expected, "{text}");
        };
        check("It is ${result.temp} °C in $city.", Some("It is 4.5 °C in Oslo."));
        check("${city}$city ${ tools }", Some("OsloOslo a, b"));
        check("$5, $$city, 7$", Some("$5, $city, 7$"));
        check("in $town", None);
        check("${result.wind}", None);
    }

    #[test]
    fn a_place_alone_keeps_the_sort_of_its_value() {
        let value = |text: &str| Template::parse(text).unwrap().value(&resolve);
        assert_eq!(value("${result.temp}"), Some(json!(4.5)));
        assert_eq!(value("$many"), Some(json!("7")));
        assert_eq!(value("${many:json}"), Some(json!(7)));
        assert_eq!(value("${city:json}"), None);
        assert_eq!(value("t${result.temp}"), Some(json!("t4.5")));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["${", "${}", "${results}", "${unavailable}", "${city.x}", "${result..x}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
