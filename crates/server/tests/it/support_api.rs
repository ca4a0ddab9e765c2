//! A server with a few tools, used through its router without a socket.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, Request},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolhub_core::{CallContext, ToolError, ToolHub, backend::Memory, dynamic, testing::scripted};
use toolhub_server::{Server, Settings};
use tower::ServiceExt;

/// Longer than any test takes; only a failing test waits this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A router, and the semaphores of its tools.
pub(crate) struct ApiFixture {
    pub(crate) hub: ToolHub,
    pub(crate) store: Arc<Memory>,
    pub(crate) router: axum::Router,
    /// The tool `slow` adds a permit to `started`, then waits for one of `release`.
    pub(crate) release: Arc<Semaphore>,
    pub(crate) started: Arc<Semaphore>,
    /// How often a call of `slow` was dropped.
    pub(crate) dropped: Arc<Semaphore>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    /// Its body.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Its body, if it has this status.
    #[track_caller]
    pub(crate) fn expect_status(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// The problem in it.
    #[track_caller]
    pub(crate) fn expect_problem(&self, status: u16, code: &str) -> Value {
        let body = self.expect_status(status);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], format!("/problems/{code}"));
        body
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

struct DropCounter(Arc<Semaphore>, bool);

impl Drop for DropCounter {
    fn drop(&mut self) {
        if !self.1 {
            self.0.add_permits(1);
        }
    }
}

/// The tools: `add` and `look` are read-only, `order` requires an approval, `slow` waits, `broken` fails, `rare` may be
/// called twice an hour, `report` depends on `look`.
pub(crate) async fn api_fixture() -> ApiFixture {
    let semaphore = || Arc::new(Semaphore::new(0));
    let (store, gate, began, dropped) = (Arc::new(Memory::default()), semaphore(), semaphore(), semaphore());
    let numbers = json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    let any = json!({"type": "object"});
    let add = dynamic("add", numbers, |given: Value, _: CallContext| async move {
        let sum = given["a"].as_i64().unwrap_or(0).checked_add(given["b"].as_i64().unwrap_or(0));
        sum.map(Value::from).ok_or_else(|| ToolError::refused("the sum is too large"))
    });
    let order = dynamic("order", any.clone(), |given: Value, _: CallContext| async move {
        Ok::<_, ToolError>(json!({"ordered": given["what"]}))
    });
    let (waits, begins, drops) = (gate.clone(), began.clone(), dropped.clone());
    let slow = dynamic("slow", any.clone(), move |_: Value, cx: CallContext| {
        let (gate, began, given) = (waits.clone(), begins.clone(), DropCounter(drops.clone(), false));
        async move {
            let mut given = given;
            cx.progress("half of it");
            began.add_permits(1);
            gate.acquire().await.map_err(|_| ToolError::new("the gate is gone"))?.forget();
            given.1 = true;
            Ok::<_, ToolError>(json!("done"))
        }
    });
    let broken = dynamic("broken", any.clone(), |_: Value, _: CallContext| async move {
        Err::<Value, _>(ToolError::new("the wire is cut"))
    });
    let rare = dynamic("rare", any, |_: Value, _: CallContext| async move { Ok::<_, ToolError>(json!(1)) });
    let (look, _) = scripted("look", []);
    let (report, _) = scripted("report", []);
    let hub = ToolHub::builder()
        .store(store.clone())
        .tool(add.description("Adds two numbers").read_only().tag("numbers"))
        .tool(order.description("Orders something").confirm())
        .tool(slow)
        .tool(broken)
        .tool(rare.rate_limit(toolhub_core::RateLimit::per_hour(2)))
        .tool(look.read_only())
        .tool(report.after("look"))
        .build()
        .await
        .unwrap();
    let router = Server::new(hub.clone(), store.clone(), settings()).router();
    ApiFixture { hub, store, router, release: gate, started: began, dropped }
}

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.port = 0;
    settings
}

impl ApiFixture {
    /// Sends a request, with an optional body and headers.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Reply {
        send(&self.router, method, path, body.map(|body| body.to_string()), headers).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, None, &[]).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path, Some(body), &[]).await
    }

    /// Opens an event stream.
    pub(crate) async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> EventReader {
        self.stream_request("GET", path, None, headers).await
    }

    /// Opens an event stream with another method or body.
    pub(crate) async fn stream_request(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
        headers: &[(&str, &str)],
    ) -> EventReader {
        read_stream(&self.router, build_request(method, path, body, headers)).await
    }
}

/// Opens an event stream of a router.
pub(crate) async fn open_stream(router: &axum::Router, path: &str, headers: &[(&str, &str)]) -> EventReader {
    read_stream(router, build_request("GET", path, None, headers)).await
}

async fn read_stream(router: &axum::Router, request: Request<Body>) -> EventReader {
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    EventReader { body: response.into_body(), text: String::new() }
}

/// An event stream.
pub(crate) struct EventReader {
    body: Body,
    text: String,
}

impl EventReader {
    /// The next event: its id, name and data; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some(at) = self.text.find("\n\n") {
                let block: String = self.text.drain(..at + 2).collect();
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                    line.unwrap_or_default().to_owned()
                };
                if block.contains("event: ") {
                    let data = serde_json::from_str(&field("data")).unwrap();
                    return Some((field("id"), field("event"), data));
                }
                assert!(block.starts_with(':') || block.contains("retry: 2000"), "{block}");
                continue;
            }
            let frame = tokio::time::timeout(TEST_TIMEOUT, self.body.frame()).await.expect("an event")?;
            self.text.push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
        }
    }

    /// The next raw block.
    pub(crate) async fn next_chunk(&mut self) -> Option<String> {
        let frame = self.body.frame().await?;
        Some(String::from_utf8(frame.unwrap().data_ref().unwrap().to_vec()).unwrap())
    }

    /// The next event with this name.
    pub(crate) async fn next_named(&mut self, name: &str) -> (String, Value) {
        loop {
            let (id, found, data) = self.next().await.expect("one more event");
            if found == name {
                return (id, data);
            }
        }
    }

    /// All events until the end.
    pub(crate) async fn collect_rest(mut self) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        while let Some((_, name, data)) = self.next().await {
            all.push((name, data));
        }
        all
    }
}

fn build_request(method: &str, path: &str, body: Option<String>, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.map_or_else(Body::empty, Body::from)).unwrap()
}

/// Sends a request to a router.
pub(crate) async fn send(
    router: &axum::Router,
    method: &str,
    path: &str,
    body: Option<String>,
    headers: &[(&str, &str)],
) -> Reply {
    let response = router.clone().oneshot(build_request(method, path, body, headers)).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = tokio::time::timeout(TEST_TIMEOUT, body.collect()).await.expect("an answer").unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Reply { status: parts.status.as_u16(), headers: parts.headers, text }
}
