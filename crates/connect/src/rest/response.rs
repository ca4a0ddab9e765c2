//! Converts a response to the reply of a call.
//!
//! In: a response whose body is still to be read. Out: JSON, text or an artifact, or the selected part of it; or the error of an
//! unsuccessful status (`status_error.rs`).

use hyper::{HeaderMap, Method, header::CONTENT_TYPE};
use serde_json::Value;
use toolhub_core::{
    CallContext, Content, Effect, ErrorKind, Reply, ToolError,
    json::{self, JsonError, JsonLimits},
    offload,
};

use super::{
    ResponseFormat,
    plan::Plan,
    request_error::RequestError,
    send::{OpenResponse, ReadLimit},
    status_error,
};
use crate::secret_mask::SecretMask;

/// Reads a response. `effect_on_refusal` is the effect to report if the service refused the request.
pub(crate) async fn read(
    plan: &Plan,
    call: &CallContext,
    response: OpenResponse,
    method: &Method,
    secrets: SecretMask,
    effect_on_refusal: Effect,
) -> Result<Reply, RequestError> {
    let (status, headers) = (response.status, response.headers.clone());
    if !status.is_success() {
        return Err(tool_error(status_error::from_response(response, &secrets, call.now(), effect_on_refusal).await));
    }
    let limit = ReadLimit { bytes: plan.max_response, decompressed: plan.max_unpacked, truncate: false };
    let body = response.read(limit).await?;
    if *method == Method::HEAD {
        return Ok(secrets.reply(Reply::from(describe_head(status.as_u16(), &headers))));
    }
    let expected = ExpectedBody { format: plan.response_format, is_selected: plan.select.is_some() };
    let (kind_headers, size) = (headers.clone(), body.len());
    let decode = move || {
        let mut decoded = decode(expected, &kind_headers, body)?;
        match &mut decoded {
            Decoded::Value(value) => secrets.value(value),
            Decoded::Binary(bytes) => secrets.bytes(bytes),
        }
        Ok(decoded)
    };
    let decoded = offload::run(size, decode).await;
    let reply = match decoded.map_err(|error| tool_error(json_error(&error)))? {
        Decoded::Value(value) => Reply::from(value),
        Decoded::Binary(bytes) => store_artifact(call, &headers, bytes).await?,
    };
    match &plan.select {
        Some(pointer) => select(reply.output, pointer).map(Reply::from).map_err(tool_error),
        None => Ok(reply),
    }
}

fn tool_error(error: ToolError) -> RequestError {
    RequestError::Tool(Box::new(error))
}

/// The error of a response that is not JSON, or too much of it.
fn json_error(error: &JsonError) -> ToolError {
    let text = match error {
        JsonError::Invalid(error) => {
            let text = format!("the response is not valid JSON (line {}, column {})", error.line(), error.column());
            return ToolError::with_kind(ErrorKind::UpstreamError, text).hide_from_model().effect(Effect::Done);
        }
        JsonError::TooManyValues { limit } => format!("The response has more than {limit} JSON values. Ask for less."),
        JsonError::TooDeep { limit } => format!("The response is nested deeper than {limit} levels."),
    };
    // It depends on the arguments, and does not count against the service.
    ToolError::new(text).uncounted().effect(Effect::Done)
}

/// What the tool says about the body of a response.
#[derive(Clone, Copy)]
struct ExpectedBody {
    format: ResponseFormat,
    /// Whether a part of it is selected, so that it must be JSON.
    is_selected: bool,
}

/// A body whose kind is known.
enum Decoded {
    Value(Value),
    Binary(Vec<u8>),
}

/// Decodes a body.
fn decode(expected: ExpectedBody, headers: &HeaderMap, body: Vec<u8>) -> Result<Decoded, JsonError> {
    Ok(match detect_kind(expected, headers, &body) {
        BodyKind::Empty => Decoded::Value(Value::Null),
        BodyKind::Json => Decoded::Value(json::parse(&body, JsonLimits::default())?),
        BodyKind::Text => Decoded::Value(Value::String(decode_text(headers, &body))),
        BodyKind::Binary => Decoded::Binary(body),
    })
}

enum BodyKind {
    Empty,
    Json,
    Text,
    Binary,
}

