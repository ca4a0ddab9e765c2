//! How a call ended, shown.
//!
//! In: the call as the API shows it. Out: what the tool returned on stdout, or why it did not; and the exit code.

use serde_json::Value;

use super::super::paging::pointer_text;
use crate::{
    exit::Exit,
    failure::Failure,
    output::{format_millis, format_status, indent_json, strip_control_chars},
    session::Session,
};

/// Whether this is the call's last status.
pub(crate) fn has_ended(call: &Value) -> bool {
    matches!(call["status"].as_str(), Some("success" | "error" | "cancelled"))
}

/// Shows a call that has ended.
///
/// # Errors
/// When it did not succeed.
pub(crate) fn show_outcome(session: &Session, call: &Value, document: &str) -> Result<Exit, Failure> {
    let show = &session.printer;
    if show.json {
        show.print_json(document);
    }
    if let Some(failure) = call_failure(call) {
        return Err(failure
            .see_also("call", format!("toolhub calls show {}{}", pointer_text(call, "/id"), session.target_flags())));
    }
    if !show.json {
        show.print_untrusted(&output_text(call));
        print_notes(session, call);
    }
    Ok(Exit::Success)
}

/// Why a call did not succeed; none if it did.
pub(crate) fn call_failure(call: &Value) -> Option<Failure> {
    let error = call.get("error").filter(|error| !error.is_null())?;
    let tool = pointer_text(call, "/tool");
    let mut failure = Failure::from_problem(error, 200);
    // This is about a call, whatever the error carries.
    failure.exit = if failure.code == "forbidden" { Exit::Denied } else { Exit::from_code(&failure.code) };
    failure.message = match failure.code.as_str() {
        "tool_error" | "upstream_error" | "upstream_unreachable" => format!("`{tool}` failed: {}", failure.message),
        "approval_denied" => format!("`{tool}` was not run: {}", failure.message),
        _ => format!("`{tool}`: {}", failure.message),
    };
    let effect = match call["effect"].as_str() {
        Some("unknown") => Some("whether it took effect is not known; look before you repeat it"),
        Some("done") => Some("the tool itself had finished; do not repeat the call"),
        _ => None,
    };
    failure.help.extend(effect.map(String::from));
    if failure.trace_id.is_none() {
        failure.trace_id = call["traceId"].as_str().map(String::from);
    }
    Some(failure)
}

/// What the tool returned: its texts, or else its output.
fn output_text(call: &Value) -> String {
    let pieces = call["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = pieces.iter().filter_map(|piece| piece["text"].as_str()).collect();
    match (texts.is_empty(), &call["output"]) {
        (false, _) => texts.join("\n"),
        (true, Value::Null) => String::new(),
        (true, Value::String(text)) => text.clone(),
        (true, output) => indent_json(&output.to_string()),
    }
}

/// What is worth knowing beside that.
fn print_notes(session: &Session, call: &Value) {
    let (show, is) = (&session.printer, |name: &str| call[name] == true);
    for piece in call["content"].as_array().into_iter().flatten() {
        match piece["type"].as_str() {
            Some("text") | None => {}
            Some("artifact") => {
                show.note(&format!(
                    "kept whole: GET /api/v1/artifacts/{} ({} bytes)",
                    pointer_text(piece, "/id"),
                    pointer_text(piece, "/bytes")
                ));
            }
            Some(kind) => {
                show.note(&format!("there is also {kind} ({}); --json shows it", pointer_text(piece, "/mimeType")));
            }
        }
    }
    let thread = pointer_text(call, "/threadId");
    if !thread.is_empty() && session.global.thread.is_none() {
        show.note(&format!("thread {thread}; --thread goes on with it"));
    }
    if is("replayed") {
        show.note("the same call was made before with this key: this is its answer");
    }
    if show.verbose {
        let (word, _) = format_status(&pointer_text(call, "/status"), show.ascii);
        let took = format_millis(call["durationMs"].as_f64().unwrap_or_default());
        let cached = if is("cached") { ", kept answer" } else { "" };
        let attempts = call["attempts"]
            .as_u64()
            .filter(|many| *many > 1)
            .map_or(String::new(), |many| format!(", {many} attempts"));
        show.note_verbose(&format!(
            "{word} in {took}{attempts}{cached}, effect {}, {}",
            pointer_text(call, "/effect"),
            strip_control_chars(&pointer_text(call, "/id"))
        ));
    }
}
