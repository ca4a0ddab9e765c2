//! Secrets in every part of a request, searched for in logs, rows, events and responses.

use std::{cell::RefCell, fmt, fmt::Write as _};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, header},
};
use serde_json::{Value, json};
use toolhub_core::{
    backend::{Backend, Scan, Scope as Whose, Table},
    clock::Timestamp,
    ids::Tenant,
};
use toolhub_server::{Scope, Server};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::support_listener::{make_key, read_json, send_raw, settings_with_keys, test_hub};

thread_local! {
    static CAPTURED_LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Captures all `tracing` events of this thread. The subscriber is global: with a thread-local one, a callsite that
/// another thread registered first, without a subscriber, would stay disabled.
struct CapturingSubscriber;

struct FieldVisitor(String);

impl Visit for FieldVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

fn append_line(record: impl FnOnce(&mut FieldVisitor)) {
    let mut line = FieldVisitor(String::new());
    record(&mut line);
    CAPTURED_LOG.with_borrow_mut(|log| *log += &(line.0 + "\n"));
}

impl Subscriber for CapturingSubscriber {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        append_line(|line| span.record(line));
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        append_line(|line| values.record(line));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        append_line(|line| event.record(line));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

async fn send_request(router: &Router, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> String {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let response = send_raw(router, request.header("content-type", "application/json").body(body).unwrap()).await;
    let headers = format!("{:?}", response.headers());
    let (status, body) = read_json(response).await;
    format!("{status} {headers} {body}")
}

#[tokio::test]
async fn planted_secrets_are_nowhere_to_be_found() {
    tracing::subscriber::set_global_default(CapturingSubscriber).unwrap();
    let hub = test_hub().await;
    let (admin, text) = make_key("admin", "main", &[Scope::Admin]);
    let router = Server::new(hub.hub.clone(), hub.store.clone(), settings_with_keys([admin])).router();
    let secret = text.rsplit('_').next().unwrap().to_owned();
    let bearer = format!("Bearer {text}");
    let bad = format!("Bearer thk_{}_CANARYbadkey{}", "a".repeat(12), "b".repeat(31));

    let mut responses = String::new();
    let call = json!({"arguments": {"said": "hello", "password": "CANARY-argument", "apiToken": "CANARY-token"}});
    for key in [bearer.as_str(), bad.as_str(), "Basic CANARY-basic", ""] {
        let headers = [
            ("authorization", key),
            ("cookie", "session=CANARY-cookie"),
            ("x-api-key", "CANARY-header"),
            ("traceparent", "00-CANARY-trace"),
            ("x-request-id", "CANARY header with spaces"),
        ];
        for path in [
            "/api/v1/info?token=CANARY-query",
            "/api/v1/keys?token=CANARY-query",
            "/nowhere?token=CANARY-query",
            "/metrics?token=CANARY-query",
            "/readyz?verbose=CANARY-query",
        ] {
            responses += &send_request(&router, Method::GET, path, &headers, &Value::Null).await;
        }
        let path = "/api/v1/tools/echo/calls?token=CANARY-query";
        // The response of `echo` contains its arguments by design, so it is not searched.
        let _ = send_request(&router, Method::POST, path, &headers, &call).await;
        let _ = send_request(&router, Method::POST, "/api/v1/tools/echo/calls", &headers, &call).await;
        let broken = json!({"arguments": {"said": 1}, "CANARYmember": "CANARY-value", "token": "CANARY-value"});
        let refused = send_request(&router, Method::POST, "/api/v1/tools/echo/calls", &headers, &broken).await;
        assert!(!refused.contains("CANARY-value"), "{refused}");
    }
    responses += &send_request(&router, Method::GET, "/metrics", &[("authorization", &bearer)], &Value::Null).await;
    responses +=
        &send_request(&router, Method::GET, "/api/v1/audit", &[("authorization", &bearer)], &Value::Null).await;
    responses += &send_request(&router, Method::GET, "/api/v1/keys", &[("authorization", &bearer)], &Value::Null).await;
    assert!(responses.contains("toolhub_http_requests_total") && responses.contains("denied"));

    let mut stored = String::new();
    for table in [Table::Audit, Table::Keys] {
        let rows = hub.store.scan(Scan::new(table, Whose::All), Timestamp::default()).await.unwrap().rows;
        rows.iter().for_each(|(key, row)| stored += &format!("{} {}", key.id, String::from_utf8_lossy(&row.value)));
    }
    let events = hub.hub.events_since(&Tenant::default(), 0).await.unwrap();
    stored += &serde_json::to_string(&events).unwrap();
    let log = CAPTURED_LOG.with_borrow(String::clone);
    assert!(log.contains("route=") && log.contains("status=401"), "{log}");
    for (place, text) in [("answers", &responses), ("rows and events", &stored), ("log", &log)] {
        for planted in ["CANARY", secret.as_str()] {
            let around = text.find(planted).map(|at| &text[at.saturating_sub(200)..(at + 100).min(text.len())]);
            assert_eq!(around, None, "in {place}");
        }
    }
}
