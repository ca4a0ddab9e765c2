//! Batches: a model's calls in, the tool messages out.

use std::sync::Arc;

use serde_json::{Value, json};
use toolhub_core::{CallContext, Content, NoArguments, ToolError, ToolHub, backend::Memory, tool};
use toolhub_server::Server;

use crate::support_api::{ApiFixture, api_fixture, send, settings};

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
async fn a_call_that_asks_tells_the_model_the_id_and_the_client_where_to_read_it() {
    let api = api_fixture().await;
    let calls = json!([
        function_call("c1", "order", "{\"what\": \"tea\"}"),
        function_call("c2", "add", "{\"a\": 1, \"b\": 2}")
    ]);
    let path = "/api/v1/threads/t1/batches?format=openai";
    let reply = api.post(path, calls.clone()).await.expect_status(200);
    let pending = api.get("/api/v1/approvals?state=pending").await.expect_status(200);
    let approval = &pending["items"][0];
    let id = approval["id"].as_str().unwrap();
    let text = reply["messages"][0]["content"].as_str().unwrap();
    assert!(text.contains("approve") && text.contains(id), "{text}");
    for address in ["http", "/api", "/ui", "localhost"] {
        assert!(!text.contains(address), "a model must not learn where approvals are answered: {text}");
    }
    let waiting = &reply["calls"][0];
    assert_eq!((&waiting["status"], &waiting["modelCallId"]), (&json!("awaiting_approval"), &json!("c1")));
    let link =
        json!({"id": id, "url": format!("http://localhost/ui/approvals/{id}"), "expiresAt": approval["expiresAt"]});
    assert_eq!(waiting["approval"], link);
    let ended = &reply["calls"][1];
    assert_eq!(
        (&ended["status"], &ended["tool"], &ended["replayed"]),
        (&json!("success"), &json!("add"), &json!(false))
    );
    assert!(ended["id"].as_str().unwrap().starts_with("call_") && ended.get("approval").is_none(), "{ended}");
    approve(&api, id).await;
    assert_eq!(send_openai(&api, calls.clone()).await[0]["content"], "{\"ordered\":\"tea\"}");
    assert!(send_openai(&api, calls).await[0]["content"].as_str().unwrap().contains("approve"));
}

async fn approve(api: &ApiFixture, id: &str) {
    api.post(&format!("/api/v1/approvals/{id}"), json!({"outcome": "proceed_once"})).await.expect_status(200);
}