/// Determines the kind of a body.
fn detect_kind(expected: ExpectedBody, headers: &HeaderMap, body: &[u8]) -> BodyKind {
    let (kind, _) = content_type(headers);
    match expected.format {
        _ if body.is_empty() => BodyKind::Empty,
        ResponseFormat::Json => BodyKind::Json,
        ResponseFormat::Text => BodyKind::Text,
        ResponseFormat::Binary => BodyKind::Binary,
        ResponseFormat::Auto if expected.is_selected || is_json(&kind) => BodyKind::Json,
        ResponseFormat::Auto if is_text(&kind) => BodyKind::Text,
        // No content type: sniff the body.
        ResponseFormat::Auto if kind.is_empty() => match std::str::from_utf8(body) {
            Ok(text) if text.trim_start().starts_with(['{', '[']) && is_valid_json(text) => BodyKind::Json,
            Ok(_) => BodyKind::Text,
            Err(_) => BodyKind::Binary,
        },
        ResponseFormat::Auto => BodyKind::Binary,
    }
}

fn is_valid_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// The content type, and its charset.
fn content_type(headers: &HeaderMap) -> (String, Option<String>) {
    let header =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let mut parts = header.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_owned();
    let charset = parts.find_map(|part| part.strip_prefix("charset=")).map(|name| name.trim_matches('"').to_owned());
    (kind, charset)
}

fn is_json(kind: &str) -> bool {
    kind == "application/json" || kind.ends_with("+json") || kind == "text/json"
}

fn is_text(kind: &str) -> bool {
    let textual =
        ["application/xml", "application/javascript", "application/yaml", "application/x-www-form-urlencoded"];
    // Sequences of JSON values are not one JSON value.
    let json_sequences = ["application/x-ndjson", "application/jsonl", "application/json-seq"];
    kind.starts_with("text/") || kind.ends_with("+xml") || textual.contains(&kind) || json_sequences.contains(&kind)
}

/// Decodes a body to text. Invalid bytes become U+FFFD.
pub(crate) fn decode_text(headers: &HeaderMap, body: &[u8]) -> String {
    match content_type(headers).1.as_deref() {
        Some("iso-8859-1" | "latin1") => body.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(body).into_owned(),
    }
}

/// Stores bytes as an artifact; the model is shown a reference to it.
async fn store_artifact(call: &CallContext, headers: &HeaderMap, body: Vec<u8>) -> Result<Reply, RequestError> {
    let failed = || tool_error(ToolError::new("The response could not be stored.").uncounted().effect(Effect::Done));
    let artifact = call.store_artifact(&content_type(headers).0, body).await.ok_or_else(failed)?;
    let Content::Artifact { id, mime_type, bytes } = &artifact else { return Err(failed()) };
    let output = serde_json::json!({"artifactId": id, "mimeType": mime_type, "bytes": bytes});
    Ok(Reply { content: vec![Content::text(output.to_string()), artifact], output })
}

/// The output of a HEAD request: status and headers.
fn describe_head(status: u16, headers: &HeaderMap) -> Value {
    const REPORTED_HEADERS: [&str; 6] =
        ["content-type", "content-length", "last-modified", "etag", "expires", "cache-control"];
    let text = |name: &&str| Some(((*name).to_owned(), serde_json::json!(headers.get(*name)?.to_str().ok()?)));
    let headers: serde_json::Map<String, Value> = REPORTED_HEADERS.iter().filter_map(text).collect();
    serde_json::json!({"status": status, "headers": headers})
}

/// The selected part of the output.
fn select(mut output: Value, pointer: &str) -> Result<Value, ToolError> {
    if let Some(part) = output.pointer_mut(pointer) {
        return Ok(part.take());
    }
    // Find the longest prefix of the pointer that exists, and describe the value there.
    let mut prefix = pointer;
    let found = loop {
        prefix = &prefix[..prefix.rfind('/').unwrap_or(0)];
        if let Some(found) = output.pointer(prefix) {
            break found;
        }
    };
    let description = match found {
        Value::Object(members) => {
            let names: Vec<&str> = members.keys().take(10).map(String::as_str).collect();
            let ellipsis = if members.len() > 10 { ", …" } else { "" };
            format!(
                "an object with {}{ellipsis}",
                if names.is_empty() { "no members".into() } else { names.join(", ") }
            )
        }
        Value::Array(items) => format!("a list of {}", items.len()),
        _ => "a scalar".into(),
    };
    let place = if prefix.is_empty() { "the response".into() } else { format!("`{prefix}`") };
    let cause = format!("`select` = `{pointer}` does not exist: {place} is {description}");
    Err(ToolError::new("The response does not contain the part that this tool returns.")
        .with_cause(cause)
        .uncounted()
        .effect(Effect::Done))
}
