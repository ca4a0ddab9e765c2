//! What both wire formats have in common: an answer before it is written, and bytes on their way.

use std::{io, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;
use serde_json::Value;

use crate::{model::Usage, script::Conversation};

/// So many letters are sent at once.
const CHUNK_CHARS: usize = 12;
/// About so many letters make a token.
const CHARS_PER_TOKEN: usize = 4;

/// An answer, before it is written in a provider's words.
#[derive(Debug)]
pub(super) struct Answer {
    /// A number that no other answer of this server has.
    pub(super) number: u64,
    /// The model, as it was asked for.
    pub(super) model: String,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    pub(super) usage: Usage,
}

/// A call that is asked for.
#[derive(Debug)]
pub(super) struct Call {
    /// Without what the provider puts before it.
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
    /// The arguments as text; no JSON where that is wanted.
    pub(super) arguments_text: String,
    pub(super) malformed: bool,
}

impl Call {
    pub(super) fn new((id, tool, arguments): (String, String, Value), malformed: bool) -> Self {
        let mut written = arguments.to_string();
        if malformed {
            // Cut before its end it is the most usual sort of broken.
            let end = written.char_indices().nth_back(1).map_or(0, |(at, _)| at);
            written.truncate(end.max(1));
        }
        Self { id, tool, arguments, arguments_text: written, malformed }
    }
}

/// What goes out of the door.
#[derive(Debug)]
pub(super) enum RenderedAnswer {
    /// One document.
    Document(Value),
    /// Events, ready to be sent.
    Events(Vec<String>),
}

impl RenderedAnswer {
    /// The answer; cut in the middle where that is wanted.
    pub(super) fn into_response(self, cut: bool) -> Response {
        let (kind, mut pieces) = match self {
            Self::Document(document) if !cut => return axum::Json(document).into_response(),
            Self::Document(document) => ("application/json", vec![document.to_string()]),
            Self::Events(events) => ("text/event-stream", events),
        };
        if cut {
            pieces.truncate(pieces.len().div_ceil(2));
            let last = pieces.last_mut().map(std::mem::take).unwrap_or_default();
            pieces.pop();
            pieces.push(last.chars().take(last.chars().count() / 2).collect());
        }
        let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from(piece)));
        // An error in a body closes the connection before its end.
        let end = cut.then(|| Err(io::Error::other("cut on purpose")));
        // Between two pieces what was said is sent: so they arrive as pieces, and the first half before the cut.
        let sent = futures_util::stream::iter(pieces.chain(end)).then(|piece| async {
            tokio::task::yield_now().await;
            piece
        });
        let body = Body::from_stream(sent);
        let kind = HeaderValue::from_static(kind);
        ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))], body)
            .into_response()
    }
}

/// An error in a provider's own shape.
pub(super) fn error_response(status: u16, body: Value, retry_after: Option<Duration>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = (status, axum::Json(body)).into_response();
    if let Some(wait) = retry_after {
        // Whole seconds for everybody, and what was meant for those who read it.
        let seconds = wait.as_millis().div_ceil(1000);
        let headers = answer.headers_mut();
        headers.insert(header::RETRY_AFTER, numeric_header(seconds));
        headers.insert("retry-after-ms", numeric_header(wait.as_millis()));
    }
    answer
}

fn numeric_header(number: u128) -> HeaderValue {
    HeaderValue::from_str(&number.to_string()).unwrap_or_else(|_| HeaderValue::from_static("1"))
}

/// A text in pieces, as models say it.
pub(super) fn split_chunks(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(CHUNK_CHARS).map(|piece| piece.iter().collect()).collect()
}

/// What an answer costs, roughly.
pub(super) fn estimate_usage(asked: &Conversation, tools: &Value, text: &str, calls: &[Call]) -> Usage {
    let count = |letters: usize| u64::try_from(letters.div_ceil(CHARS_PER_TOKEN)).unwrap_or(u64::MAX);
    let said = serde_json::to_string(&asked.messages).unwrap_or_default();
    let tools = if tools.is_null() { 0 } else { tools.to_string().chars().count() };
    let input = asked.system.chars().count() + said.chars().count() + tools;
    let output =
        text.chars().count() + calls.iter().map(|call| call.tool.len() + call.arguments_text.len()).sum::<usize>();
    Usage { input_tokens: count(input), output_tokens: count(output).max(1) }
}
