//! Event streams over the API: live, and resumed.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolhub_core::{
    StatusScope,
    export::Format,
    ids::{Tenant, ThreadId},
    status::ToolStatus,
};

use toolhub_server::Server;

use crate::support_api::{ApiFixture, TEST_TIMEOUT, api_fixture, settings};

async fn set_maintenance(api: &ApiFixture, tool: &str) {
    let body = json!({"status": "maintenance"});
    api.request("PUT", &format!("/api/v1/tools/{tool}/status"), Some(body), &[]).await.expect_status(200);
}

#[tokio::test]
async fn listeners_hear_the_sorts_they_asked_for() {
    let api = api_fixture().await;
    let mut statuses = api.stream("/api/v1/events?types=tool.status.*,hub.cleared", &[]).await;
    let mut all = api.stream("/api/v1/events", &[]).await;
    api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await.expect_status(200);
    set_maintenance(&api, "add").await;
    let (id, name, data) = statuses.next().await.unwrap();
    assert_eq!(name, "tool.status.changed");
    assert_eq!((&data["toolName"], &data["newStatus"]), (&json!("add"), &json!("maintenance")));
    assert_eq!(data["id"].to_string(), id);
    assert!(data["timestamp"].is_string());
    let (_, completed) = all.next_named("tool.execution.completed").await;
    assert_eq!(completed["toolName"], "add");
    all.next_named("tool.status.changed").await;
}

#[tokio::test]
async fn whoever_comes_back_hears_what_is_kept_since_then() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events?types=tool.status.changed", &[]).await;
    set_maintenance(&api, "add").await;
    let (id, _) = events.next_named("tool.status.changed").await;
    drop(events);
    set_maintenance(&api, "look").await;
    set_maintenance(&api, "slow").await;
    let mut resumed = api.stream("/api/v1/events?types=tool.status.changed", &[("last-event-id", &id)]).await;
    set_maintenance(&api, "rare").await;
    for tool in ["look", "slow", "rare"] {
        assert_eq!(resumed.next_named("tool.status.changed").await.1["toolName"], tool);
    }
    api.request("GET", "/api/v1/events", None, &[("last-event-id", "yesterday")])
        .await
        .expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_tenant_hears_its_own_and_what_concerns_everybody() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events", &[]).await;
    let foreign = api.hub.call("add", json!({"a": 1, "b": 2})).tenant(Tenant::new("other").unwrap()).await;
    let own = api.hub.call("add", json!({"a": 1, "b": 2})).await;
    let (_, received) = events.next_named("tool.execution.completed").await;
    assert_eq!(received["callId"], json!(own.id));
    assert_ne!(received["callId"], json!(foreign.id));
    api.hub.set_tool_status("add", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    events.next_named("tool.status.changed").await;
}

#[tokio::test]
async fn a_listener_to_one_thread_hears_of_no_other() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events?threadId=t1&types=tool.status.changed", &[]).await;
    let tenant = Tenant::default();
    for id in ["t2", "t1"] {
        let thread = ThreadId::new(id).unwrap();
        let view = StatusScope::Thread(&tenant, &thread);
        api.hub.set_tool_status("add", ToolStatus::Failed, None, None, view).await.unwrap();
    }
    let (_, received) = events.next_named("tool.status.changed").await;
    assert_eq!(received["threadId"], "t1");
    set_maintenance(&api, "look").await;
    assert_eq!(events.next_named("tool.status.changed").await.1["toolName"], "look");
}

#[tokio::test]
async fn a_listener_that_is_too_slow_is_told_so_and_hears_the_latest() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events?types=tool.executor.exported", &[]).await;
    for _ in 0..5_000 {
        drop(api.hub.export(Format::Mcp));
    }
    drop(api.hub.export(Format::OpenAi));
    assert_eq!(events.next().await.unwrap().1, "stream.reset");
    while events.next_named("tool.executor.exported").await.1["format"] != "openai" {}
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_shows_that_it_lives() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events", &[]).await;
    assert_eq!(events.next_chunk().await.unwrap(), "retry: 2000\n\n");
    let silent = tokio::time::Instant::now();
    assert_eq!(events.next_chunk().await.unwrap(), ": ka\n\n");
    assert_eq!(silent.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn streams_end_when_the_server_goes_away() {
    let api = api_fixture().await;
    let bound = Server::new(api.hub.clone(), api.store.clone(), settings()).bind().await.unwrap();
    let mut socket = tokio::net::TcpStream::connect(bound.address()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(bound.serve(async { drop(stopped.await) }));
    socket.write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut received = vec![0; 4096];
    assert!(tokio::time::timeout(TEST_TIMEOUT, socket.read(&mut received)).await.unwrap().unwrap() > 0);
    drop(stop);
    tokio::time::timeout(TEST_TIMEOUT, socket.read_to_end(&mut received)).await.expect("the stream ends").unwrap();
    tokio::time::timeout(TEST_TIMEOUT, served).await.expect("the server ends").unwrap().unwrap();
}
