//! The audit log: actions and denied requests, without secrets.

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode, header},
};
use serde_json::{Value, json};
use toolhub_server::{Scope, Server};

use crate::support_listener::{make_key, read_json, send_raw, settings_with_keys, test_hub};

async fn send_request(router: &Router, key: &str, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    let request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    let request = request.header(header::CONTENT_TYPE, "application/json").header("x-request-id", "job-7");
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    read_json(send_raw(router, request.body(body).unwrap()).await).await
}

#[tokio::test]
async fn acts_and_refusals_are_kept_the_latest_first_a_page_at_a_time() {
    let hub = test_hub().await;
    let (admin, text) = make_key("admin", "main", &[Scope::Admin]);
    let (reader, weak) = make_key("reader", "b", &[Scope::ToolsRead]);
    let router = Server::new(hub.hub, hub.store, settings_with_keys([admin, reader])).router();
    for n in 0..3 {
        let request_body = json!({"name": format!("ci-{n}"), "scopes": ["tools:read"]});
        assert_eq!(
            send_request(&router, &text, Method::POST, "/api/v1/keys?why=secret", request_body).await.0,
            StatusCode::CREATED
        );
    }
    assert_eq!(send_request(&router, &weak, Method::GET, "/api/v1/audit", Value::Null).await.0, StatusCode::FORBIDDEN);
    assert_eq!(send_request(&router, "x", Method::GET, "/api/v1/keys", Value::Null).await.0, StatusCode::UNAUTHORIZED);
    // Reads are not audited.
    assert_eq!(send_request(&router, &text, Method::GET, "/api/v1/keys", Value::Null).await.0, StatusCode::OK);

    let (mut entries, mut path) = (Vec::new(), "/api/v1/audit?limit=2".to_owned());
    loop {
        let (status, page) = send_request(&router, &text, Method::GET, &path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        entries.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["nextCursor"].as_str() else { break };
        path = format!("/api/v1/audit?limit=2&cursor={next}");
    }
    assert_eq!(entries.len(), 5, "{entries:?}");
    let acts = entries.iter().filter(|entry| entry["act"] == "key.create").collect::<Vec<_>>();
    assert_eq!(acts.len(), 3);
    for act in acts {
        assert_eq!((&act["who"], &act["status"], &act["path"]), (&json!("admin"), &json!(201), &json!("/api/v1/keys")));
        assert_eq!(act["request"], "job-7");
    }
    let denied = entries.iter().filter(|entry| entry["act"] == "denied").collect::<Vec<_>>();
    assert_eq!(denied.len(), 2);
    assert!(denied.iter().any(|entry| entry["via"] == "key" && entry["object"] == "audit"), "{denied:?}");
    assert!(denied.iter().any(|entry| entry["via"].is_null() && entry["object"] == "keys"), "{denied:?}");
    for (filter, expected) in [
        ("action=key.*", 3),
        ("action=denied", 2),
        ("principal=admin", 3),
        ("principal=reader", 1),
        ("object=keys", 4),
        ("object=aud*&action=denied", 1),
        ("action=nothing", 0),
        ("action=key.*&limit=2", 2),
    ] {
        let (_, page) =
            send_request(&router, &text, Method::GET, &format!("/api/v1/audit?{filter}"), Value::Null).await;
        assert_eq!(page["items"].as_array().map(Vec::len), Some(expected), "{filter}: {page}");
    }
    assert!(entries.is_sorted_by(|one, other| one["id"].as_str() > other["id"].as_str()));
    assert!(!format!("{entries:?}").contains("secret"));

    let at = entries[2]["at"].as_str().unwrap();
    let (_, later) = send_request(&router, &text, Method::GET, &format!("/api/v1/audit?since={at}"), Value::Null).await;
    let (_, before) =
        send_request(&router, &text, Method::GET, &format!("/api/v1/audit?until={at}"), Value::Null).await;
    let count = |page: &Value| page["items"].as_array().unwrap().len();
    assert_eq!(count(&later) + count(&before), 5);
    assert!(count(&later) >= 3);
    let (status, _) = send_request(&router, &text, Method::GET, "/api/v1/audit?since=yesterday", Value::Null).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn the_audit_is_kept_as_long_as_the_owner_says() {
    let hub = test_hub().await;
    let (admin, text) = make_key("admin", "main", &[Scope::Admin]);
    let mut settings = settings_with_keys([admin]);
    settings.audit_retention = std::time::Duration::ZERO;
    let router = Server::new(hub.hub, hub.store, settings).router();
    let request_body = json!({"name": "ci", "scopes": ["tools:read"]});
    assert_eq!(send_request(&router, &text, Method::POST, "/api/v1/keys", request_body).await.0, StatusCode::CREATED);
    let (_, page) = send_request(&router, &text, Method::GET, "/api/v1/audit", Value::Null).await;
    assert_eq!(page["items"], json!([]));
}

#[tokio::test]
async fn a_flood_of_refusals_does_not_fill_the_store() {
    let hub = test_hub().await;
    let (admin, text) = make_key("admin", "main", &[Scope::Admin]);
    let router = Server::new(hub.hub, hub.store, settings_with_keys([admin])).router();
    for _ in 0..500 {
        send_request(&router, "x", Method::GET, "/api/v1/keys", Value::Null).await;
    }
    let (_, page) = send_request(&router, &text, Method::GET, "/api/v1/audit?limit=500", Value::Null).await;
    let count = page["items"].as_array().unwrap().len();
    assert!((1..200).contains(&count), "{count} entries");
}
