//! Door 13: no more text than a model can bear. What is too long is kept as an artifact, and the text says so.

use futures_core::future::BoxFuture;
use serde_json::Value;

use super::Done;
use crate::{
    artifact,
    execution::{CallEnvelope, Reply},
    services::Services,
};
use toolhub_schema::schema;
use toolhub_types::{content::Content, policy::Limits};

/// Cuts what is too long. Waits only where something must be kept, so that short answers carry none of it.
pub(super) fn limit<'a>(services: &'a Services, done: &'a mut Done) -> Option<BoxFuture<'a, ()>> {
    let Done { context, result, .. } = done;
    let (envelope, reply) = (context.envelope(), result.as_mut().ok()?);
    let long = find_oversized(reply, &envelope.tool.limits)?;
    Some(Box::pin(truncate(services, envelope, reply, long)))
}

/// Whether nothing has to be cut.
pub(super) fn is_within_limits(reply: &Reply, limits: &Limits) -> bool {
    find_oversized(reply, limits).is_none()
}

/// What is too long, in full.
struct OversizedOutput {
    /// All text the model would be shown, if that is too much.
    text: Option<String>,
    /// The structured output as JSON, if that is too much.
    output: Option<String>,
}

fn find_oversized(reply: &Reply, limits: &Limits) -> Option<OversizedOutput> {
    // The usual answer is small, and knowing so must be cheap: no text is made for it.
    let bound = json_bound(&reply.output);
    let texts: usize = reply.content.iter().map(|piece| text_of(piece).map_or(0, str::len)).sum();
    let shallow = schema::is_depth_within(&reply.output, MAX_DEPTH);
    if shallow && bound <= limits.output && bound.max(texts) <= limits.text {
        return None;
    }
    let output = Some(reply.output.to_string()).filter(|json| !shallow || json.len() > limits.output);
    let text = Some(model_text(reply)).filter(|text| text.chars().count() > limits.text);
    (text.is_some() || output.is_some()).then_some(OversizedOutput { text, output })
}

async fn truncate(services: &Services, envelope: &CallEnvelope, reply: &mut Reply, long: OversizedOutput) {
    // Without pieces of its own, the text a model is shown is the output: one artifact holds both.
    let same = reply.content.is_empty() && long.output.is_some();
    let keep = async |kind: &str, text: String| {
        artifact::save(&*services.store, &envelope.call.tenant, kind, text.into_bytes(), services.clock.now()).await
    };
    if let Some(text) = long.text {
        let limit = envelope.tool.limits.text;
        let head: String = text.chars().take(limit).collect();
        let more = format!("{} more characters", text.chars().count() - limit);
        let (kept, note) =
            artifact_note(keep(if same { JSON } else { "text/plain" }, text).await, &more, "the whole text");
        let others = reply.content.drain(..).filter(|piece| text_of(piece).is_none());
        reply.content = std::iter::once(Content::text(head + &note)).chain(others).chain(kept).collect();
    }
    if let Some(json) = long.output {
        if reply.content.is_empty() {
            reply.content.push(Content::text(json.as_str()));
        }
        reply.output = Value::Null;
        if !same || !reply.content.iter().any(|piece| matches!(piece, Content::Artifact { .. })) {
            let (kept, note) = artifact_note(keep(JSON, json).await, "the structured output is too large", "it");
            reply.content.push(Content::text(note.trim_start()));
            reply.content.extend(kept);
        }
    }
}

const JSON: &str = "application/json";
/// Deeper output is kept as text: what is nested deeper than this, many readers of JSON refuse, ours among them.
const MAX_DEPTH: usize = 100;

/// What was kept, and the words that say so.
fn artifact_note(kept: Option<Content>, what: &str, whole: &str) -> (Option<Content>, String) {
    let note = match &kept {
        Some(Content::Artifact { id, .. }) => format!("\n\n[{what}; {whole} is kept as artifact {id}]"),
        _ => format!("\n\n[{what}; {whole} could not be kept]"),
    };
    (kept, note)
}

/// All text a model would be shown.
fn model_text(reply: &Reply) -> String {
    let texts: Vec<&str> = reply.content.iter().filter_map(text_of).collect();
    match (texts.is_empty(), &reply.output) {
        (false, _) => texts.join("\n"),
        (true, Value::String(text)) => text.clone(),
        (true, output) => output.to_string(),
    }
}

fn text_of(piece: &Content) -> Option<&str> {
    if let Content::Text { text } = piece { Some(text) } else { None }
}

/// Adds pieces to what a model is shown, beside the output.
pub(super) fn append_content(reply: &mut Reply, pieces: impl IntoIterator<Item = Content>) {
    for piece in pieces {
        if reply.content.is_empty() && !reply.output.is_null() {
            reply.content.push(as_content(&reply.output));
        }
        reply.content.push(piece);
    }
}

/// The output as a piece of text.
fn as_content(output: &Value) -> Content {
    match output {
        Value::String(text) => Content::text(text.as_str()),
        other => Content::text(other.to_string()),
    }
}

/// An upper bound of the length of a value's JSON text.
fn json_bound(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 25,
        Value::String(text) => escaped_bound(text),
        Value::Array(items) => 2 + items.iter().map(|item| json_bound(item) + 1).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(name, item)| escaped_bound(name) + json_bound(item) + 2).sum::<usize>()
        }
    }
}

/// A character takes at most six when it is escaped.
fn escaped_bound(text: &str) -> usize {
    text.len() * 6 + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_bound_is_never_below_the_real_length() {
        let awkward =
            json!({"a\u{1}": ["\u{0}\u{1f}\"\\", 1.7976931348623157e308, i64::MIN, u64::MAX, null, true], "": {}});
        for value in [awkward, json!([]), json!("é天"), json!(-0.0), json!([[], [[]], {}])] {
            assert!(json_bound(&value) >= value.to_string().len(), "{value}");
        }
    }
}
