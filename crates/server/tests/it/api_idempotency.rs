//! Idempotency keys: one effect and one response on every POST route.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolhub_core::{BoxFuture, StoreRole, ToolHub, backend::Memory};
use toolhub_server::{Backup, HostControl, HostControlError, ReloadReport, Server, Settings};

use crate::{
    support_api::send,
    support_state::{Reply, StateFixture, state_fixture},
};

/// Sends a request with an idempotency key.
async fn request_keyed(server: &StateFixture, who: &str, what: &str, body: Option<Value>) -> Reply {
    server.request(who, what, body, &[("idempotency-key", "\"k1\"")]).await
}

#[test]
fn every_post_takes_a_key_but_the_one_whose_answer_is_a_secret_and_messages_of_mcp() {
    let document = Server::openapi();
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(post) = item.get("post") else { continue };
        let takes =
            post["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "Idempotency-Key"));
        // A message of MCP has its key in `_meta`. The answer to a login has its cookie.
        let is_exempt = path == "/api/v1/keys" || path.starts_with("/mcp") || path.starts_with("/ui/");
        assert_eq!(takes, !is_exempt, "{path}");
        assert!(!takes || post["responses"].get("422").is_some() && post["responses"].get("400").is_some(), "{path}");
    }
}

#[tokio::test]
async fn a_thread_is_made_once_for_a_key() {
    let server = state_fixture().await;
    let first = request_keyed(&server, "ann", "POST /api/v1/threads", None).await;
    let replayed = request_keyed(&server, "ann", "POST /api/v1/threads", None).await;
    assert_eq!(first.expect_status(201), replayed.expect_status(201));
    assert_eq!((first.header("location"), first.header("idempotency-replayed")), (replayed.header("location"), ""));
    assert_eq!(
        (replayed.header("content-type"), replayed.header("idempotency-replayed")),
        ("application/json", "true")
    );
    assert_eq!(server.get("/api/v1/threads").await.items("id").len(), 1);
    // Without a key, every request is executed.
    server.request("ann", "POST /api/v1/threads", None, &[]).await.expect_status(201);
    assert_eq!(server.get("/api/v1/threads").await.items("id").len(), 2);
}

#[tokio::test]
async fn a_key_belongs_to_a_tenant_and_holds_for_one_request_of_one_caller() {
    let server = state_fixture().await;
    let first = request_keyed(&server, "ann", "POST /api/v1/threads", None).await.expect_status(201);
    let other = request_keyed(&server, "bob", "POST /api/v1/threads", None).await;
    assert_eq!((other.header("idempotency-replayed"), other.expect_status(201)["id"] == first["id"]), ("", false));
    for (who, body) in [("ann", Some(json!({"id": "t9"}))), ("caller", None)] {
        request_keyed(&server, who, "POST /api/v1/threads", body).await.expect_problem(422, "idempotency_key_reused");
    }
    // Keys are scoped by route.
    let elsewhere =
        request_keyed(&server, "ann", "POST /api/v1/tools/look/calls", Some(json!({"arguments": {}}))).await;
    assert_eq!((elsewhere.status, elsewhere.header("idempotency-replayed")), (200, ""));
    for wrong in ["\"", "", "ä"] {
        let refused = server.request("ann", "POST /api/v1/threads", None, &[("idempotency-key", wrong)]).await;
        refused.expect_problem(400, "idempotency_key_invalid");
    }
}

#[tokio::test]
async fn what_was_refused_may_be_tried_again_with_the_same_key() {
    let server = state_fixture().await;
    request_keyed(&server, "ann", "POST /api/v1/threads", Some(json!({"id": "a/b"})))
        .await
        .expect_problem(422, "invalid_request");
    request_keyed(&server, "ann", "POST /api/v1/threads", Some(json!({"id": "t1"}))).await.expect_status(201);
    assert_eq!(
        request_keyed(&server, "ann", "POST /api/v1/threads", Some(json!({"id": "t1"}))).await.expect_status(201)["id"],
        "t1"
    );
}

#[tokio::test]
async fn a_report_counts_once_and_a_rollback_is_made_once() {
    let server = state_fixture().await;
    server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await.expect_status(201);
    let failed = || Some(json!({"threadId": "t1", "error": {"message": "it broke"}}));
    for _ in 0..5 {
        let body = request_keyed(&server, "ann", "POST /api/v1/tools/look/reports", failed()).await.expect_status(200);
        assert_eq!((&body["status"], &body["consecutiveFailures"]), (&json!("available"), &json!(1)), "{body}");
    }
    let state = "/api/v1/state/contexts/t1%2Fcart/business";
    for number in 1..=3 {
        server.send_json(&format!("PUT {state}"), json!({"data": {"number": number}})).await;
    }
    let rollback = || {
        request_keyed(
            &server,
            "ann",
            "POST /api/v1/state/contexts/t1%2Fcart/business/rollback",
            Some(json!({"version": 1})),
        )
    };
    let (first, replayed) = (rollback().await, rollback().await);
    assert_eq!(
        (first.expect_status(200), first.header("etag")),
        (replayed.expect_status(200), replayed.header("etag"))
    );
    assert_eq!(server.get(state).await.expect_status(200)["version"], 4);
}

/// A host program whose backups and reloads finish when the test releases them.
#[derive(Default)]
struct SlowHost {
    started: Gate,
    release: Gate,
    finished: Gate,
}

struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Gate {
    fn open(&self) {
        self.0.add_permits(1);
    }

    async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

impl HostControl for SlowHost {
    fn config(&self) -> Value {
        Value::Null
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>> {
        Box::pin(async {
            self.started.open();
            self.release.pass().await;
            self.finished.open();
            Ok(ReloadReport::default())
        })
    }

    fn backup(&self, store: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        Box::pin(async move {
            self.started.open();
            self.release.pass().await;
            Ok(Backup { path: "/backups/1.db".into(), store, bytes: 1, sha256: "00".repeat(32) })
        })
    }
}

#[tokio::test]
async fn a_repetition_waits_for_nobody_and_what_was_begun_goes_on_without_its_client() {
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let host_control = Arc::new(SlowHost::default());
    let router = Server::with_host_control(hub, store, Settings::default(), host_control.clone()).router();
    let backup = || {
        let router = router.clone();
        async move { send(&router, "POST", "/api/v1/backups", None, &[("idempotency-key", "k1")]).await }
    };
    let first = tokio::spawn(backup());
    host_control.started.pass().await;
    backup().await.expect_problem(409, "idempotency_in_progress");
    // The client disconnects during the backup.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    host_control.release.open();
    let body = loop {
        let replayed = backup().await;
        if replayed.status != 409 {
            break replayed;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((body.header("idempotency-replayed"), &body.expect_status(201)["bytes"]), ("true", &json!(1)));
    assert_eq!(host_control.started.0.available_permits(), 0, "a second backup was made");
}

#[tokio::test]
async fn a_reload_goes_on_without_its_client() {
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let host_control = Arc::new(SlowHost::default());
    let router = Server::with_host_control(hub, store, Settings::default(), host_control.clone()).router();
    let reload = tokio::spawn(async move { send(&router, "POST", "/api/v1/reload", None, &[]).await });
    host_control.started.pass().await;
    reload.abort();
    assert!(reload.await.unwrap_err().is_cancelled());
    host_control.release.open();
    host_control.finished.pass().await;
}
