//! A condition on one argument: where it stands, and what it must look like.
//!
//! In: a JSON pointer and a regular expression as text, then arguments. Out: whether the value there matches.
//! A value that is not there matches nothing.

use regex::{Regex, RegexBuilder};
use serde_json::{Number, Value};

use super::ArgumentMatch;
use crate::digest;

/// How large a compiled pattern may be. `\d{4,}` needs 22 KiB; `\w{1,64}`, with every letter of Unicode, half of this.
const MAX_PATTERN_BYTES: usize = 8 * 1024 * 1024;

/// A condition ready to be asked.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    /// The steps of the pointer, without escapes.
    tokens: Vec<String>,
    pattern: Regex,
}

impl Condition {
    /// Reads a condition, or says everything that is wrong with it.
    pub(super) fn new(raw: &ArgumentMatch) -> Result<Self, Vec<String>> {
        let ArgumentMatch { pointer, pattern } = raw;
        let wrong_pointer = pointer_error(pointer).map(|flaw| format!("`{pointer}` is no JSON pointer: {flaw}"));
        let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
        match (wrong_pointer, compiled) {
            (None, Ok(pattern)) => Ok(Self { tokens: pointer_tokens(pointer), pattern }),
            (wrong_pointer, compiled) => {
                let wrong_pattern = compiled.err().map(|flaw| format!("`{pattern}` is no usable pattern: {flaw}"));
                Err(wrong_pointer.into_iter().chain(wrong_pattern).collect())
            }
        }
    }

    /// Whether the value at the pointer matches. The pattern may match any part of it; `^` and `$` tie it down. A string is
    /// matched as it is, anything else as JSON. One value has one text, so that nobody slips past a rule by writing the
    /// same arguments in another way: members are sorted.
    pub(super) fn matches(&self, arguments: &Value) -> bool {
        let value = self.tokens.iter().try_fold(arguments, |value, step| match value {
            Value::Object(members) => members.get(step),
            Value::Array(items) => parse_index(step).and_then(|at| items.get(at)),
            _ => None,
        });
        value.is_some_and(|value| match value {
            Value::String(text) => self.pattern.is_match(text),
            Value::Number(number) => self.matches_number(number),
            other => self.pattern.is_match(&digest::canonical_json(other)),
        })
    }

    /// A number is read without an exponent and without an empty fraction: `1e4` and `10000.0` read `10000`, or a rule
    /// about the number of digits would let them through. Whole ones are common, and written without taking memory.
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

/// The steps of a pointer, read once: a rule is asked about every call.
fn pointer_tokens(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// A place in a list: digits without a leading zero.
fn parse_index(step: &str) -> Option<usize> {
    if step.starts_with('+') || (step.starts_with('0') && step.len() > 1) { None } else { step.parse().ok() }
}

fn pointer_error(pointer: &str) -> Option<&'static str> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Some("it begins with `/`, or is empty for the arguments as a whole");
    }
    let escapes_are_whole = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    (!escapes_are_whole).then_some("`~` is written `~0`, and `/` inside a name `~1`")
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
        for written in ["10000", "1e4", "10000.0", "1e300"] {
            let arguments: Value = serde_json::from_str(&format!(r#"{{"amount":{written}}}"#)).unwrap();
            check("/amount", r"^\d{5,}$", &arguments, true);
        }
        check("/amount", r"^0\.5$", &json!({"amount": 0.5}), true);
        check("/amount", r"^-3$", &json!({"amount": -3.0}), true);
        check("/amount", r"^18446744073709551615$", &json!({"amount": u64::MAX}), true);
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let flaws = condition("amount~2", "(").unwrap_err();
        assert_eq!(flaws.len(), 2, "{flaws:?}");
        assert!(flaws[0].contains("`amount~2` is no JSON pointer"), "{flaws:?}");
        assert!(flaws[1].contains("`(` is no usable pattern"), "{flaws:?}");
        for bad in ["/a~", "/a~2b", "/~/x", "x"] {
            assert!(condition(bad, "x").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_that_would_grow_too_large_is_refused() {
        assert!(condition("/x", r"\w{1,64}").is_ok());
        assert!(condition("/x", r"(\w{500}){500}").is_err());
    }
}
