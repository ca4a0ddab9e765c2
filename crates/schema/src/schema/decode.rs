//! Reports the field that fails to deserialize although the schema accepts it.
//!
//! In: the arguments and the target type. Out: the problem, or none if they deserialize.
//! Needed for types that are stricter than their schema: a date, a range, a custom `Deserialize`.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use toolhub_types::problem::{Problem, join_pointer, quote};

/// Why the arguments do not deserialize into a `T`; empty if they do.
#[must_use]
pub fn explain_decode<T: DeserializeOwned>(arguments: &Value) -> Vec<Problem> {
    let Err(error) = serde_path_to_error::deserialize::<_, T>(arguments) else {
        return Vec::new();
    };
    let mut pointer = String::new();
    for segment in error.path() {
        let next = match segment {
            Segment::Seq { index } => join_pointer(&pointer, &index.to_string()),
            Segment::Map { key } => join_pointer(&pointer, key),
            Segment::Enum { variant } => join_pointer(&pointer, variant),
            Segment::Unknown => break,
        };
        // A variant is a property only in some representations of an enum; check whether the arguments have it.
        match segment {
            Segment::Enum { .. } if arguments.pointer(&next).is_none() => {}
            _ => pointer = next,
        }
    }
    let detail = quote::truncate(&error.inner().to_string(), 200);
    vec![Problem::at(pointer, arguments, detail)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Order {
        lines: Vec<Line>,
        #[serde(default)]
        pay: Option<Pay>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Line {
        qty: u8,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code)]
    enum Pay {
        Card { number: u32 },
        Cash,
    }

    #[track_caller]
    fn check(arguments: &Value, expected: &[&str]) {
        let problems: Vec<String> = explain_decode::<Order>(arguments).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn the_field_that_serde_refuses_is_named() {
        check(&json!({"lines": [{"qty": 1}]}), &[]);
        check(
            &json!({"lines": [{"qty": 1}, {"qty": 300}]}),
            &["lines[1].qty: invalid value: integer `300`, expected u8"],
        );
        check(&json!({"lines": [{}]}), &["lines[0]: missing field `qty`"]);
        check(
            &json!({"lines": [], "pay": {"card": {"number": "x"}}}),
            &["pay.card.number: invalid type: string \"x\", expected u32"],
        );
        check(&json!([]), &["arguments: invalid length 0, expected struct Order with 2 elements"]);
    }
}
