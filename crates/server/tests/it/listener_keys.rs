//! Keys created through the API: shown once, stored as a digest, revoked immediately.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode, header},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use toolhub_core::{
    backend::{Backend, Memory, Scan, Scope as Whose, Table},
    clock::Timestamp,
};
use toolhub_server::{Scope, Server};

use crate::support_listener::{TEST_TIMEOUT, make_key, read_json, send_raw, settings_with_keys, test_hub};

async fn send_request(
    router: &Router,
    key: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    let request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    read_json(send_raw(router, request.body(body).unwrap()).await).await
}

/// Two servers on one store, and the admin key.
async fn two_servers() -> (Router, Router, Arc<Memory>, String) {
    let store = Arc::new(Memory::default());
    let (admin, text) = make_key("admin", "main", &[Scope::Admin]);
    let mut routers = Vec::new();
    for _ in 0..2 {
        let server = Server::new(test_hub().await.hub, store.clone(), settings_with_keys([admin.clone()]));
        routers.push(server.router());
    }
    let other = routers.pop().unwrap();
    (routers.pop().unwrap(), other, store, text)
}

#[tokio::test]
async fn a_key_is_shown_once_kept_as_a_digest_and_opens_what_it_says() {
    let (router, _, store, admin) = two_servers().await;
    let request_body =
        json!({"name": "ci", "tenant": "b", "scopes": ["tools:call", "tools:read", "tools:read"], "expiresIn": "30d"});
    let (status, created) =
        send_request(&router, &admin, Method::POST, "/api/v1/keys", Some(request_body.clone())).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let text = created["key"].as_str().unwrap().to_owned();
    assert!(text.starts_with("thk_") && text.len() > 50);
    assert_eq!((&created["tenant"], &created["scopes"]), (&json!("b"), &json!(["tools:read", "tools:call"])));
    let rows = store.scan(Scan::new(Table::Keys, Whose::All), Timestamp::default()).await.unwrap().rows;
    assert_eq!(rows.len(), 1);
    assert!(!String::from_utf8_lossy(&rows[0].1.value).contains(text.rsplit('_').next().unwrap()));

    let (status, info) = send_request(&router, &text, Method::GET, "/api/v1/info", None).await;
    assert_eq!((status, &info["tenant"], &info["caller"]), (StatusCode::OK, &json!("b"), &json!("ci")));
    let (status, _) = send_request(&router, &text, Method::GET, "/api/v1/keys", None).await;
    assert_eq!(status, StatusCode::FORBIDDEN);

    let (_, list) = send_request(&router, &admin, Method::GET, "/api/v1/keys", None).await;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|key| key["name"].clone()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&json!("ci")) && names.contains(&json!("admin")));
    assert!(!list.to_string().contains("hash") && !list.to_string().contains(&text));
    let ci = list["items"].as_array().unwrap().iter().find(|key| key["name"] == "ci").unwrap();
    assert!(ci["lastUsedAt"].is_string() && ci["createdBy"] == "admin", "{ci}");

    let (status, problem) = send_request(&router, &admin, Method::POST, "/api/v1/keys", Some(request_body)).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("conflict")));
    for wrong in [
        json!({"name": "x", "scopes": []}),
        json!({"name": "x", "scopes": ["root"]}),
        json!({"name": "", "scopes": ["admin"]}),
        json!({"name": "x", "tenant": "a b", "scopes": ["admin"]}),
        json!({"name": "x", "scopes": ["admin"], "expiresIn": "soon"}),
        json!({"name": "x", "scopes": ["admin"], "expiresIn": "0s"}),
        json!({"name": "x", "scopes": ["admin"], "hash": "sha256:00"}),
    ] {
        let (status, problem) = send_request(&router, &admin, Method::POST, "/api/v1/keys", Some(wrong.clone())).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}: {problem}");
    }
}

