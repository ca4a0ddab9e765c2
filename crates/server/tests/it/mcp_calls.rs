//! Running calls of MCP clients: progress, streams that are resumed, and cancellation.

use serde_json::{Value, json};
use toolhub_core::{CallContext, ToolError, dynamic};

use crate::{
    support_api::{EventReader, api_fixture},
    support_mcp::{McpClient, events, text},
};

/// The parameters of a call of `slow` with progress.
fn slow() -> Value {
    json!({"name": "slow", "arguments": {}, "_meta": {"progressToken": "p"}})
}

/// Reads until the call of `slow` runs. Returns what was read.
async fn until_running(stream: &mut EventReader) -> String {
    let mut received = String::new();
    while !received.contains("half of it") {
        received.push_str(&stream.next_chunk().await.unwrap());
    }
    received
}

fn last_event_id(received: &str) -> &str {
    received.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap()
}

#[tokio::test]
async fn a_slow_call_of_a_session_streams_its_progress_and_can_be_resumed() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let mut stream = client.open_with(&fixture, slow()).await;
    let received = until_running(&mut stream).await;
    let progress = events(&received).pop().unwrap();
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    let twice = client.post(&client.message("tools/list", json!({}))).await;
    assert!(twice.expect_status(400)["error"]["message"].as_str().unwrap().contains("in flight"));
    drop(stream);
    // The call goes on; its answer is there for the client that comes back.
    fixture.release.add_permits(1);
    let resumed = client.send("GET", None, &[("last-event-id", last_event_id(&received))]).await;
    let answers = events(&resumed.text);
    assert_eq!((answers.len(), &answers[0]["id"]), (1, &json!(1)), "{answers:?}");
    assert_eq!(text(&answers[0]["result"]), "done");
}

#[tokio::test]
async fn a_notification_cancels_a_call_of_a_session() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let mut stream = client.open_with(&fixture, slow()).await;
    let received = until_running(&mut stream).await;
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(client.post(&cancelled).await.status, 202);
    fixture.dropped.acquire().await.unwrap().forget();
    // The stream ends without an answer, and the id is free again.
    while let Some(chunk) = stream.next_chunk().await {
        assert!(events(&chunk).is_empty(), "{chunk}");
    }
    // Resuming it is answered with 204: no event follows.
    assert_eq!(client.send("GET", None, &[("last-event-id", last_event_id(&received))]).await.status, 204);
    let freed = async || client.post(&client.message("ping", json!({}))).await.status == 200;
    while !freed().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn without_a_session_a_closed_stream_cancels_its_call() {
    let fixture = api_fixture().await;
    let client = McpClient::modern(&fixture.router, "/mcp");
    let mut stream = client.open_with(&fixture, slow()).await;
    until_running(&mut stream).await;
    drop(stream);
    fixture.dropped.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn a_fraction_of_progress_has_a_total() {
    let fixture = api_fixture().await;
    let tool = dynamic("half", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        context.progress_at(0.5, "half");
        Ok::<_, ToolError>(json!({}))
    });
    fixture.hub.register(tool.read_only()).unwrap();
    let client = McpClient::modern(&fixture.router, "/mcp");
    let call = client.message("tools/call", json!({"name": "half", "arguments": {}, "_meta": {"progressToken": "p"}}));
    let reply = client.post(&call).await;
    let progress = &events(&reply.text)[0]["params"];
    assert_eq!((&progress["progress"], &progress["total"]), (&json!(0.5), &json!(1.0)), "{}", reply.text);
}
