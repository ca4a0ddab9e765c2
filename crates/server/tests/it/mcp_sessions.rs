//! Sessions and threads of MCP clients: whose they are, and how long they last.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_core::{
    CallContext, ToolError,
    backend::Table,
    dynamic,
    testing::{ObservedStore, StoreUse},
};
use toolhub_server::{Scope, Server};

use crate::{
    support_api::{ApiFixture, api_fixture, settings},
    support_listener::{make_key, settings_with_keys},
    support_mcp::{LEGACY, McpClient, both_eras, initialize_message, text},
};

#[tokio::test]
async fn a_session_has_a_thread_and_without_one_the_caller_names_it() {
    let fixture = api_fixture().await;
    let [legacy, modern] = both_eras(&fixture).await;
    // `report` waits for `look`: with a thread it is listed only after that, without one always.
    assert!(!legacy.names().await.contains(&"report".to_owned()));
    assert_eq!(legacy.call("report", json!({})).await["isError"], true);
    legacy.call("look", json!({})).await;
    assert!(legacy.names().await.contains(&"report".to_owned()));
    assert_eq!(legacy.call("report", json!({})).await["isError"], false);
    let other = McpClient::legacy(&fixture.router, "/mcp").await;
    assert!(!other.names().await.contains(&"report".to_owned()), "another session has another thread");

    let list = modern.result("tools/list", json!({})).await;
    let report = list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "report").unwrap();
    assert_eq!(report["inputSchema"]["properties"]["thread_id"]["type"], "string");
    let refused = modern.call("report", json!({})).await;
    let thread = refused["_meta"]["dev.toolhub/threadId"].as_str().unwrap();
    assert!(refused["content"].to_string().contains(thread), "{refused}");
    let in_thread = |tool: &str| json!({"name": tool, "arguments": {}, "_meta": {"dev.toolhub/threadId": thread}});
    modern.result("tools/call", in_thread("look")).await;
    let result = modern.call("report", json!({"thread_id": thread})).await;
    assert_eq!((&result["isError"], &result["_meta"]), (&json!(false), &Value::Null), "{result}");
    let by_address = McpClient::modern(&fixture.router, &format!("/mcp/t/{thread}"));
    assert!(by_address.names().await.contains(&"report".to_owned()));
    let refused = modern.call("report", json!({"thread_id": "a b"})).await;
    assert!(refused["isError"] == true && text(&refused).contains("`thread_id` must have"), "{refused}");
}

#[tokio::test]
async fn a_tool_with_a_parameter_named_thread_id_gets_its_thread_by_meta() {
    let fixture = api_fixture().await;
    let schema = json!({"type": "object", "properties": {"thread_id": {"type": "integer"}}});
    let tool = dynamic("cart", schema, |arguments: Value, _: CallContext| async move { Ok::<_, ToolError>(arguments) });
    fixture.hub.register(tool.after("look").read_only()).unwrap();
    let result = McpClient::modern(&fixture.router, "/mcp").call("cart", json!({"thread_id": 7})).await;
    let said = result["content"].to_string();
    assert!(said.contains("_meta") && !said.contains("Pass it as `thread_id`"), "{said}");
}

#[tokio::test]
async fn a_session_is_ended_by_delete_only_and_a_message_belongs_to_one_era() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    assert_eq!(client.send("HEAD", None, &[]).await.status, 405);
    let mut message = client.message("tools/list", json!({}));
    message["params"]["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let refused = client.post(&message).await;
    assert_eq!(refused.expect_status(400)["error"]["code"], -32020);
    client.result("tools/list", json!({})).await;
    assert_eq!(client.send("DELETE", None, &[]).await.status, 204);
}