#[tokio::test]
async fn a_key_that_was_taken_back_opens_nothing_here_at_once_and_elsewhere_soon() {
    let (first, second, _, admin) = two_servers().await;
    let request_body = json!({"name": "ci", "scopes": ["tools:read"]});
    let (_, created) = send_request(&first, &admin, Method::POST, "/api/v1/keys", Some(request_body)).await;
    let (text, id) = (created["key"].as_str().unwrap(), created["id"].as_str().unwrap());
    for router in [&first, &second] {
        assert_eq!(send_request(router, text, Method::GET, "/api/v1/info", None).await.0, StatusCode::OK);
    }
    let path = format!("/api/v1/keys/{id}");
    assert_eq!(send_request(&first, &admin, Method::DELETE, &path, None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(send_request(&first, text, Method::GET, "/api/v1/info", None).await.0, StatusCode::UNAUTHORIZED);
    tokio::time::timeout(TEST_TIMEOUT, async {
        while send_request(&second, text, Method::GET, "/api/v1/info", None).await.0 != StatusCode::UNAUTHORIZED {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the other server sees the change");
    assert_eq!(send_request(&first, &admin, Method::DELETE, &path, None).await.0, StatusCode::NOT_FOUND);
    let (status, problem) = send_request(&first, &admin, Method::DELETE, "/api/v1/keys/config:admin", None).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("conflict")));
}

#[tokio::test]
async fn a_listener_whose_key_was_taken_back_hears_nothing_more() {
    let (router, _, _, admin) = two_servers().await;
    let request_body = json!({"name": "ci", "scopes": ["tools:read"]});
    let (_, created) = send_request(&router, &admin, Method::POST, "/api/v1/keys", Some(request_body)).await;
    let request = Request::builder().uri("/api/v1/events").header(header::HOST, "localhost");
    let request = request.header(header::AUTHORIZATION, format!("Bearer {}", created["key"].as_str().unwrap()));
    let mut events = send_raw(&router, request.body(Body::empty()).unwrap()).await.into_body().into_data_stream();
    let mut next = async || tokio::time::timeout(TEST_TIMEOUT, events.next()).await.expect("an event, or the end");
    let call = || send_request(&router, &admin, Method::POST, "/api/v1/tools/echo/calls", Some(json!({})));
    call().await;
    assert!(next().await.unwrap().unwrap().starts_with(b"retry"));
    while !next().await.unwrap().unwrap().starts_with(b"event: tool.executed") {}
    let path = format!("/api/v1/keys/{}", created["id"].as_str().unwrap());
    assert_eq!(send_request(&router, &admin, Method::DELETE, &path, None).await.0, StatusCode::NO_CONTENT);
    call().await;
    assert!(next().await.is_none(), "the stream has ended");
}

#[tokio::test]
async fn the_last_key_that_may_administer_is_not_taken_back() {
    let store = Arc::new(Memory::default());
    let (config, admin) = make_key("config", "main", &[Scope::Admin]);
    let server = Server::new(test_hub().await.hub, store.clone(), settings_with_keys([config]));
    let (ring, router) = (server.key_ring(), server.router());
    let mut created = Vec::new();
    for name in ["one", "two"] {
        let request_body = json!({"name": name, "scopes": ["admin"]});
        created.push(send_request(&router, &admin, Method::POST, "/api/v1/keys", Some(request_body)).await.1);
    }
    // The owner may remove the keys of the config: with access to the config one can be added back.
    ring.replace(&[]).unwrap();
    assert_eq!(send_request(&router, &admin, Method::GET, "/api/v1/keys", None).await.0, StatusCode::UNAUTHORIZED);
    let (text, path) = (
        |key: &Value| key["key"].as_str().unwrap().to_owned(),
        |key: &Value| format!("/api/v1/keys/{}", key["id"].as_str().unwrap()),
    );
    let two = text(&created[1]);
    assert_eq!(send_request(&router, &two, Method::DELETE, &path(&created[0]), None).await.0, StatusCode::NO_CONTENT);
    let (status, problem) = send_request(&router, &two, Method::DELETE, &path(&created[1]), None).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("conflict")));
    assert!(problem["detail"].as_str().unwrap().contains("the last key"), "{problem}");
    // A key with an expiry counts as an admin key only until it expires.
    let request_body = json!({"name": "three", "scopes": ["admin"], "expiresIn": "1h"});
    assert_eq!(
        send_request(&router, &two, Method::POST, "/api/v1/keys", Some(request_body)).await.0,
        StatusCode::CREATED
    );
    assert_eq!(send_request(&router, &two, Method::DELETE, &path(&created[1]), None).await.0, StatusCode::NO_CONTENT);
}
