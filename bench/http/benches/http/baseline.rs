//! The baseline: a bare axum server with one handler that reads and writes the same JSON.

use axum::{Json, Router, extract::Path, routing::post};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::load::{self, Target};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CallRequest {
    arguments: Map<String, Value>,
    thread_id: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallResponse {
    id: String,
    tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    status: &'static str,
    output: Value,
    content: Vec<Value>,
    attempts: u32,
    effect: &'static str,
    cached: bool,
    replayed: bool,
    queued_ms: u64,
    duration_ms: f64,
    started_at: &'static str,
    ended_at: &'static str,
    approval: Option<String>,
}

async fn call(Path(tool): Path<String>, Json(request): Json<CallRequest>) -> Json<CallResponse> {
    let number = |name: &str| request.arguments.get(name).and_then(Value::as_i64).unwrap_or(0);
    let output = json!({"sum": number("a") + number("b")});
    let content = vec![json!({"type": "text", "text": output.to_string()})];
    Json(CallResponse {
        id: "call_0193a5c4-7d1e-7c3a-9a55-1f2e3d4c5b6a".into(),
        tool,
        thread_id: request.thread_id,
        status: "success",
        output,
        content,
        attempts: 1,
        effect: "none",
        cached: false,
        replayed: false,
        queued_ms: 0,
        duration_ms: 0.01,
        started_at: "2026-01-01T12:00:00.000Z",
        ended_at: "2026-01-01T12:00:00.000Z",
        approval: None,
    })
}

pub(crate) async fn start() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/api/v1/tools/{name}/calls", post(call));
    tokio::spawn(async move {
        use axum::serve::ListenerExt;
        axum::serve(listener.tap_io(|tcp| drop(tcp.set_nodelay(true))), router).await.unwrap();
    });
    let request = load::request(None);
    let body_len = load::probe(address, &request).await;
    Target { name: "bare axum", address, request, body_len, min_rate_ratio: None, max_p99_ratio: None }
}
