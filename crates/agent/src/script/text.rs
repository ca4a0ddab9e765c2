//! Texts with places to fill in: `$name`, `${name}`, `${result.path}`.
//!
//! In: a text of a script, and something that knows what stands for what. Out: the text filled in; none where something it names is not
//! there. `$$` is a dollar sign, and so is one before anything else than a name.

use serde_json::Value;

/// A text, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Plain(String),
    Hole(Hole),
}

/// A place to fill in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) what: What,
    /// A text is read as JSON, for arguments that are no texts.
    as_json: bool,
}

/// What belongs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
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
pub(super) const NAMES: [&str; 5] = ["result", "results", "tools", "unavailable", "user"];

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
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Hole(hole(inner)?));
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        Ok(Self(pieces))
    }

    /// The places to fill in.
    pub(super) fn holes(&self) -> impl Iterator<Item = &Hole> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Hole(hole) => Some(hole),
            Piece::Plain(_) => None,
        })
    }

    /// The text, filled in.
    pub(super) fn fill(&self, known: &dyn Fn(&What) -> Option<Value>) -> Option<String> {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Plain(text) => Some(text.clone()),
            Piece::Hole(hole) => known(&hole.what).map(|value| words(&value)),
        });
        pieces.collect()
    }

    /// The value: a text that is nothing but a place to fill in keeps the sort of what belongs there.
    pub(super) fn value(&self, known: &dyn Fn(&What) -> Option<Value>) -> Option<Value> {
        let [Piece::Hole(hole)] = self.0.as_slice() else { return self.fill(known).map(Value::String) };
        let value = known(&hole.what)?;
        match value {
            Value::String(text) if hole.as_json => serde_json::from_str(&text).ok(),
            value => Some(value),
        }
    }
}

fn hole(inner: &str) -> Result<Hole, String> {
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
        ("result", path) => What::Result(path.to_vec()),
        ("results", [tool, path @ ..]) => What::ResultOf(tool.clone(), path.to_vec()),
        ("results", []) => return Err("`${results}` wants the name of a tool, as in `${results.weather}`".into()),
        ("unavailable", [tool]) => What::Unavailable(tool.clone()),
        ("unavailable", _) => {
            return Err("`${unavailable}` wants the name of a tool, as in `${unavailable.report}`".into());
        }
        ("tools", []) => What::Tools,
        ("user", []) => What::User,
        (_, []) => What::Group(name),
        _ => return Err(format!("`${{{inner}}}`: only `result` and `results` have parts")),
    };
    Ok(Hole { what, as_json })
}

/// A value in a sentence.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(what: &What) -> Option<Value> {
        match what {
            What::Group(name) if name == "city" => Some("Oslo".into()),
            What::Group(name) if name == "many" => Some("7".into()),
            What::Result(path) if path == &["temp"] => Some(json!(4.5)),
            What::Tools => Some("a, b".into()),
            _ => None,
        }
    }

    #[test]
    fn places_are_filled_in_and_dollars_stay() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Template::parse(text).unwrap().fill(&known).as_deref(), expected, "{text}");
        };
        check("It is ${result.temp} °C in $city.", Some("It is 4.5 °C in Oslo."));
        check("${city}$city ${ tools }", Some("OsloOslo a, b"));
        check("$5, $$city, 7$", Some("$5, $city, 7$"));
        check("in $town", None);
        check("${result.wind}", None);
    }

    #[test]
    fn a_place_alone_keeps_the_sort_of_its_value() {
        let value = |text: &str| Template::parse(text).unwrap().value(&known);
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
