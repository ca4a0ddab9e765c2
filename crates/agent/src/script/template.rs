//! Texts with places to fill in: `$name`, `${name}`, `${result.path}`.
//!
//! In: a text of a script, and something that knows what stands for what. Out: the text filled in; none where something it names is not
//! there. `$$` is a dollar sign, and so is one before anything else than a name.

use serde_json::Value;

/// A text, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Template(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Placeholder(Placeholder),
}

/// A place to fill in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placeholder {
    pub(super) variable: Variable,
    /// A text is read as JSON, for arguments that are no texts.
    as_json: bool,
}

/// What belongs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    /// What a group of a pattern matched.
    Group(String),
    /// The newest result, or a part of it.
    Result(Vec<String>),
    /// The newest result of a tool, or a part of it.
    ResultOf(String, Vec<String>),
    /// The names of the tools.
    Tools,
    /// Why a tool is not offered.
    Unavailable(String),
    /// What the user said last.
    User,
}

/// The names that are no groups.
pub(super) const RESERVED_NAMES: [&str; 5] = ["result", "results", "tools", "unavailable", "user"];

impl Template {
    /// Takes a text apart, or says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                plain.push('$');
                rest = after;
                continue;
            }
            let inner = if let Some(braced) = rest.strip_prefix('{') {
                let end = braced.find('}').ok_or("`${` has no `}` after it; write `$$` for a dollar sign")?;
                rest = &braced[end + 1..];
                &braced[..end]
            } else {
                let begins = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                let (name, after) = rest.split_at(if begins { length } else { 0 });
                if name.is_empty() {
                    plain.push('$');
                    continue;
                }
                rest = after;
                name
            };
            if !plain.is_empty() {
                pieces.push(Segment::Literal(std::mem::take(&mut plain)));
            }
            pieces.push(Segment::Placeholder(parse_placeholder(inner)?));
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Segment::Literal(plain));
        }
        Ok(Self(pieces))
    }

    /// The places to fill in.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|piece| match piece {
            Segment::Placeholder(hole) => Some(hole),
            Segment::Literal(_) => None,
        })
    }

    /// The text, filled in.
    pub(super) fn fill(&self, known: &dyn Fn(&Variable) -> Option<Value>) -> Option<String> {
        let pieces = self.0.iter().map(|piece| match piece {
            Segment::Literal(text) => Some(text.clone()),
            Segment::Placeholder(hole) => known(&hole.variable).map(|value| value_text(&value)),
        });
        pieces.collect()
    }

    /// The value: a text that is nothing but a place to fill in keeps the sort of what belongs there.
    pub(super) fn value(&self, known: &dyn Fn(&Variable) -> Option<Value>) -> Option<Value> {
        let [Segment::Placeholder(hole)] = self.0.as_slice() else { return self.fill(known).map(Value::String) };
        let value = known(&hole.variable)?;
        match value {
            Value::String(text) if hole.as_json => serde_json::from_str(&text).ok(),
            value => Some(value),
        }
    }
}

fn parse_placeholder(inner: &str) -> Result<Placeholder, String> {
    let (path, as_json) = match inner.trim().strip_suffix(":json") {
        Some(path) => (path, true),
        None => (inner.trim(), false),
    };
    let mut steps = path.split('.').map(str::to_owned);
    let name = steps.next().unwrap_or_default();
    let steps: Vec<String> = steps.collect();
    if name.is_empty() || steps.iter().any(String::is_empty) {
        return Err(format!("`${{{inner}}}` names nothing"));
    }
    let what = match (name.as_str(), steps.as_slice()) {
        ("result", path) => Variable::Result(path.to_vec()),
        ("results", [tool, path @ ..]) => Variable::ResultOf(tool.clone(), path.to_vec()),
        ("results", []) => return Err("`${results}` wants the name of a tool, as in `${results.weather}`".into()),
        ("unavailable", [tool]) => Variable::Unavailable(tool.clone()),
        ("unavailable", _) => {
            return Err("`${unavailable}` wants the name of a tool, as in `${unavailable.report}`".into());
        }
        ("tools", []) => Variable::Tools,
        ("user", []) => Variable::User,
        (_, []) => Variable::Group(name),
        _ => return Err(format!("`${{{inner}}}`: only `result` and `results` have parts")),
    };
    Ok(Placeholder { variable: what, as_json })
}

/// A value in a sentence.
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

    fn resolve(what: &Variable) -> Option<Value> {
        match what {
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
