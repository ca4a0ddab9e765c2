//! Changes of the list of tools, as MCP clients hear of them.

use std::time::Duration;

use serde_json::json;
use toolhub_core::{StatusScope, status::ToolStatus, testing::scripted};

use crate::{
    support_api::{ApiFixture, EventReader, api_fixture},
    support_mcp::{McpClient, both_eras, events, next},
};

const CHANGED: &str = "notifications/tools/list_changed";

async fn listen(fixture: &ApiFixture, client: &McpClient) -> EventReader {
    client.listen(fixture, json!({"toolsListChanged": true})).await
}

async fn set_status(fixture: &ApiFixture, status: ToolStatus) {
    fixture.hub.set_tool_status("add", status, None, None, StatusScope::Shared).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn listeners_of_both_eras_hear_of_added_withheld_and_returned_tools() {
    let fixture = api_fixture().await;
    let clients = both_eras(&fixture).await;
    for client in &clients {
        let mut stream = listen(&fixture, client).await;
        let name = if client.session.is_some() { "one" } else { "two" };
        fixture.hub.register(scripted(name, []).0).unwrap();
        assert_eq!(next(&mut stream).await["method"], CHANGED);
        assert!(client.names().await.contains(&name.to_owned()));
        tokio::time::sleep(Duration::from_secs(5)).await;
        set_status(&fixture, ToolStatus::Maintenance).await;
        assert_eq!(next(&mut stream).await["method"], CHANGED);
        assert!(!client.names().await.contains(&"add".to_owned()));
        set_status(&fixture, ToolStatus::Available).await;
        assert_eq!(next(&mut stream).await["method"], CHANGED);
        assert!(client.names().await.contains(&"add".to_owned()));
        // A tool that is back before the delay is over was never away.
        set_status(&fixture, ToolStatus::Maintenance).await;
        set_status(&fixture, ToolStatus::Available).await;
        let quiet = tokio::time::timeout(Duration::from_secs(10), next(&mut stream)).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_hears_of_tools_that_its_own_calls_make_available() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let other = McpClient::legacy(&fixture.router, "/mcp").await;
    let (mut stream, mut others) = (listen(&fixture, &client).await, listen(&fixture, &other).await);
    client.call("look", json!({})).await;
    assert_eq!(next(&mut stream).await["method"], CHANGED);
    assert!(client.names().await.contains(&"report".to_owned()));
    assert!(tokio::time::timeout(Duration::from_secs(10), next(&mut others)).await.is_err());
    // A second stream of the session ends the first.
    let _second = listen(&fixture, &client).await;
    while let Some(chunk) = stream.next_chunk().await {
        assert!(events(&chunk).is_empty(), "{chunk}");
    }
}

#[tokio::test]
async fn listening_to_what_cannot_be_delivered_is_refused() {
    let fixture = api_fixture().await;
    let client = McpClient::modern(&fixture.router, "/mcp");
    let addresses = |count: usize| (0..count).map(|n| format!("doc://{n}")).collect::<Vec<_>>();
    // Refused before anything is acknowledged, and not compared address by address.
    for filter in [json!({}), json!({"resourceSubscriptions": addresses(40_000)}), json!({"toolsListChanged": false})] {
        let message = client.message("subscriptions/listen", json!({"notifications": filter}));
        let refused = client.post(&message).await.expect_status(400);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}