async fn pending_approval(api: &ApiFixture) -> String {
    loop {
        let pending = api.get("/api/v1/approvals?state=pending").await.expect_status(200);
        if let Some(id) = pending["items"][0]["id"].as_str() {
            return id.to_owned();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_same_batch_with_its_key_replays_what_is_finished_and_makes_what_was_approved() {
    let api = api_fixture().await;
    let batch = json!([
        function_call("c1", "notes", "{}"),
        function_call("c2", "order", "{\"what\": \"tea\"}"),
        function_call("c3", "broken", "{}")
    ]);
    let path = "/api/v1/threads/t1/batches?format=openai";
    let headers = [("idempotency-key", "step-7")];
    let first = api.request("POST", path, Some(batch.clone()), &headers).await.expect_status(200);
    assert_eq!(first["calls"][1]["status"], "awaiting_approval");
    approve(&api, first["calls"][1]["approval"]["id"].as_str().unwrap()).await;
    let second = api.request("POST", path, Some(batch), &headers).await.expect_status(200);
    assert_eq!(second["messages"][1]["content"], "{\"ordered\":\"tea\"}");
    assert_eq!((&second["calls"][2]["id"], &second["calls"][2]["replayed"]), (&first["calls"][2]["id"], &json!(true)));
    assert_eq!(api.get("/api/v1/calls?tool=broken").await.expect_status(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_client_that_prefers_to_wait_gets_the_result_of_a_call_that_is_approved_meanwhile() {
    let api = api_fixture().await;
    let calls = json!([function_call("c1", "order", "{\"what\": \"tea\"}")]);
    let path = "/api/v1/threads/t1/batches?format=openai";
    let waits = api.request("POST", path, Some(calls.clone()), &[("prefer", "wait=60")]);
    let answers = async { approve(&api, &pending_approval(&api).await).await };
    let (reply, ()) = tokio::join!(waits, answers);
    assert_eq!(reply.header("preference-applied"), "wait=60");
    let reply = reply.expect_status(200);
    assert_eq!(reply["messages"][0]["content"], "{\"ordered\":\"tea\"}");
    assert_eq!(reply["calls"][0]["status"], "success");
    // After the time it is the answer of a client that does not wait, and the question is still there.
    let reply = api.request("POST", path, Some(calls.clone()), &[("prefer", "wait=0")]).await.expect_status(200);
    assert_eq!(reply["calls"][0]["status"], "awaiting_approval");
    approve(&api, reply["calls"][0]["approval"]["id"].as_str().unwrap()).await;
    assert_eq!(send_openai(&api, calls).await[0]["content"], "{\"ordered\":\"tea\"}");
}

#[tokio::test]
async fn a_batch_in_the_background_is_fetched_with_its_key() {
    let api = api_fixture().await;
    let batch = json!([
        function_call("c1", "slow", "{}"),
        function_call("c2", "order", "{\"what\": \"tea\"}"),
        function_call("c3", "add", "{\"a\": 1, \"b\": 2}"),
    ]);
    let path = "/api/v1/threads/t1/batches?format=openai";
    let (key, respond_async) = (("idempotency-key", "step-1"), ("prefer", "respond-async"));
    let refused = api.request("POST", path, Some(batch.clone()), &[respond_async]).await;
    assert!(refused.expect_problem(400, "idempotency_key_invalid")["hint"].as_str().unwrap().contains("same batch"));
    let first = api.request("POST", path, Some(batch.clone()), &[key, respond_async]).await;
    assert_eq!(first.header("preference-applied"), "respond-async");
    let first = first.expect_status(202);
    assert_eq!(first.get("messages"), None);
    assert_eq!(
        (&first["calls"][0]["status"], &first["calls"][1]["status"]),
        (&json!("executing"), &json!("scheduled"))
    );
    let call = first["calls"][0]["id"].as_str().unwrap();
    assert_eq!(api.get(&format!("/api/v1/calls/{call}")).await.expect_status(200)["status"], "executing");
    let again = api.request("POST", path, Some(batch.clone()), &[key, respond_async]).await.expect_status(202);
    assert_eq!(again["calls"][0]["id"], call, "the running call is joined, not made again");
    api.release.add_permits(1);
    approve(&api, &pending_approval(&api).await).await;
    let last = api.request("POST", path, Some(batch), &[key, ("prefer", "wait=60")]).await.expect_status(200);
    let texts: Vec<&Value> = last["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["done", "{\"ordered\":\"tea\"}", "3"]);
    assert_eq!((&last["calls"][0]["id"], &last["calls"][0]["replayed"]), (&json!(call), &json!(true)));
    assert_eq!(api.started.available_permits(), 1, "`slow` ran once");
}

#[tokio::test]
async fn every_format_of_the_export_is_answered_in_its_own_form() {
    let api = api_fixture().await;
    let sum = json!({"a": 1, "b": 2});
    let item = |id: &str, name: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": sum.to_string()});
    let part = |name: &str| json!({"functionCall": {"name": name, "args": sum}});
    let request = |id: u32, name: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": sum}});
    let send = async |format: &str, body: Value| {
        let reply = api.post(&format!("/api/v1/threads/t1/batches?format={format}"), body).await.expect_status(200);
        assert_eq!((&reply["calls"][0]["status"], &reply["calls"][1]["status"]), (&json!("success"), &json!("error")));
        assert_eq!(reply["calls"][1]["error"]["code"], "tool_error");
        reply["messages"].clone()
    };
    let responses = send("openai-responses", json!({"output": [item("c1", "add"), item("c2", "broken")]})).await;
    assert_eq!(responses[0], json!({"type": "function_call_output", "call_id": "c1", "output": "3"}));
    assert_eq!(responses[1]["call_id"], "c2");
    let gemini = send("gemini", json!({"role": "model", "parts": [part("add"), part("broken")]})).await;
    assert_eq!(gemini[0]["role"], "user");
    assert_eq!(gemini[0]["parts"][0], json!({"functionResponse": {"name": "add", "response": {"output": "3"}}}));
    assert!(gemini[0]["parts"][1]["functionResponse"]["response"]["error"].is_string(), "{gemini}");
    let mcp = send("mcp", json!([request(1, "add"), request(2, "broken")])).await;
    let text = json!([{"type": "text", "text": "3"}]);
    assert_eq!(mcp[0], json!({"jsonrpc": "2.0", "id": 1, "result": {"content": text, "isError": false}}));
    assert_eq!((&mcp[1]["id"], &mcp[1]["result"]["isError"]), (&json!(2), &json!(true)));
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
    assert_eq!(first["messages"], replayed["messages"]);
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
    let openai = json!({"role": "assistant", "tool_calls": [function_call("c1", "add", "{}")]});
    for path in ["/api/v1/threads/t1/batches", "/api/v1/threads/t1/batches?format=anthropic"] {
        let refused = api.post(path, openai.clone()).await;
        let refused = refused.expect_problem(422, "invalid_request");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.ends_with("the body has `tool_calls`: use format=openai"), "{detail}");
    }
    let missing = api.get("/api/v1/tools/export").await;
    let missing = missing.expect_problem(422, "invalid_request");
    let expected =
        "the query is not valid: `format` is missing; use one of anthropic, openai, openai-responses, gemini, mcp";
    assert_eq!(missing["detail"], expected);
    api.post("/api/v1/threads/a%20b/batches", json!([])).await.expect_problem(404, "thread_not_found");
    let too_many: Vec<Value> = (0..129).map(|_| function_call("c", "add", "{}")).collect();
    api.post(path, too_many.into()).await.expect_problem(422, "invalid_request");
    assert_eq!(send_openai(&api, json!([])).await, Vec::<Value>::new());
}

#[tokio::test]
async fn blocks_that_are_not_text_are_part_of_mcp_results() {
    async fn report(_: NoArguments, cx: CallContext) -> Result<&'static str, ToolError> {
        let blocks = json!([
            {"type": "resource_link", "uri": "file:///a.csv", "name": "a.csv"},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///c", "mimeType": "application/pdf", "blob": "aGk="}},
        ]);
        serde_json::from_value::<Vec<Content>>(blocks)?.into_iter().for_each(|block| cx.attach(block));
        Ok("made")
    }
    let hub = ToolHub::builder().tool(tool("report", report)).build().await.unwrap();
    let router = Server::new(hub, Arc::new(Memory::new()), settings()).router();
    let call = json!([{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report"}}]);
    let path = "/api/v1/threads/t1/batches?format=mcp";
    let answer = send(&router, "POST", path, Some(call.to_string()), &[]).await.expect_status(200);
    let content = &answer["messages"][0]["result"]["content"];
    let text = "made\nResource a.csv: file:///a.csv\nResource file:///b:\ninside\n\
                [not shown: resource file:///c (application/pdf)]";
    assert_eq!(content[0], json!({"type": "text", "text": text}));
    let (link, blob) = (&content[1], &content[2]);
    assert_eq!(link, &json!({"type": "resource_link", "uri": "file:///a.csv", "name": "a.csv"}));
    assert_eq!(blob["resource"]["blob"], "aGk=");
    assert_eq!(content.as_array().unwrap().len(), 3);
}
