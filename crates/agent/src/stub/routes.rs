//! HTTP routes of the scripted model, and its fault injection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::Uri,
    response::Response,
    routing::{get, post},
};
use serde_json::{Value, json};

use super::{
    RequestLogger, anthropic, openai,
    request::{self, ModelRequest, RequestError},
    wire::{self, Answer, Call, RenderedAnswer},
};
use crate::script::{Fault, Script};

/// Maximum size of a request body.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// A wire format.
#[derive(Clone, Copy)]
struct WireFormat {
    name: &'static str,
    parse: fn(&Value) -> Result<ModelRequest, RequestError>,
    render: fn(&Answer, &ModelRequest) -> RenderedAnswer,
    error_body: fn(u16, &str) -> Value,
}

const OPENAI: WireFormat =
    WireFormat { name: "openai", parse: request::parse_openai, render: openai::render, error_body: openai::error_body };
const ANTHROPIC: WireFormat = WireFormat {
    name: "anthropic",
    parse: request::parse_anthropic,
    render: anthropic::render,
    error_body: anthropic::error_body,
};

struct StubState {
    script: Script,
    /// How often each turn has injected its fault.
    fault_counts: Vec<AtomicU32>,
    next_number: AtomicU64,
    logger: Option<Arc<RequestLogger>>,
}

pub(super) fn routes(script: Script, logger: Option<Arc<RequestLogger>>) -> Router {
    let fault_counts = (0..script.turn_count()).map(|_| AtomicU32::new(0)).collect();
    let state = Arc::new(StubState { script, fault_counts, next_number: AtomicU64::new(1), logger });
    let completions =
        |State(state): State<Arc<StubState>>, body: Bytes| async move { state.answer(OPENAI, &body).await };
    let messages =
        |State(state): State<Arc<StubState>>, body: Bytes| async move { state.answer(ANTHROPIC, &body).await };
    Router::new()
        .route("/v1/chat/completions", post(completions))
        .route("/v1/messages", post(messages))
        .route("/v1/models", get(models))
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(state)
}

/// A model list with the fields of both providers: each client reads its own.
async fn models() -> Json<Value> {
    let model = json!({
        "id": "scripted", "object": "model", "created": 1_767_225_600, "owned_by": "toolhub",
        "type": "model", "display_name": "Scripted", "created_at": "2026-01-01T00:00:00Z",
    });
    Json(json!({"object": "list", "data": [model], "has_more": false, "first_id": "scripted", "last_id": "scripted"}))
}

async fn not_found(uri: Uri) -> Response {
    let detail = format!("no such path: {}; use /v1/chat/completions, /v1/messages or /v1/models", uri.path());
    wire::error_response(404, openai::error_body(404, &detail), None)
}

impl StubState {
    async fn answer(&self, wire: WireFormat, body: &[u8]) -> Response {
        let json = serde_json::from_slice(body).map_err(|_| RequestError("the body is not JSON".into()));
        let request = match json.and_then(|body: Value| (wire.parse)(&body)) {
            Ok(request) => request,
            Err(RequestError(reason)) => {
                self.log(&format!("{}: rejected: {reason}", wire.name));
                return wire::error_response(400, (wire.error_body)(400, &reason), None);
            }
        };
        let scripted = self.script.answer(&request.conversation);
        let fault = scripted.fault.filter(|fault| self.should_fault(scripted.turn, fault)).cloned().unwrap_or_default();
        self.log(&log_line(wire, &request, scripted.line, &scripted.calls, &fault));
        if let Some(time) = fault.slow {
            tokio::time::sleep(time).await;
        }
        if let Some(status) = fault.status {
            return wire::error_response(
                status,
                (wire.error_body)(status, "injected by the script"),
                fault.retry_after,
            );
        }
        let calls: Vec<Call> = scripted.calls.into_iter().map(|call| Call::new(call, fault.malformed)).collect();
        let usage = wire::estimate_usage(&request.conversation, &request.tools, &scripted.text, &calls);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let answer = Answer { number, model: request.model.clone(), text: scripted.text, calls, usage };
        (wire.render)(&answer, &request).into_response(fault.cut)
    }

    /// Whether to inject the fault; counts it if `times` limits it.
    fn should_fault(&self, turn: usize, fault: &Fault) -> bool {
        let Some(times) = fault.times else { return true };
        let count = |before: u32| (before < times).then_some(before + 1);
        self.fault_counts[turn].fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }

    fn log(&self, line: &str) {
        if let Some(logger) = &self.logger {
            logger(line);
        }
    }
}

/// The log line of a request, without message content.
fn log_line(
    wire: WireFormat,
    request: &ModelRequest,
    line: usize,
    calls: &[(String, String, Value)],
    fault: &Fault,
) -> String {
    let mode = if request.stream { "streamed" } else { "complete" };
    let turn = if line == 0 { "no turn matches".into() } else { format!("line {line}") };
    let mut text = format!("{}, {mode}, {} messages: {turn}", wire.name, request.conversation.messages.len());
    let tools: Vec<&str> = calls.iter().map(|(_, tool, _)| tool.as_str()).collect();
    if !tools.is_empty() {
        text += &format!(", calls {}", tools.join(", "));
    }
    let time = |time: Duration| format!("{time:?}");
    for (name, value) in [
        ("status", fault.status.map(|status| status.to_string())),
        ("slow", fault.slow.map(time)),
        ("cut", fault.cut.then(String::new)),
        ("malformed", fault.malformed.then(String::new)),
    ] {
        if let Some(value) = value {
            text += format!(", {name} {value}").trim_end();
        }
    }
    text
}
