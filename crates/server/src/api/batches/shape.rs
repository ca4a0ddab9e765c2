//! Finds out in which format the calls of a message are, by the names of its members.
//!
//! In: a message. Out: the format and the member that shows it. Used for the error when a message has another format than
//! the request says.

use serde_json::Value;
use toolhub_core::export::Format;

use crate::problem::{Code, Problem};

/// Calls that a message has.
pub(super) struct FoundCalls {
    /// Their format; `None` is the format of a batch without `format`.
    pub(super) format: Option<Format>,
    member: &'static str,
}

/// The formats, for an error text.
pub(super) fn format_names() -> String {
    format!(
        "{}; without it, `{{\"calls\": [{{\"tool\", \"arguments\"}}]}}`",
        Format::ALL.map(Format::as_str).join(", ")
    )
}

/// The calls of a message, or of a list of calls. `None` for a message without calls.
pub(super) fn find_calls(message: &Value) -> Option<FoundCalls> {
    let lists = [
        ("tool_calls", Some(Format::OpenAi)),
        ("output", Some(Format::OpenAiResponses)),
        ("content", Some(Format::Anthropic)),
        ("parts", Some(Format::Gemini)),
        ("calls", None),
    ];
    let list_of = |member: &str| message.get(member).and_then(Value::as_array);
    if let Some(list) = message.as_array() {
        return list.iter().find_map(format_of_call);
    }
    let in_list = lists.into_iter().find_map(|(member, format)| {
        list_of(member)?.iter().find_map(format_of_call).filter(|found| found.format == format)?;
        Some(FoundCalls { format, member })
    });
    in_list.or_else(|| format_of_call(message)).or_else(|| {
        let content = message.pointer("/candidates/0/content").or_else(|| message.get("content"))?;
        let parts = content.get("parts")?.as_array()?;
        parts.iter().find_map(format_of_call).filter(|found| found.format == Some(Format::Gemini))
    })
}

fn format_of_call(call: &Value) -> Option<FoundCalls> {
    let found = |format, member| Some(FoundCalls { format, member });
    match call.get("type").and_then(Value::as_str) {
        Some("tool_use") => return found(Some(Format::Anthropic), "tool_use"),
        Some("function_call") => return found(Some(Format::OpenAiResponses), "function_call"),
        _ => {}
    }
    let has = |member: &str| call.get(member).is_some_and(Value::is_object);
    if has("function") {
        found(Some(Format::OpenAi), "function")
    } else if has("functionCall") || has("function_call") {
        found(Some(Format::Gemini), "functionCall")
    } else if has("params") {
        found(Some(Format::Mcp), "params")
    } else if call.get("tool").is_some_and(Value::is_string) {
        found(None, "tool")
    } else {
        None
    }
}

impl FoundCalls {
    /// The error for a request that says another format.
    pub(super) fn mismatch(&self, given: Option<Format>) -> Problem {
        let given = given.map_or("a batch without `format`".to_owned(), |format| format!("format {format}"));
        let advice = match self.format {
            Some(format) => format!("use format={format}"),
            None => "send it without `format`".to_owned(),
        };
        let detail = format!("no calls found for {given}; the body has `{}`: {advice}", self.member);
        Problem::new(Code::INVALID_REQUEST, detail).hint(format!("formats: {}", format_names()))
    }
}
