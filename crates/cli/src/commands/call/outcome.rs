//! Prints the outcome of a call.
//!
//! In: the call as the API returned it. Out: the tool's output on stdout, or a failure; and the exit code.

use serde::Deserialize;
use serde_json::Value;
use toolhub::Content;

use super::super::paging::pointer_text;
use crate::{
    exit::Exit,
    failure::Failure,
    output::{format_millis, format_status, indent_json, strip_hidden},
    session::Session,
};

/// Whether the call has ended.
pub(crate) fn has_ended(call: &Value) -> bool {
    matches!(call["status"].as_str(), Some("success" | "error" | "cancelled"))
}

/// Prints a call that has ended.
///
/// # Errors
/// When it did not succeed.
pub(crate) fn show_outcome(session: &Session, call: &Value, document: &str) -> Result<Exit, Failure> {
    let printer = &session.printer;
    if printer.json {
        printer.print_json(document);
    }
    if let Some(failure) = call_failure(call) {
        return Err(failure
            .see_also("call", format!("toolhub calls show {}{}", pointer_text(call, "/id"), session.target_flags())));
    }
    if !printer.json {
        printer.print_untrusted(&output_text(call));
        print_notes(session, call);
    }
    Ok(Exit::Success)
}

/// Why a call failed; `None` if it succeeded.
pub(crate) fn call_failure(call: &Value) -> Option<Failure> {
    let error = call.get("error").filter(|error| !error.is_null())?;
    let tool = pointer_text(call, "/tool");
    let mut failure = Failure::from_problem(error, 200);
    // `from_problem` cannot know that a `forbidden` here is always a rule's decision about the call.
    failure.exit = if failure.code == "forbidden" { Exit::Denied } else { Exit::from_code(&failure.code) };
    failure.message = match failure.code.as_str() {
        "tool_error" | "upstream_error" | "upstream_unreachable" => format!("`{tool}` failed: {}", failure.message),
        "approval_denied" => format!("`{tool}` was not run: {}", failure.message),
        _ => format!("`{tool}`: {}", failure.message),
    };
    let effect = match call["effect"].as_str() {
        Some("unknown") => Some("it is unknown whether the call took effect; check before you repeat it"),
        Some("done") => Some("the tool had already finished; do not repeat the call"),
        _ => None,
    };
    failure.help.extend(effect.map(String::from));
    if failure.trace_id.is_none() {
        failure.trace_id = call["traceId"].as_str().map(String::from);
    }
    Some(failure)
}

/// The tool's output: its text contents, or else its structured output.
fn output_text(call: &Value) -> String {
    let contents = call["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<String> = contents.iter().filter_map(block_text).collect();
    match (texts.is_empty(), &call["output"]) {
        (false, _) => texts.join("\n"),
        (true, Value::Null) => String::new(),
        (true, Value::String(text)) => text.clone(),
        (true, output) => indent_json(&output.to_string()),
    }
}

/// The text of a content block; `None` if it is not text.
fn block_text(block: &Value) -> Option<String> {
    Some(Content::deserialize(block).ok()?.model_text()?.into_owned())
}

/// Prints notes about the call.
fn print_notes(session: &Session, call: &Value) {
    let (printer, flag) = (&session.printer, |name: &str| call[name] == true);
    for content in call["content"].as_array().into_iter().flatten() {
        match content["type"].as_str() {
            None => {}
            Some("artifact") => {
                printer.note(&format!(
                    "full output: GET /api/v1/artifacts/{} ({} bytes)",
                    pointer_text(content, "/id"),
                    pointer_text(content, "/bytes")
                ));
            }
            Some(_) if block_text(content).is_some() => {}
            Some(kind) => {
                let label = Content::deserialize(content).ok().and_then(|content| content.binary_label());
                let label = label.unwrap_or_else(|| kind.to_owned());
                printer.note(&format!("the output also has {}; --json shows it", strip_hidden(&label)));
            }
        }
    }
    let thread = pointer_text(call, "/threadId");
    if !thread.is_empty() && session.global.thread.is_none() {
        printer.note(&format!("thread {thread}; continue it with --thread {thread}"));
    }
    if flag("replayed") {
        printer.note("replayed: an earlier call with this idempotency key returned this");
    }
    if printer.verbose {
        let (status, _) = format_status(&pointer_text(call, "/status"), printer.ascii);
        let duration = format_millis(call["durationMs"].as_f64().unwrap_or_default());
        let cached = if flag("cached") { ", cached" } else { "" };
        let attempts = call["attempts"]
            .as_u64()
            .filter(|count| *count > 1)
            .map_or(String::new(), |count| format!(", {count} attempts"));
        printer.note_verbose(&format!(
            "{status} in {duration}{attempts}{cached}, effect {}, {}",
            pointer_text(call, "/effect"),
            strip_hidden(&pointer_text(call, "/id"))
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_and_embedded_texts_are_part_of_the_output() {
        let call = json!({"output": {"n": 1}, "content": [
            {"type": "text", "text": "found"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGk="}},
            {"type": "hologram", "text": "from a newer server"},
        ]});
        assert_eq!(output_text(&call), "found\nResource a: file:///a\nResource file:///b:\ninside");
    }
}
