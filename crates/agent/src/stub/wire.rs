//! What both wire formats share: a reply before it is rendered, and the HTTP response.

use std::{io, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;
use serde_json::Value;

use crate::{model::Usage, script::Conversation};

/// Characters per streamed chunk.
const CHUNK_CHARS: usize = 12;
/// Estimated characters per token.
const CHARS_PER_TOKEN: usize = 4;

/// A reply, before it is rendered in a provider's format.
#[derive(Debug)]
pub(super) struct Answer {
    /// A number that is unique for this server.
    pub(super) number: u64,
    /// The model name of the request.
    pub(super) model: String,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    pub(super) usage: Usage,
}

/// A requested call.
#[derive(Debug)]
pub(super) struct Call {
    /// The id without the provider's prefix.
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
    /// The arguments as text; truncated JSON for a `malformed` fault.
    pub(super) arguments_text: String,
    pub(super) malformed: bool,
}

impl Call {
    pub(super) fn new((id, tool, arguments): (String, String, Value), malformed: bool) -> Self {
        let mut arguments_text = arguments.to_string();
        if malformed {
            // Truncated JSON is the most common kind of malformed arguments.
            let end = arguments_text.char_indices().nth_back(1).map_or(0, |(end, _)| end);
            arguments_text.truncate(end.max(1));
        }
        Self { id, tool, arguments, arguments_text, malformed }
    }
}

/// A rendered response body.
#[derive(Debug)]
pub(super) enum RenderedAnswer {
    /// One JSON document.
    Document(Value),
    /// Server-sent events.
    Events(Vec<String>),
}

impl RenderedAnswer {
    /// The HTTP response; truncated in the middle for a `cut` fault.
    pub(super) fn into_response(self, cut: bool) -> Response {
        let (content_type, mut chunks) = match self {
            Self::Document(document) if !cut => return axum::Json(document).into_response(),
            Self::Document(document) => ("application/json", vec![document.to_string()]),
            Self::Events(events) => ("text/event-stream", events),
        };
        if cut {
            chunks.truncate(chunks.len().div_ceil(2));
            let last = chunks.last_mut().map(std::mem::take).unwrap_or_default();
            chunks.pop();
            chunks.push(last.chars().take(last.chars().count() / 2).collect());
        }
        let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk)));
        // An error in the body aborts the connection.
        let end = cut.then(|| Err(io::Error::other("truncated by the script")));
        // Yielding flushes after each chunk, so that chunks arrive separately, and the first half before the abort.
        let stream = futures_util::stream::iter(chunks.chain(end)).then(|chunk| async {
            tokio::task::yield_now().await;
            chunk
        });
        let body = Body::from_stream(stream);
        let content_type = HeaderValue::from_static(content_type);
        ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))], body)
            .into_response()
    }
}

/// An error response with a provider's error body.
pub(super) fn error_response(status: u16, body: Value, retry_after: Option<Duration>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, axum::Json(body)).into_response();
    if let Some(delay) = retry_after {
        // Whole seconds in the standard header, and milliseconds for clients that read them.
        let seconds = delay.as_millis().div_ceil(1000);
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, numeric_header(seconds));
        headers.insert("retry-after-ms", numeric_header(delay.as_millis()));
    }
    response
}

fn numeric_header(number: u128) -> HeaderValue {
    HeaderValue::from_str(&number.to_string()).unwrap_or_else(|_| HeaderValue::from_static("1"))
}

/// A text in chunks, as models stream it.
pub(super) fn split_chunks(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(CHUNK_CHARS).map(|chunk| chunk.iter().collect()).collect()
}

/// Estimates the token usage of a reply.
pub(super) fn estimate_usage(conversation: &Conversation, tools: &Value, text: &str, calls: &[Call]) -> Usage {
    let count = |chars: usize| u64::try_from(chars.div_ceil(CHARS_PER_TOKEN)).unwrap_or(u64::MAX);
    let messages = serde_json::to_string(&conversation.messages).unwrap_or_default();
    let tools = if tools.is_null() { 0 } else { tools.to_string().chars().count() };
    let input = conversation.system.chars().count() + messages.chars().count() + tools;
    let output =
        text.chars().count() + calls.iter().map(|call| call.tool.len() + call.arguments_text.len()).sum::<usize>();
    Usage { input_tokens: count(input), output_tokens: count(output).max(1) }
}
