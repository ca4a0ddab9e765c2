//! Serializes arguments in the styles of OpenAPI.
//!
//! In: a value and its style. Out: name-value pairs, or one text. Every name and value is percent-encoded, except in headers; the
//! separators of a style are not.

use serde_json::Value;

use super::{Style, template::to_text};
use crate::percent_encode::percent_encode;

/// An encoded name-value pair.
pub(crate) type Pair = (String, String);

/// The pairs of a query, a form or a cookie.
pub(crate) fn pairs(name: &str, value: &Value, style: Style, explode: bool) -> Vec<Pair> {
    let one = |text: String| vec![(percent_encode(name), text)];
    match (style, value) {
        (Style::Json, _) => one(percent_encode(&value.to_string())),
        (Style::DeepObject, Value::Object(_) | Value::Array(_)) => {
            let mut pairs = Vec::new();
            deep_object_pairs(name, value, &mut pairs);
            pairs
        }
        (_, Value::Array(items)) if explode => {
            items.iter().map(|item| (percent_encode(name), encode_scalar(item))).collect()
        }
        (_, Value::Object(members)) if explode => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (percent_encode(name), encode_scalar(value)))
            .collect(),
        (_, Value::Array(_) | Value::Object(_)) => one(encode_parts(value).join(match style {
            Style::SpaceDelimited => "%20",
            Style::PipeDelimited => "%7C",
            _ => ",",
        })),
        _ => one(encode_scalar(value)),
    }
}

/// Pairs of nested members and items, at any depth: `name[a][0]=c`.
fn deep_object_pairs(name: &str, value: &Value, pairs: &mut Vec<Pair>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| deep_object_pairs(&format!("{name}[{key}]"), value, pairs));
        }
        // OpenAPI does not define lists here. Indices keep the items apart, even if they are objects.
        Value::Array(items) => {
            let indexed = items.iter().enumerate();
            indexed.for_each(|(index, item)| deep_object_pairs(&format!("{name}[{index}]"), item, pairs));
        }
        Value::Null => {}
        scalar => pairs.push((percent_encode(name), encode_scalar(scalar))),
    }
}

/// The text of a path parameter.
pub(crate) fn format_path(name: &str, value: &Value, style: Style, explode: bool) -> String {
    let name = percent_encode(name);
    let named =
        |sep: &str| encode_members(value).iter().map(|(key, value)| format!("{sep}{key}={value}")).collect::<String>();
    let listed = |sep: &str| encode_parts(value).iter().map(|part| format!("{sep}{part}")).collect::<String>();
    match (style, value, explode) {
        (Style::Json, ..) => percent_encode(&value.to_string()),
        (Style::Label, Value::Array(_), true) => listed("."),
        (Style::Label, Value::Object(_), true) => named("."),
        (Style::Label, ..) => format!(".{}", encode_parts(value).join(",")),
        (Style::Matrix, Value::Array(_), true) => listed(&format!(";{name}=")),
        (Style::Matrix, Value::Object(_), true) => named(";"),
        (Style::Matrix, ..) => format!(";{name}={}", encode_parts(value).join(",")),
        (_, Value::Object(_), true) => named(",").trim_start_matches(',').to_owned(),
        _ => encode_parts(value).join(","),
    }
}

/// The text of a header: like `simple` in a path, but not percent-encoded.
pub(crate) fn format_header(value: &Value, style: Style, explode: bool) -> String {
    match value {
        _ if style == Style::Json => value.to_string(),
        Value::Object(members) => {
            let sep = if explode { "=" } else { "," };
            let member = |(name, value): (&String, &Value)| format!("{name}{sep}{}", to_text(value));
            members.iter().filter(|(_, value)| !value.is_null()).map(member).collect::<Vec<_>>().join(",")
        }
        _ => to_text(value).into_owned(),
    }
}

fn encode_scalar(value: &Value) -> String {
    percent_encode(&to_text(value))
}

/// The encoded items of a list, or the alternating names and values of an object.
fn encode_parts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().map(encode_scalar).collect(),
        Value::Object(_) => encode_members(value).into_iter().flat_map(|(name, value)| [name, value]).collect(),
        scalar => vec![encode_scalar(scalar)],
    }
}

fn encode_members(value: &Value) -> Vec<Pair> {
    let members = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    members.map(|(name, value)| (percent_encode(name), encode_scalar(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table of the OpenAPI specification: a scalar, a list and an object, not exploded and exploded.
    #[track_caller]
    fn check(style: Style, explode: bool, expected: [&str; 3]) {
        let values = [json!("blue"), json!(["blue", "black"]), json!({"B": 150, "R": 100})];
        let serialized = values.map(|value| match style {
            Style::Simple | Style::Label | Style::Matrix => format_path("color", &value, style, explode),
            _ => {
                let pairs = pairs("color", &value, style, explode);
                pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
            }
        });
        assert_eq!(serialized, expected, "{style:?} {explode}");
    }

    #[test]
    fn every_style_is_written_as_openapi_says() {
        check(Style::Simple, false, ["blue", "blue,black", "B,150,R,100"]);
        check(Style::Simple, true, ["blue", "blue,black", "B=150,R=100"]);
        check(Style::Label, false, [".blue", ".blue,black", ".B,150,R,100"]);
        check(Style::Label, true, [".blue", ".blue.black", ".B=150.R=100"]);
        check(Style::Matrix, false, [";color=blue", ";color=blue,black", ";color=B,150,R,100"]);
        check(Style::Matrix, true, [";color=blue", ";color=blue;color=black", ";B=150;R=100"]);
        check(Style::Form, false, ["color=blue", "color=blue,black", "color=B,150,R,100"]);
        check(Style::Form, true, ["color=blue", "color=blue&color=black", "B=150&R=100"]);
        check(Style::SpaceDelimited, false, ["color=blue", "color=blue%20black", "color=B%20150%20R%20100"]);
        check(Style::PipeDelimited, false, ["color=blue", "color=blue%7Cblack", "color=B%7C150%7CR%7C100"]);
        check(
            Style::DeepObject,
            true,
            ["color=blue", "color%5B0%5D=blue&color%5B1%5D=black", "color%5BB%5D=150&color%5BR%5D=100"],
        );
        check(
            Style::Json,
            false,
            ["color=%22blue%22", "color=%5B%22blue%22%2C%22black%22%5D", "color=%7B%22B%22%3A150%2C%22R%22%3A100%7D"],
        );
        assert_eq!(format_header(&json!({"B": 1, "R": "x, y"}), Style::Simple, false), "B,1,R,x, y");
        assert_eq!(format_header(&json!(["a", "b"]), Style::Simple, false), "a,b");
    }
}
