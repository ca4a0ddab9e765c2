//! Makes a reply of an answer.
//!
//! In: an answer whose body is still to be read. Out: JSON, text or an artifact, the part of it the owner wants; or the error an
//! unwelcome status is (`refusal.rs`).

use hyper::{HeaderMap, Method, header::CONTENT_TYPE};
use serde_json::{Value, json};
use toolhub_core::{CallContext, Content, Effect, ErrorKind, Reply, ToolError};

use super::{
    ResponseFormat,
    plan::Plan,
    request_error::RequestError,
    send::{OpenResponse, ReadLimit},
    status_error,
};

/// Reads an answer. `refused`: what has happened where it is a refusal.
pub(crate) async fn read(
    plan: &Plan,
    call: &CallContext,
    opened: OpenResponse,
    method: &Method,
    secrets: &[&str],
    refused: Effect,
) -> Result<Reply, RequestError> {
    let (status, headers) = (opened.status, opened.headers.clone());
    if !status.is_success() {
        return Err(tool_error(status_error::from_response(opened, secrets, call.now(), refused).await));
    }
    let most = ReadLimit { bytes: plan.max_response, decompressed: plan.max_unpacked, truncate: false };
    let body = opened.read(most).await?;
    if *method == Method::HEAD {
        return Ok(Reply::from(describe_head(status.as_u16(), &headers)));
    }
    let reply = match detect_kind(plan, &headers, &body) {
        BodyKind::Empty => Reply::from(Value::Null),
        BodyKind::Json => {
            let wrong = |error: serde_json::Error| {
                let text = format!("the answer is no JSON (line {}, column {})", error.line(), error.column());
                tool_error(ToolError::with_kind(ErrorKind::UpstreamError, text).hide_from_model().effect(Effect::Done))
            };
            Reply::from(serde_json::from_slice::<Value>(&body).map_err(wrong)?)
        }
        BodyKind::Text => Reply::from(Value::String(decode_text(&headers, &body))),
        BodyKind::Binary => store_artifact(call, &headers, body).await?,
    };
    match &plan.select {
        Some(pointer) => select(reply.output, pointer).map(Reply::from).map_err(tool_error),
        None => Ok(reply),
    }
}

fn tool_error(error: ToolError) -> RequestError {
    RequestError::Tool(Box::new(error))
}

enum BodyKind {
    Empty,
    Json,
    Text,
    Binary,
}

/// What a body is.
fn detect_kind(plan: &Plan, headers: &HeaderMap, body: &[u8]) -> BodyKind {
    let (kind, _) = content_type(headers);
    match plan.answer {
        _ if body.is_empty() => BodyKind::Empty,
        ResponseFormat::Json => BodyKind::Json,
        ResponseFormat::Text => BodyKind::Text,
        ResponseFormat::Binary => BodyKind::Binary,
        ResponseFormat::Auto if plan.select.is_some() || is_json(&kind) => BodyKind::Json,
        ResponseFormat::Auto if is_text(&kind) => BodyKind::Text,
        // Nobody says what it is; it is looked at.
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
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let mut parts = said.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_owned();
    let charset = parts.find_map(|part| part.strip_prefix("charset=")).map(|name| name.trim_matches('"').to_owned());
    (kind, charset)
}

fn is_json(kind: &str) -> bool {
    kind == "application/json" || kind.ends_with("+json") || kind == "text/json"
}

fn is_text(kind: &str) -> bool {
    let more = ["application/xml", "application/javascript", "application/yaml", "application/x-www-form-urlencoded"];
    // Lines of JSON are not one JSON.
    let lines = ["application/x-ndjson", "application/jsonl", "application/json-seq"];
    kind.starts_with("text/") || kind.ends_with("+xml") || more.contains(&kind) || lines.contains(&kind)
}

/// A body as text. Whatever is no letter in it becomes a question mark.
pub(crate) fn decode_text(headers: &HeaderMap, body: &[u8]) -> String {
    match content_type(headers).1.as_deref() {
        Some("iso-8859-1" | "latin1") => body.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(body).into_owned(),
    }
}

/// Keeps bytes as an artifact; what a model is shown is where they are.
async fn store_artifact(call: &CallContext, headers: &HeaderMap, body: Vec<u8>) -> Result<Reply, RequestError> {
    let kind = Some(content_type(headers).0).filter(|kind| kind.contains('/') && kind.len() <= 100);
    let kind = kind.unwrap_or_else(|| "application/octet-stream".into());
    let bytes = body.len();
    let lost = || tool_error(ToolError::new("The answer could not be kept.").uncounted().effect(Effect::Done));
    let kept = call.store_artifact(&kind, body).await.ok_or_else(lost)?;
    let Content::Artifact { id, .. } = &kept else { return Err(lost()) };
    let output = json!({"artifactId": id, "mimeType": kind, "bytes": bytes});
    Ok(Reply { content: vec![Content::text(output.to_string()), kept], output })
}

/// What there is to say about an answer without a body.
fn describe_head(status: u16, headers: &HeaderMap) -> Value {
    const REPORTED_HEADERS: [&str; 6] =
        ["content-type", "content-length", "last-modified", "etag", "expires", "cache-control"];
    let text = |name: &&str| Some(((*name).to_owned(), json!(headers.get(*name)?.to_str().ok()?)));
    let headers: serde_json::Map<String, Value> = REPORTED_HEADERS.iter().filter_map(text).collect();
    json!({"status": status, "headers": headers})
}

/// The part the owner wants.
fn select(mut output: Value, pointer: &str) -> Result<Value, ToolError> {
    if let Some(part) = output.pointer_mut(pointer) {
        return Ok(part.take());
    }
    // How far the pointer leads, and what is there instead.
    let mut at = pointer;
    let found = loop {
        at = &at[..at.rfind('/').unwrap_or(0)];
        if let Some(found) = output.pointer(at) {
            break found;
        }
    };
    let there = match found {
        Value::Object(members) => {
            let names: Vec<&str> = members.keys().take(10).map(String::as_str).collect();
            let more = if members.len() > 10 { ", …" } else { "" };
            format!("an object with {}{more}", if names.is_empty() { "no members".into() } else { names.join(", ") })
        }
        Value::Array(items) => format!("a list of {}", items.len()),
        _ => "a plain value".into(),
    };
    let place = if at.is_empty() { "the answer".into() } else { format!("`{at}`") };
    let why = format!("`select` = `{pointer}` leads nowhere: {place} is {there}");
    Err(ToolError::new("The answer does not have the part this tool gives back.")
        .with_cause(why)
        .uncounted()
        .effect(Effect::Done))
}
