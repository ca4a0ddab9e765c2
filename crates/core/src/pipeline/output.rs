//! Stage 13: limits the size of a tool's output.
//!
//! In: the reply and the tool's limits. Out: the reply, with text and structured output truncated to the limits, and without
//! binary content beyond them. The full version is saved as an artifact, and a note in the text names it.

use std::borrow::Cow;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use futures_core::future::BoxFuture;
use serde_json::Value;

use super::Done;
use crate::{
    artifact,
    execution::{CallEnvelope, Reply},
    offload,
    services::Services,
};
use toolhub_schema::schema;
use toolhub_types::{content::Content, policy::Limits};

/// Truncates what is too long. Returns a future only when an artifact must be saved, so that short replies do not pay
/// for it.
pub(super) fn limit<'a>(services: &'a Services, done: &'a mut Done) -> Option<BoxFuture<'a, ()>> {
    let Done { context, result, .. } = done;
    let (envelope, reply) = (context.envelope(), result.as_mut().ok()?);
    let oversized = find_oversized(reply, &envelope.tool.limits)?;
    Some(Box::pin(truncate(services, envelope, reply, oversized)))
}

/// Whether nothing has to be truncated.
pub(super) fn is_within_limits(reply: &Reply, limits: &Limits) -> bool {
    find_oversized(reply, limits).is_none()
}

/// The full versions of what is too long.
struct OversizedOutput {
    /// All text the model would see, if that is too long.
    text: Option<String>,
    /// The structured output as JSON, if that is too long.
    output: Option<String>,
    /// Whether the binary blocks are too long together.
    binary: bool,
}

fn find_oversized(reply: &Reply, limits: &Limits) -> Option<OversizedOutput> {
    // The usual reply is small, and that check must be cheap: it serializes nothing.
    let bound = json_bound(&reply.output);
    let (mut texts, mut binary) = (0, 0);
    for block in &reply.content {
        texts += block.model_text().map_or(0, |text| text.len());
        binary += block.binary().map_or(0, |(data, _)| data.len());
    }
    let shallow = schema::is_depth_within(&reply.output, MAX_DEPTH);
    let is_binary_oversized = binary > limits.output;
    if shallow && !is_binary_oversized && bound <= limits.output && bound.max(texts) <= limits.text {
        return None;
    }
    let output = Some(reply.output.to_string()).filter(|json| !shallow || json.len() > limits.output);
    let text = Some(model_text(reply)).filter(|text| text.chars().count() > limits.text);
    (text.is_some() || output.is_some() || is_binary_oversized).then_some(OversizedOutput {
        text,
        output,
        binary: is_binary_oversized,
    })
}

async fn truncate(services: &Services, envelope: &CallEnvelope, reply: &mut Reply, oversized: OversizedOutput) {
    // Without content pieces, the model's text is the output itself: one artifact holds both.
    let share_artifact = reply.content.is_empty() && oversized.output.is_some();
    let owner = (&envelope.call.tenant, envelope.artifact_class());
    let save = async |kind: &str, text: String| {
        artifact::save(&*services.store, owner, kind, text.into_bytes(), services.clock.now()).await
    };
    if let Some(text) = oversized.text {
        let limit = envelope.tool.limits.text;
        let head: String = text.chars().take(limit).collect();
        let more = format!("{} more characters", text.chars().count() - limit);
        let (artifact, note) =
            artifact_note(save(if share_artifact { JSON } else { "text/plain" }, text).await, &more, "the whole text");
        let others = reply.content.drain(..).filter(|piece| piece.model_text().is_none());
        reply.content = std::iter::once(Content::text(head + &note)).chain(others).chain(artifact).collect();
    }
    if let Some(json) = oversized.output {
        if reply.content.is_empty() {
            reply.content.push(Content::text(json.as_str()));
        }
        reply.output = Value::Null;
        if !share_artifact || !reply.content.iter().any(|piece| matches!(piece, Content::Artifact { .. })) {
            let (artifact, note) = artifact_note(save(JSON, json).await, "the structured output is too large", "it");
            reply.content.push(Content::text(note.trim_start()));
            reply.content.extend(artifact);
        }
    }
    if oversized.binary {
        move_binary(services, envelope, reply).await;
    }
}

/// Saves the binary blocks that do not fit into the limit, in order.
async fn move_binary(services: &Services, envelope: &CallEnvelope, reply: &mut Reply) {
    // The model reads the output as a block of its own, as before there were notes.
    if reply.content.iter().all(|block| block.model_text().is_none()) && !reply.output.is_null() {
        reply.content.insert(0, as_content(&reply.output));
    }
    let owner = (&envelope.call.tenant, envelope.artifact_class());
    let mut rest = envelope.tool.limits.output;
    for block in std::mem::take(&mut reply.content) {
        let size = block.binary().map_or(0, |(data, _)| data.len());
        if let Some(left) = rest.checked_sub(size) {
            rest = left;
            reply.content.push(block);
            continue;
        }
        let label = block.binary_label().unwrap_or_default();
        let (mime_type, bytes) = offload::run(size, move || decode(&block)).await;
        let saved = artifact::save(&*services.store, owner, &mime_type, bytes, services.clock.now()).await;
        let (artifact, note) = artifact_note(saved, &format!("{label} is too large"), "it");
        reply.content.push(Content::text(note.trim_start()));
        reply.content.extend(artifact);
    }
}

/// The bytes of a binary block and their type; data that is not base64 stays text.
fn decode(block: &Content) -> (String, Vec<u8>) {
    let (data, mime_type) = block.binary().unwrap_or_default();
    let padding = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    match GeneralPurpose::new(&STANDARD, padding).decode(data) {
        Ok(bytes) => (mime_type.to_owned(), bytes),
        Err(_) => ("text/plain".to_owned(), data.as_bytes().to_vec()),
    }
}

const JSON: &str = "application/json";
/// Deeper output is saved as text: many JSON parsers, ours among them, reject deeper nesting.
const MAX_DEPTH: usize = 100;

/// The artifact, if it was saved, and the note for the model about it.
fn artifact_note(artifact: Option<Content>, what: &str, whole: &str) -> (Option<Content>, String) {
    let note = match &artifact {
        Some(Content::Artifact { id, .. }) => format!("\n\n[{what}; {whole} is kept as artifact {id}]"),
        _ => format!("\n\n[{what}; {whole} could not be kept]"),
    };
    (artifact, note)
}

/// All text the model would see.
fn model_text(reply: &Reply) -> String {
    let texts: Vec<Cow<'_, str>> = reply.content.iter().filter_map(Content::model_text).collect();
    match (texts.is_empty(), &reply.output) {
        (false, _) => texts.join("\n"),
        (true, Value::String(text)) => text.clone(),
        (true, output) => output.to_string(),
    }
}

/// Adds content pieces; the first one keeps the output visible as a piece of its own.
pub(super) fn append_content(reply: &mut Reply, pieces: impl IntoIterator<Item = Content>) {
    for piece in pieces {
        if reply.content.is_empty() && !reply.output.is_null() {
            reply.content.push(as_content(&reply.output));
        }
        reply.content.push(piece);
    }
}

/// The output as a text piece.
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

/// An escaped character takes at most six bytes per input byte.
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
