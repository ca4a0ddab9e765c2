//! How a call ended, shown.
//!
//! In: the call as the API shows it. Out: what the tool returned on stdout, or why it did not; and the exit code.

use serde_json::Value;

use super::super::list::text;
use crate::{
    exit::Exit,
    failure::Failure,
    output::{indented, lasting, plain, status},
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
pub(crate) fn ended(session: &Session, call: &Value, document: &str) -> Result<Exit, Failure> {
    let show = &session.show;
    if show.json {
        show.document(document);
    }
    if let Some(failure) = failed(call) {
        return Err(failure.see("call", format!("toolhub calls show {}{}", text(call, "/id"), session.flags())));
    }
    if !show.json {
        show.foreign(&returned(call));
        aside(session, call);
    }
    Ok(Exit::Fine)
}

/// Why a call did not succeed; none if it did.
pub(crate) fn failed(call: &Value) -> Option<Failure> {
    let error = call.get("error").filter(|error| !error.is_null())?;
    let tool = text(call, "/tool");
    let mut failure = Failure::of_problem(error, 200);
    // This is about a call, whatever the error carries.
    failure.exit = if failure.code == "forbidden" { Exit::Denied } else { Exit::of_code(&failure.code) };
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
    if failure.trace.is_none() {
        failure.trace = call["traceId"].as_str().map(String::from);
    }
    Some(failure)
}

/// What the tool returned: its texts, or else its output.
fn returned(call: &Value) -> String {
    let pieces = call["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = pieces.iter().filter_map(|piece| piece["text"].as_str()).collect();
    match (texts.is_empty(), &call["output"]) {
        (false, _) => texts.join("\n"),
        (true, Value::Null) => String::new(),
        (true, Value::String(text)) => text.clone(),
        (true, output) => indented(&output.to_string()),
    }
}

/// What is worth knowing beside that.
fn aside(session: &Session, call: &Value) {
    let (show, is) = (&session.show, |name: &str| call[name] == true);
    for piece in call["content"].as_array().into_iter().flatten() {
        match piece["type"].as_str() {
            Some("text") | None => {}
            Some("artifact") => {
                show.say(&format!(
                    "kept whole: GET /api/v1/artifacts/{} ({} bytes)",
                    text(piece, "/id"),
                    text(piece, "/bytes")
                ));
            }
            Some(kind) => show.say(&format!("there is also {kind} ({}); --json shows it", text(piece, "/mimeType"))),
        }
    }
    let thread = text(call, "/threadId");
    if !thread.is_empty() && session.global.thread.is_none() {
        show.say(&format!("thread {thread}; --thread goes on with it"));
    }
    if is("replayed") {
        show.say("the same call was made before with this key: this is its answer");
    }
    if show.verbose {
        let (word, _) = status(&text(call, "/status"), show.ascii);
        let took = lasting(call["durationMs"].as_f64().unwrap_or_default());
        let cached = if is("cached") { ", kept answer" } else { "" };
        let attempts = call["attempts"]
            .as_u64()
            .filter(|many| *many > 1)
            .map_or(String::new(), |many| format!(", {many} attempts"));
        show.whisper(&format!(
            "{word} in {took}{attempts}{cached}, effect {}, {}",
            text(call, "/effect"),
            plain(&text(call, "/id"))
        ));
    }
}
