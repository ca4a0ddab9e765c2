//! The scripted model rejects what a provider rejects, with the provider's error format.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::serve_script;

/// Sends a POST request; returns status and body.
async fn post(stub: &toolhub_agent::Stub, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let length = body.len();
    send(stub, &format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer any\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")).await
}

async fn send(stub: &toolhub_agent::Stub, request: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(stub.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

#[tokio::test]
async fn a_call_without_a_result_is_refused_in_both_formats() {
    let stub = serve_script("[default]\nsay = 'fine'").await;
    let call = json!({"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}});
    let request = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let user = json!({"role": "user", "content": "hi"});
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "done"});
    for (messages, expected) in [
        (json!([user, request, result]), 200),
        (json!([user, request, result, user]), 200),
        (json!([{"role": "system", "content": "x"}, user]), 200),
        (json!([user, request]), 400),
        (json!([user, request, user]), 400),
        (json!([user, result]), 400),
        (json!([user, request, result, result]), 400),
        (json!([user, {"role": "assistant", "content": null}]), 400),
        (json!([user, {"role": "assistant", "tool_calls": []}]), 400),
        (json!([{"role": "robot", "content": "x"}]), 400),
        (json!([]), 400),
        (json!("x"), 400),
    ] {
        let (status, body) = post(&stub, "/v1/chat/completions", &json!({"model": "m", "messages": messages})).await;
        assert_eq!(status, expected, "{messages}: {body}");
        assert!(status == 200 || body["error"]["type"] == "invalid_request_error", "{body}");
    }
    let request = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "a", "input": {}}]});
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}]});
    for (messages, expected) in [
        (json!([user, request, result]), 200),
        (json!([user, user]), 200),
        (json!([user, request]), 400),
        (json!([user, request, user]), 400),
        (json!([user, result]), 400),
        (json!([request, result]), 400),
        (json!([{"role": "user", "content": ""}]), 400),
        (json!([{"role": "user", "content": [{"type": "text", "text": " "}]}]), 400),
    ] {
        let body = json!({"model": "m", "max_tokens": 9, "messages": messages});
        let (status, body) = post(&stub, "/v1/messages", &body).await;
        assert_eq!(status, expected, "{messages}: {body}");
        assert!(status == 200 || body["error"]["type"] == "invalid_request_error", "{body}");
    }
}

#[tokio::test]
async fn the_rest_of_a_request_is_looked_at_too() {
    let stub = serve_script("[default]\nsay = 'fine'").await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/chat/completions", json!({"model": "m", "messages": messages, "tools": []})),
        ("/v1/chat/completions", json!({"model": "m", "messages": messages, "tool_choice": "none"})),
        ("/v1/chat/completions", json!({"model": "m", "messages": messages, "tools": [{"name": "a"}]})),
        ("/v1/chat/completions", json!(7)),
        ("/v1/messages", json!({"model": "m", "messages": messages})),
        ("/v1/messages", json!({"model": "m", "max_tokens": 9, "messages": messages, "tools": [{}]})),
    ] {
        let (status, answer) = post(&stub, path, &body).await;
        assert_eq!(status, 400, "{body}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    let (status, answer) = post(&stub, "/v2/other", &json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("not_found")));
    let (status, answer) = send(&stub, "GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert_eq!((status, &answer["data"][0]["id"]), (200, &json!("scripted")));
}
