//! A compiled condition on one argument: a JSON pointer and a regular expression.
//!
//! In: the pointer and the expression as text, then arguments. Out: whether the value at the pointer matches.
//! A missing value never matches.

use regex::{Regex, RegexBuilder};
use serde_json::{Number, Value};

use super::ArgumentMatch;
use crate::digest;

/// Maximum size of a compiled pattern. `\d{4,}` needs 22 KiB; `\w{1,64}`, with every letter of Unicode, half of this limit.
const MAX_PATTERN_BYTES: usize = 8 * 1024 * 1024;

/// A condition ready for matching.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    /// The reference tokens of the pointer, unescaped.
    tokens: Vec<String>,
    pattern: Regex,
}

impl Condition {
    /// Compiles a condition, or returns all its problems.
    pub(super) fn new(raw: &ArgumentMatch) -> Result<Self, Vec<String>> {
        let ArgumentMatch { pointer, pattern } = raw;
        let pointer_problem = pointer_error(pointer).map(|error| format!("`{pointer}` is not a JSON pointer: {error}"));
        let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
        match (pointer_problem, compiled) {
            (None, Ok(pattern)) => Ok(Self { tokens: pointer_tokens(pointer), pattern }),
            (pointer_problem, compiled) => {
                let pattern_problem =
                    compiled.err().map(|error| format!("`{pattern}` is not a usable pattern: {error}"));
                Err(pointer_problem.into_iter().chain(pattern_problem).collect())
            }
        }
    }

    /// Whether the value at the pointer matches. The pattern may match any part of it; `^` and `$` anchor it. A string is
    /// matched without quotes, anything else as canonical JSON: equal values have one text, so that a caller cannot evade a rule by
    /// reordering members.
    pub(super) fn matches(&self, arguments: &Value) -> bool {
        let value = self.tokens.iter().try_fold(arguments, |value, token| match value {
            Value::Object(members) => members.get(token),
            Value::Array(items) => parse_index(token).and_then(|index| items.get(index)),
            _ => None,
        });
        value.is_some_and(|value| match value {
            Value::String(text) => self.pattern.is_match(text),
            Value::Number(number) => self.matches_number(number),
            other => self.pattern.is_match(&digest::canonical_json(other)),
        })
    }

    /// Matches a number without exponent and without a zero fraction: `1e4` and `10000.0` are matched as `10000`, because otherwise they
    /// would evade a rule about the number of digits. Integers are common and formatted without an allocation.
    fn matches_number(&self, number: &Number) -> bool {
        let mut digits = itoa::Buffer::new();
        match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(whole), ..) => self.pattern.is_match(digits.format(whole)),
            (_, Some(whole), _) => self.pattern.is_match(digits.format(whole)),
            (.., Some(value)) => self.pattern.is_match(&value.to_string()),
            _ => self.pattern.is_match(&number.to_string()),
        }
    }
}

/// The reference tokens of a pointer. Parsed once, because a rule is evaluated for every call.
fn pointer_tokens(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect()
}

/// An array index: digits without a leading zero.
fn parse_index(token: &str) -> Option<usize> {
    if token.starts_with('+') || (token.starts_with('0') && token.len() > 1) { None } else { token.parse().ok() }
}

fn pointer_error(pointer: &str) -> Option<&'static str> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Some("it must begin with `/`, or be empty for the arguments as a whole");
    }
    let escapes_are_valid = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    (!escapes_are_valid).then_some("write `~` as `~0`, and `/` inside a name as `~1`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn condition(pointer: &str, pattern: &str) -> Result<Condition, Vec<String>> {
        Condition::new(&ArgumentMatch { pointer: pointer.into(), pattern: pattern.into() })
    }

    #[track_caller]
    fn check(pointer: &str, pattern: &str, arguments: &Value, expected: bool) {
        let condition = condition(pointer, pattern).unwrap();
        assert_eq!(condition.matches(arguments), expected, "{pointer} ~ {pattern} on {arguments}");
    }

    #[test]
    fn a_pointer_leads_to_nested_values_and_escaped_names() {
        let arguments = json!({"to": [{"mail": "a@evil.example"}], "a/b": {"c~d": "x"}, "": "nameless"});
        check("/to/0/mail", "@evil", &arguments, true);
        check("/to/1/mail", "", &arguments, false);
        check("/to/mail", "", &arguments, false);
        check("/a~1b/c~0d", "^x$", &arguments, true);
        check("/a/b", "", &arguments, false);
        check("/", "nameless", &arguments, true);
        check("", "evil", &arguments, true);
    }

    #[test]
    fn what_is_no_string_is_matched_as_json() {
        let arguments = json!({"n": 1500, "yes": true, "none": null, "list": [1, "two"], "map": {"b": 1, "a": 2}});
        check("/n", r"^\d{4,}$", &arguments, true);
        check("/yes", "^true$", &arguments, true);
        check("/none", "^null$", &arguments, true);
        check("/missing", "null", &arguments, false);
        check("/list", r#"^\[1,"two"\]$"#, &arguments, true);
        check("/map", r#"^\{"a":2,"b":1\}$"#, &arguments, true);
    }

    #[test]
    fn a_number_is_matched_by_its_digits_however_it_was_written() {
        for literal in ["10000", "1e4", "10000.0", "1e300"] {
            let arguments: Value = serde_json::from_str(&format!(r#"{{"amount":{literal}}}"#)).unwrap();
            check("/amount", r"^\d{5,}$", &arguments, true);
        }
        check("/amount", r"^0\.5$", &json!({"amount": 0.5}), true);
        check("/amount", r"^-3$", &json!({"amount": -3.0}), true);
        check("/amount", r"^18446744073709551615$", &json!({"amount": u64::MAX}), true);
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let problems = condition("amount~2", "(").unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("`amount~2` is not a JSON pointer"), "{problems:?}");
        assert!(problems[1].contains("`(` is not a usable pattern"), "{problems:?}");
        for invalid in ["/a~", "/a~2b", "/~/x", "x"] {
            assert!(condition(invalid, "x").is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_pattern_that_would_grow_too_large_is_refused() {
        assert!(condition("/x", r"\w{1,64}").is_ok());
        assert!(condition("/x", r"(\w{500}){500}").is_err());
    }
}
