//! One validation problem of a call's arguments, described so that a model can correct it.
//!
//! In: a JSON pointer, and what was expected there. Out: the pointer for programs, a field name and a text for readers.
//! Texts quote the arguments, but no secrets: return them only to the sender.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub mod quote;

/// A problem of one field of the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// A JSON pointer to the field; empty for the arguments as a whole.
    pub pointer: String,
    /// The field as a reader would write it: `city`, `lines[2].qty`, or `arguments` for the whole.
    pub field: String,
    /// What was expected, and what was found.
    pub detail: String,
    /// A suggestion, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suggestion: Option<String>,
}

/// All problems of a call as one text for a model.
#[must_use]
pub fn problems_text(tool: &str, problems: &[Problem]) -> String {
    let headline = format!("the arguments of `{}` are not valid:", quote::truncate(tool, 64));
    let lines = problems.iter().map(|problem| format!("\n- {problem}"));
    headline + &lines.collect::<String>()
}

impl Problem {
    /// A problem at a pointer into the arguments; the value there may be missing.
    pub fn at(pointer: String, arguments: &Value, detail: impl Into<String>) -> Self {
        Self { field: display_path(&pointer, arguments), pointer, detail: detail.into(), suggestion: None }
    }

    /// A problem of the arguments as a whole.
    pub fn at_root(detail: impl Into<String>) -> Self {
        Self::at(String::new(), &Value::Null, detail)
    }

    /// The same problem with a suggestion.
    pub fn with_suggestion(mut self, suggestion: Option<String>) -> Self {
        self.suggestion = suggestion;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

/// Appends an escaped reference token to a JSON pointer.
pub fn join_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The pointer as a reader would write it. The arguments are needed to tell an index from a property named `2`.
fn display_path(pointer: &str, arguments: &Value) -> String {
    let mut field = String::new();
    let mut value = Some(arguments);
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        let index = value.filter(|value| value.is_array()).and(name.parse::<usize>().ok());
        value = match index {
            Some(index) => {
                field += &format!("[{index}]");
                value.and_then(|value| value.get(index))
            }
            None => {
                push_name(&mut field, &name);
                value.and_then(|value| value.get(&name))
            }
        };
    }
    if field.is_empty() {
        field = "arguments".into();
    }
    field
}

fn push_name(field: &mut String, name: &str) {
    let simple = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
    if !simple {
        *field += &format!("[\"{}\"]", quote::text(name));
        return;
    }
    if !field.is_empty() {
        field.push('.');
    }
    *field += &quote::text(name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(pointer: &str, expected: &str) {
        let arguments = json!({"lines": [{"qty": 1}], "2": {"a/b": {}}});
        let problem = Problem::at(pointer.to_owned(), &arguments, "odd");
        assert_eq!(problem.to_string(), format!("{expected}: odd"));
    }

    #[test]
    fn pointers_are_shown_as_a_reader_would_write_them() {
        check("", "arguments");
        check("/lines/0/qty", "lines[0].qty");
        check("/lines/7/missing", "lines[7].missing");
        check("/2/a~1b/x", "2[\"a/b\"].x");
        check("/", "[\"\"]");
        check("/a\nb", "[\"a\\u{a}b\"]");
    }

    #[test]
    fn the_text_for_a_model_has_one_line_for_each_problem() {
        let missing = Problem::at("/city".into(), &json!({}), "missing").with_suggestion(Some("add it".into()));
        let text = problems_text("weather", &[missing, Problem::at_root("odd")]);
        assert_eq!(text, "the arguments of `weather` are not valid:\n- city: missing; add it\n- arguments: odd");
    }
}
