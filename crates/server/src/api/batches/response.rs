//! Formats the results of a model's calls as messages of its provider.

use serde_json::{Value, json};
use toolhub_core::{CallError, Content, ErrorKind, Outcome};

use crate::{api::calls::CallView, links::Links};

/// The id of a call, and its outcome or the error text for the model.
type CallEnd = (Option<String>, Result<Outcome, String>);

/// Messages of the role `tool`.
pub(super) fn openai_messages(ends: &[CallEnd], links: &Links) -> Vec<Value> {
    let message = |(id, end): &CallEnd| json!({"role": "tool", "tool_call_id": id, "content": result_text(end, links)});
    ends.iter().map(message).collect()
}

/// One message of the role `user` with all results; none if there are no results.
pub(super) fn anthropic_messages(ends: &[CallEnd], links: &Links) -> Vec<Value> {
    if ends.is_empty() {
        return Vec::new();
    }
    let results = ends.iter().map(|(id, end)| {
        let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": result_content(end, links)});
        if !end.as_ref().is_ok_and(Outcome::is_success) {
            result["is_error"] = true.into();
        }
        result
    });
    vec![json!({"role": "user", "content": results.collect::<Vec<_>>()})]
}

/// The calls themselves.
pub(super) fn call_views(ends: Vec<CallEnd>, links: &Links) -> Vec<CallView> {
    ends.into_iter().filter_map(|(_, end)| end.ok()).map(|outcome| CallView::from_outcome(outcome, links)).collect()
}

/// What the model reads, images included.
fn result_content(end: &Result<Outcome, String>, links: &Links) -> Value {
    let text = result_text(end, links);
    let pieces = end.as_ref().map(|outcome| outcome.content.as_slice()).unwrap_or_default();
    let images = pieces.iter().filter_map(|piece| match piece {
        Content::Image { data, mime_type } => {
            Some(json!({"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}))
        }
        _ => None,
    });
    let images: Vec<Value> = images.collect();
    if images.is_empty() {
        return text.into();
    }
    std::iter::once(json!({"type": "text", "text": text})).chain(images).collect()
}

/// What the model reads.
fn result_text(end: &Result<Outcome, String>, links: &Links) -> String {
    let outcome = match end {
        Ok(outcome) => outcome,
        Err(help) => return help.clone(),
    };
    let mut text = outcome.model_text().into_owned();
    let pending = outcome.error.as_ref().filter(|error| error.kind == ErrorKind::ApprovalRequired);
    if let Some(id) = pending.and_then(CallError::approval) {
        text.push_str(&format!("\nIt can be approved at {}", links.approval(id)));
    }
    text
}
