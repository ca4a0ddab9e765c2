//! Batches: a model's calls in, the tool messages out.

use serde_json::{Value, json};

use crate::support_api::{ApiFixture, api_fixture};

async fn send_openai(api: &ApiFixture, calls: Value) -> Vec<Value> {
    let reply = api.post("/api/v1/threads/t1/batches?format=openai", calls).await.expect_status(200);
    reply["messages"].as_array().unwrap().clone()
}

fn function_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

#[tokio::test]
async fn a_message_of_openai_is_answered_with_tool_messages_in_its_order() {
    let api = api_fixture().await;
    let calls = [
        function_call("c1", "add", "{\"a\": 1, \"b\": 2}"),
        function_call("c2", "look", "{}"),
        function_call("c3", "report", ""),
    ];
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let messages = send_openai(&api, message).await;
    assert_eq!(messages[0], json!({"role": "tool", "tool_call_id": "c1", "content": "3"}));
    let ids: Vec<&Value> = messages.iter().map(|answer| &answer["tool_call_id"]).collect();
    assert_eq!(ids, ["c1", "c2", "c3"]);
    let states = api.get("/agents/t1/tool-states").await.expect_status(200);
    assert_eq!(states["data"]["toolStates"]["report"]["reason"], "executed successfully");
}

#[tokio::test]
async fn a_message_of_anthropic_is_answered_with_one_message_of_results() {
    let api = api_fixture().await;
    let message = json!({"role": "assistant", "content": [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "u1", "name": "add", "input": {"a": 1, "b": 2}},
        {"type": "tool_use", "id": "u2", "name": "broken", "input": {}},
    ]});
    let reply = api.post("/api/v1/threads/t1/batches?format=anthropic", message).await.expect_status(200);
    let messages = reply["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[0]["role"]), (1, &json!("user")));
    let results = &messages[0]["content"];
    assert_eq!(results[0], json!({"type": "tool_result", "tool_use_id": "u1", "content": "3"}));
    assert_eq!((&results[1]["tool_use_id"], &results[1]["is_error"]), (&json!("u2"), &json!(true)));
}

#[tokio::test]
async fn what_a_model_got_wrong_becomes_a_message_that_helps_it() {
    let api = api_fixture().await;
    let messages = send_openai(
        &api,
        json!([
            function_call("c1", "add", "{\"a\": 1, \"b\":"),
            function_call("c2", "add", "{\"a\": 1, \"c\": 2}"),
            function_call("c3", "ad", "{}"),
            {"id": "c4"},
            function_call("c5", "add", "{\"a\": 1, \"b\": 1}"),
        ]),
    )
    .await;
    let content = |at: usize| messages[at]["content"].as_str().unwrap();
    assert!(content(0).contains("not valid JSON"), "{}", content(0));
    assert!(content(1).contains('b') && content(1).contains("add"), "{}", content(1));
    assert!(content(2).contains("add"), "{}", content(2));
    assert!(content(3).contains("names no tool"), "{}", content(3));
    assert_eq!(content(4), "2");
}

#[tokio::test]
async fn a_call_that_asks_answers_with_a_link_and_goes_on_when_it_is_made_again() {
    let api = api_fixture().await;
    let calls = json!([function_call("c1", "order", "{\"what\": \"tea\"}")]);
    let asks = send_openai(&api, calls.clone()).await;
    let text = asks[0]["content"].as_str().unwrap();
    let pending = api.get("/api/v1/approvals?state=pending").await.expect_status(200);
    let question = &pending["items"][0];
    assert!(text.contains("approve") && text.contains(question["url"].as_str().unwrap()), "{text}");
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    api.post(&path, json!({"outcome": "proceed_once"})).await.expect_status(200);
    assert_eq!(send_openai(&api, calls.clone()).await[0]["content"], "{\"ordered\":\"tea\"}");
    assert!(send_openai(&api, calls).await[0]["content"].as_str().unwrap().contains("approve"));
}

#[tokio::test]
async fn without_a_format_each_call_is_answered_as_it_ended() {
    let api = api_fixture().await;
    let step = json!({"calls": [{"tool": "add", "arguments": {"a": 1, "b": 2}, "callId": "m1"}, {"tool": "ad"}, {}]});
    let calls = api.post("/api/v1/threads/t1/batches", step).await.expect_status(200)["calls"].clone();
    assert_eq!((&calls[0]["output"], &calls[0]["modelCallId"]), (&json!(3), &json!("m1")));
    assert_eq!(
        (&calls[1]["error"]["code"], &calls[2]["error"]["code"]),
        (&json!("tool_not_found"), &json!("tool_not_found"))
    );
}

#[tokio::test]
async fn a_step_with_a_key_is_made_once() {
    let api = api_fixture().await;
    let step = json!([function_call("c1", "notes", "{}"), function_call("c2", "broken", "{}")]);
    let headers = [("idempotency-key", "step-1")];
    let path = "/api/v1/threads/t1/batches?format=openai";
    let first = api.request("POST", path, Some(step.clone()), &headers).await.expect_status(200);
    let replayed = api.request("POST", path, Some(step), &headers).await.expect_status(200);
    assert_eq!(first, replayed);
    let calls = api.get("/api/v1/calls?tool=broken").await.expect_status(200);
    assert_eq!(calls["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_no_message_is_refused_whole() {
    let api = api_fixture().await;
    let path = "/api/v1/threads/t1/batches?format=openai";
    for nonsense in [json!({}), json!("hello"), json!({"tool_calls": {}})] {
        api.post(path, nonsense).await.expect_problem(422, "invalid_request");
    }
    api.post("/api/v1/threads/t1/batches?format=fax", json!([])).await.expect_problem(422, "invalid_request");
    api.post("/api/v1/threads/a%20b/batches", json!([])).await.expect_problem(404, "thread_not_found");
    let too_many: Vec<Value> = (0..129).map(|_| function_call("c", "add", "{}")).collect();
    api.post(path, too_many.into()).await.expect_problem(422, "invalid_request");
    assert_eq!(send_openai(&api, json!([])).await, Vec::<Value>::new());
}
