//! Invalid requests are refused with a problem and have no effect.

use axum::{
    body::Body,
    http::{Request, header},
};
use serde_json::{Value, json};
use toolhub_core::{CallContext, ErrorKind, ToolError, ToolHub, backend::Memory, dynamic};
use toolhub_server::{Scope, Server};

use crate::{
    support_api::{api_fixture, send},
    support_listener::{make_key, read_json, send_raw, settings_with_keys},
};

#[tokio::test]
async fn a_body_is_one_json_object_and_nothing_more() {
    let api = api_fixture().await;
    for (path, body, status, code) in [
        ("/api/v1/tools/rare/calls", "{} garbage", 400, "invalid_json"),
        ("/api/v1/tools/rare/calls", "{}{\"threadId\": \"t1\"}", 400, "invalid_json"),
        ("/api/v1/tools/rare/calls", "[{}, \"t1\", null, null]", 422, "invalid_request"),
        ("/api/v1/tools/rare/calls", "null", 422, "invalid_request"),
        ("/api/v1/tools/rare/calls", "[", 400, "invalid_json"),
        ("/api/v1/threads", "[\"t7\"]", 422, "invalid_request"),
        ("/api/v1/tools/rare/reports", "{\"error\": 7}", 422, "invalid_request"),
        ("/api/v1/tools/rare/reports", "{\"error\": [\"tool_error\", \"no\", null, null]}", 422, "invalid_request"),
        ("/api/v1/threads/t1/batches", "{\"calls\": [{\"tool\": \"rare\"}]} ]", 400, "invalid_json"),
    ] {
        let reply = send(&api.router, "POST", path, Some(body.into()), &[]).await;
        let problem = reply.expect_problem(status, code);
        assert!(!problem["detail"].as_str().unwrap().contains("struct"), "{problem}");
    }
    let calls = api.get("/api/v1/calls?tool=rare").await.expect_status(200);
    assert_eq!(calls["items"], json!([]), "no invalid request made a call");
    let spaced = send(&api.router, "POST", "/api/v1/tools/rare/calls", Some(" {} \n".into()), &[]).await;
    assert_eq!(spaced.expect_status(200)["status"], "success");
}

#[tokio::test]
async fn a_body_that_is_packed_is_refused_with_words_of_its_own() {
    let api = api_fixture().await;
    for (packed, status) in [("gzip", 415), ("identity, br", 415), ("Identity", 201)] {
        let headers = [("content-encoding", packed)];
        let reply = api.request("POST", "/api/v1/threads", Some(json!({})), &headers).await;
        assert_eq!(reply.status, status, "{packed}: {}", reply.text);
        assert_eq!(reply.text.contains("compressed"), status == 415, "{}", reply.text);
    }
}

#[tokio::test]
async fn a_query_has_no_members_but_those_that_are_described() {
    let api = api_fixture().await;
    api.post("/api/v1/threads", json!({"id": "t1"})).await.expect_status(201);
    for path in [
        "/api/v1/threads?limt=2",
        "/api/v1/tools/add/explain?thread=t1",
        "/api/v1/tools/add/stats?since=1h",
        "/api/v1/state/contexts?tooltype=x",
        "/api/v1/state/contexts/t1%2Fnotes/business/history?limt=1",
    ] {
        api.get(path).await.expect_problem(422, "invalid_request");
    }
}

#[tokio::test]
async fn the_promise_of_a_repetition_names_the_first_call() {
    let api = api_fixture().await;
    let headers = [("idempotency-key", "k1"), ("prefer", "respond-async")];
    let call = || api.request("POST", "/api/v1/tools/rare/calls", Some(json!({})), &headers);
    let first = call().await;
    let id = first.expect_status(202)["id"].clone();
    while api.get(first.header("location")).await.expect_status(200)["status"] != "success" {
        tokio::task::yield_now().await;
    }
    let repeated = call().await;
    assert_eq!(repeated.expect_status(202)["id"], id);
    assert_eq!(
        (repeated.header("location"), repeated.header("idempotency-replayed")),
        (first.header("location"), "true")
    );
}

#[tokio::test]
async fn arguments_beside_arguments_are_all_named_and_where_they_belong() {
    let api = api_fixture().await;
    let refused = api.post("/api/v1/tools/add/calls", json!({"a": 1, "b": 2})).await;
    let refused = refused.expect_problem(422, "invalid_request");
    let pointers: Vec<&Value> = refused["errors"].as_array().unwrap().iter().map(|error| &error["pointer"]).collect();
    assert_eq!(pointers, ["/a", "/b"]);
    assert!(refused["hint"].as_str().unwrap().contains("`arguments`"), "{refused}");
}

#[tokio::test]
async fn a_batch_whose_key_is_too_long_is_refused_and_not_its_model() {
    let api = api_fixture().await;
    let body = json!({"calls": [{"tool": "rare"}]});
    let path = "/api/v1/threads/t1/batches";
    let refused = api.request("POST", path, Some(body.clone()), &[("idempotency-key", &"k".repeat(252))]).await;
    refused.expect_problem(400, "idempotency_key_invalid");
    let taken =
        api.request("POST", path, Some(body), &[("idempotency-key", &"k".repeat(251))]).await.expect_status(200);
    assert_eq!(taken["calls"][0]["status"], "success", "{taken}");
}

#[tokio::test]
async fn a_model_that_uses_an_id_twice_is_told_so() {
    let api = api_fixture().await;
    let one = json!({"type": "tool_use", "id": "u1", "name": "look", "input": {}});
    let reply = api.post("/api/v1/threads/t1/batches?format=anthropic", json!([one, one])).await.expect_status(200);
    let content = reply["messages"][0]["content"][1]["content"].as_str().unwrap().to_owned();
    assert!(content.contains("`u1`") && content.contains("twice"), "{content}");
}

#[tokio::test]
async fn what_failed_for_another_tenant_is_known_by_its_kind_alone() {
    let store = std::sync::Arc::new(Memory::default());
    let fetch = dynamic("fetch", json!({"type": "object"}), |given: Value, _: CallContext| async move {
        let text = format!("no answer about {}", given["customer"]);
        Err::<Value, _>(ToolError::with_kind(ErrorKind::UpstreamUnreachable, text))
    });
    let hub = ToolHub::builder().store(store.clone()).tool(fetch).build().await.unwrap();
    let both = [Scope::ToolsRead, Scope::ToolsCall];
    let keys = [make_key("ann", "a", &both), make_key("ben", "b", &both), make_key("ops", "main", &[Scope::Admin])];
    let router = Server::new(hub, store, settings_with_keys(keys.iter().map(|(setting, _)| setting.clone()))).router();
    let send = async |who: usize, method: &str, path: &str, body: &str| {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {}", keys[who].1));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let (status, body) =
            read_json(send_raw(&router, request.body(Body::from(body.to_owned())).unwrap()).await).await;
        assert_eq!(status, 200, "{body}");
        body
    };
    let call = "/api/v1/tools/fetch/calls";
    send(0, "POST", call, r#"{"arguments": {"customer": "canary"}, "threadId": "t1"}"#).await;
    let why = "/api/v1/tools/fetch/explain";
    let explanation = send(1, "GET", why, "").await;
    assert_eq!(explanation["lastFailure"]["kind"], "upstream_unreachable");
    assert!(!explanation.to_string().contains("canary"), "{explanation}");
    assert!(send(2, "GET", why, "").await.to_string().contains("canary"), "admins see the full text");
}