#[tokio::test]
async fn a_session_belongs_to_its_caller_and_to_all_others_it_does_not_exist() {
    let fixture = api_fixture().await;
    let (ann, ann_key) = make_key("ann", "a", &[Scope::ToolsRead, Scope::ToolsCall]);
    let (bob, bob_key) = make_key("bob", "a", &[Scope::ToolsRead, Scope::ToolsCall]);
    let (eve, eve_key) = make_key("eve", "b", &[Scope::Admin]);
    let mut settings = settings_with_keys([ann, bob, eve]);
    settings.mcp.max_sessions_per_caller = 2;
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    let client = McpClient::modern(&router, "/mcp").key(&ann_key).initialize().await;
    for foreign in [&bob_key, &eve_key] {
        let mut taken = McpClient::modern(&router, "/mcp").key(foreign);
        taken.session.clone_from(&client.session);
        let message = taken.message("tools/list", json!({}));
        let reply = taken.post(&message).await.expect_problem(404, "session_not_found");
        taken.session = Some("mcp_never".into());
        let unknown = taken.post(&message).await.expect_problem(404, "session_not_found");
        assert_eq!(reply, unknown);
        taken.session.clone_from(&client.session);
        assert_eq!(taken.send("DELETE", None, &[]).await.status, 404);
        assert_eq!(taken.send("GET", None, &[]).await.status, 404);
    }
    assert!(!client.names().await.is_empty());

    let second = McpClient::modern(&router, "/mcp").key(&ann_key).initialize().await;
    let third = McpClient::modern(&router, "/mcp").key(&ann_key);
    let full = third.post(&initialize_message(LEGACY)).await;
    full.expect_problem(503, "overloaded");
    assert_eq!(full.header("retry-after"), "30");
    McpClient::modern(&router, "/mcp").key(&bob_key).initialize().await;
    assert_eq!(second.send("DELETE", None, &[]).await.status, 204);
    assert_eq!(second.post(&second.message("tools/list", json!({}))).await.status, 404);
    third.initialize().await;
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart_with_the_same_thread() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    client.call("look", json!({})).await;
    let mut restarted = client.clone();
    restarted.router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings()).router();
    assert_eq!(restarted.call("report", json!({})).await["isError"], false);
    assert_eq!(restarted.send("DELETE", None, &[]).await.status, 204);
    let later = Server::new(fixture.hub.clone(), fixture.store.clone(), settings()).router();
    restarted.router = later;
    assert_eq!(restarted.post(&restarted.message("tools/list", json!({}))).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn an_unused_session_is_unloaded_after_five_minutes_and_goes_on_with_its_thread() {
    let loaded = Arc::new(AtomicUsize::new(0));
    let counter = loaded.clone();
    let store = Arc::new(ObservedStore::new(move |used| {
        let StoreUse::Load(keys) = used else { return };
        counter.fetch_add(keys.iter().filter(|key| key.table == Table::McpSessions).count(), SeqCst);
    }));
    let loads = || loaded.swap(0, SeqCst);
    let fixture = api_fixture().await;
    let router = Server::new(fixture.hub.clone(), store, settings()).router();
    let fixture = ApiFixture { router: router.clone(), ..fixture };
    let (client, listener) = (McpClient::legacy(&router, "/mcp").await, McpClient::legacy(&router, "/mcp").await);
    let _stream = listener.listen(&fixture, Value::Null).await;
    client.call("look", json!({})).await;
    tokio::time::sleep(Duration::from_secs(290)).await;
    assert!(client.names().await.contains(&"report".to_owned()));
    assert_eq!(loads(), 0, "it is still in memory");

    tokio::time::sleep(Duration::from_secs(320)).await;
    assert!(client.names().await.contains(&"report".to_owned()), "the thread is the same");
    assert_eq!(loads(), 1, "it was unloaded");
    assert_eq!(client.call("report", json!({})).await["isError"], false);
    listener.names().await;
    assert_eq!(loads(), 0, "it is in memory again, and one with an open stream stays there");
}

/// Lets the other node hear of changes.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_closed_on_one_node_is_closed_on_the_others() {
    let fixture = api_fixture().await;
    let other_node = Server::new(fixture.hub.clone(), fixture.store.clone(), settings()).router();
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let elsewhere = McpClient { router: other_node, ..client.clone() };
    client.call("look", json!({})).await;
    assert_eq!(elsewhere.call("report", json!({})).await["isError"], false, "any node serves it, with its thread");
    assert_eq!(client.send("DELETE", None, &[]).await.status, 204);
    settle().await;
    let closed = elsewhere.post(&elsewhere.message("tools/list", json!({}))).await;
    closed.expect_problem(404, "session_not_found");
}

#[tokio::test(start_paused = true)]
async fn the_sessions_of_a_caller_are_counted_over_all_nodes() {
    let fixture = api_fixture().await;
    let mut settings = settings();
    settings.mcp.max_sessions_per_caller = 2;
    let node = || Server::new(fixture.hub.clone(), fixture.store.clone(), settings.clone()).router();
    let (one, two) = (node(), node());
    let first = McpClient::legacy(&one, "/mcp").await;
    McpClient::legacy(&two, "/mcp").await;
    settle().await;
    for router in [&one, &two] {
        let full = McpClient::modern(router, "/mcp").post(&initialize_message(LEGACY)).await;
        full.expect_problem(503, "overloaded");
    }
    assert_eq!(first.send("DELETE", None, &[]).await.status, 204);
    settle().await;
    McpClient::legacy(&two, "/mcp").await;
}
