//! The routes of the scripted model, and what goes wrong on purpose.

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
    Tell, anthropic, openai,
    read::{self, Asked, Refused},
    wire::{self, Answer, Call, Written},
};
use crate::script::{Fault, Script};

/// Longer conversations than this are for no script.
const LONGEST: usize = 32 * 1024 * 1024;

/// A wire format.
#[derive(Clone, Copy)]
struct Wire {
    name: &'static str,
    read: fn(&Value) -> Result<Asked, Refused>,
    write: fn(&Answer, &Asked) -> Written,
    failure: fn(u16, &str) -> Value,
}

const OPENAI: Wire = Wire { name: "openai", read: read::openai, write: openai::write, failure: openai::failure };
const ANTHROPIC: Wire =
    Wire { name: "anthropic", read: read::anthropic, write: anthropic::write, failure: anthropic::failure };

struct Room {
    script: Script,
    /// How often each turn went wrong.
    went_wrong: Vec<AtomicU32>,
    answers: AtomicU64,
    tell: Option<Arc<Tell>>,
}

pub(super) fn routes(script: Script, tell: Option<Arc<Tell>>) -> Router {
    let went_wrong = (0..script.turns()).map(|_| AtomicU32::new(0)).collect();
    let room = Arc::new(Room { script, went_wrong, answers: AtomicU64::new(1), tell });
    let completions = |State(room): State<Arc<Room>>, body: Bytes| async move { room.answer(OPENAI, &body).await };
    let messages = |State(room): State<Arc<Room>>, body: Bytes| async move { room.answer(ANTHROPIC, &body).await };
    Router::new()
        .route("/v1/chat/completions", post(completions))
        .route("/v1/messages", post(messages))
        .route("/v1/models", get(models))
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(room)
}

/// Both providers' lists in one: each client reads its own members.
async fn models() -> Json<Value> {
    let model = json!({
        "id": "scripted", "object": "model", "created": 1_767_225_600, "owned_by": "toolhub",
        "type": "model", "display_name": "Scripted", "created_at": "2026-01-01T00:00:00Z",
    });
    Json(json!({"object": "list", "data": [model], "has_more": false, "first_id": "scripted", "last_id": "scripted"}))
}

async fn nothing(uri: Uri) -> Response {
    let detail = format!("there is nothing at {}; try /v1/chat/completions, /v1/messages or /v1/models", uri.path());
    wire::failure(404, openai::failure(404, &detail), None)
}

impl Room {
    async fn answer(&self, wire: Wire, body: &[u8]) -> Response {
        let read = serde_json::from_slice(body).map_err(|_| Refused("the body is not JSON".into()));
        let asked = match read.and_then(|body: Value| (wire.read)(&body)) {
            Ok(asked) => asked,
            Err(Refused(reason)) => {
                self.tell(&format!("{}: refused: {reason}", wire.name));
                return wire::failure(400, (wire.failure)(400, &reason), None);
            }
        };
        let scripted = self.script.answer(&asked.conversation);
        let fault = scripted.fault.filter(|fault| self.goes_wrong(scripted.turn, fault)).cloned().unwrap_or_default();
        self.tell(&line(wire, &asked, scripted.line, &scripted.calls, &fault));
        if let Some(time) = fault.slow {
            tokio::time::sleep(time).await;
        }
        if let Some(status) = fault.status {
            return wire::failure(status, (wire.failure)(status, "on purpose: the script says so"), fault.retry_after);
        }
        let calls: Vec<Call> = scripted.calls.into_iter().map(|call| Call::new(call, fault.malformed)).collect();
        let usage = wire::usage(&asked.conversation, &asked.tools, &scripted.text, &calls);
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let answer = Answer { number, model: asked.model.clone(), text: scripted.text, calls, usage };
        (wire.write)(&answer, &asked).into_response(fault.cut)
    }

    /// Counts, where only the first few answers of a turn go wrong.
    fn goes_wrong(&self, turn: usize, fault: &Fault) -> bool {
        let Some(times) = fault.times else { return true };
        let count = |before: u32| (before < times).then_some(before + 1);
        self.went_wrong[turn].fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }

    fn tell(&self, line: &str) {
        if let Some(tell) = &self.tell {
            tell(line);
        }
    }
}

/// One request in one line, without what was said.
fn line(wire: Wire, asked: &Asked, line: usize, calls: &[(String, String, Value)], fault: &Fault) -> String {
    let how = if asked.stream { "streamed" } else { "whole" };
    let turn = if line == 0 { "no turn fits".into() } else { format!("line {line}") };
    let mut text = format!("{}, {how}, {} messages: {turn}", wire.name, asked.conversation.messages.len());
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
