//! The server itself: information, config, reloads and backups.

use std::sync::Arc;

use serde_json::json;
use toolhub_core::{ToolHub, backend::Memory};
use toolhub_server::{HostControlError, Server, Settings};
use tower::ServiceExt;

use crate::support_state::{bad_config, state_fixture};

#[tokio::test]
async fn whoever_asks_is_told_what_the_server_is_and_what_they_may() {
    let server = state_fixture().await;
    let info = server.request("ann", "GET /api/v1/info", None, &[]).await.expect_status(200);
    assert_eq!((&info["tools"], &info["tenant"], &info["caller"]), (&json!(6), &json!("a"), &json!("ann")));
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(!info["scopes"].as_array().unwrap().contains(&json!("admin")), "{info}");
    let features = ["event_rate", "metrics_tick", "host_control", "mcp_endpoint", "metrics", "ui"];
    assert_eq!(info["features"], json!(features));
    server.request("caller", "GET /api/v1/info", None, &[]).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn config_reload_and_backup_are_for_admins() {
    let server = state_fixture().await;
    for what in ["GET /api/v1/config", "POST /api/v1/reload", "POST /api/v1/backups"] {
        server.request("ann", what, None, &[]).await.expect_problem(403, "forbidden");
        server.request("nobody", what, None, &[]).await.expect_problem(401, "unauthenticated");
    }
    let boss = async |what: &str| server.request("boss", what, None, &[]).await;
    assert_eq!(boss("GET /api/v1/config").await.expect_status(200)["secret"], "••••");
    assert_eq!(boss("GET /api/v1/config?origins=false").await.expect_status(200)["secret"], "••••");
    let value = json!({"key": "server.port", "value": 8665, "source": "file", "origin": "toolhub.toml:3"});
    assert_eq!(boss("GET /api/v1/config?origins=true").await.expect_status(200), json!({ "items": [value] }));
    boss("GET /api/v1/config?origins=all").await.expect_problem(422, "invalid_request");
    boss("GET /api/v1/config?origin=true").await.expect_problem(422, "invalid_request");
    let reloaded = boss("POST /api/v1/reload").await.expect_status(200);
    assert_eq!(
        reloaded,
        json!({"added": ["new"], "replaced": [], "removed": [], "sections": [], "needsRestart": ["server.port"]})
    );
    let of_the_hub = boss("POST /api/v1/backups").await.expect_status(201);
    assert_eq!((&of_the_hub["path"], &of_the_hub["store"]), (&json!("/backups/1.db"), &json!("hub")));
    assert_eq!(boss("POST /api/v1/backups?store=state").await.expect_status(201)["store"], "state");
    boss("POST /api/v1/backups?store=disk").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_bad_config_is_refused_with_all_its_problems() {
    let server = state_fixture().await;
    *server.host.next.lock().unwrap() = Some(bad_config());
    let problem = server.request("boss", "POST /api/v1/reload", None, &[]).await.expect_problem(422, "config_invalid");
    let errors = problem["errors"].as_array().unwrap();
    let pointers: Vec<_> = errors.iter().map(|error| error["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/server/port", "/tools/a~1b"]);
    assert_eq!((&errors[0]["place"], &errors[0]["hint"]), (&json!("toolhub.toml:3:8"), &json!("write it so")));
}

#[tokio::test]
async fn what_a_steward_cannot_do_is_said() {
    let server = state_fixture().await;
    *server.host.next.lock().unwrap() = Some(HostControlError::Failed("the disk is full".into()));
    let problem = server.request("boss", "POST /api/v1/backups", None, &[]).await.expect_problem(500, "not_done");
    assert_eq!(problem["detail"], "the disk is full");
    *server.host.next.lock().unwrap() = Some(HostControlError::Unsupported("a store in memory has no backups".into()));
    server.request("boss", "POST /api/v1/backups", None, &[]).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_server_without_a_steward_says_so() {
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let router = Server::new(hub, store, Settings::default()).router();
    for (method, path) in [("GET", "config"), ("POST", "reload"), ("POST", "backups")] {
        let request = axum::http::Request::builder().method(method).uri(format!("/api/v1/{path}"));
        let request = request.header("host", "localhost").body(axum::body::Body::empty()).unwrap();
        assert_eq!(router.clone().oneshot(request).await.unwrap().status(), 404, "{path}");
    }
}
