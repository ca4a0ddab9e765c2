//! Events over the API: heard as they happen, and afterwards.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolhub_core::{
    View,
    export::Format,
    ids::{Tenant, ThreadId},
    status::ToolStatus,
};

use toolhub_server::Server;

use crate::support_api::{LONG, Shop, settings, shop};

async fn maintain(shop: &Shop, tool: &str) {
    let body = json!({"status": "maintenance"});
    shop.ask("PUT", &format!("/api/v1/tools/{tool}/status"), Some(body), &[]).await.is(200);
}

#[tokio::test]
async fn listeners_hear_the_sorts_they_asked_for() {
    let shop = shop().await;
    let mut statuses = shop.stream("/api/v1/events?types=tool.status.*,hub.cleared", &[]).await;
    let mut all = shop.stream("/api/v1/events", &[]).await;
    shop.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await.is(200);
    maintain(&shop, "add").await;
    let (id, name, data) = statuses.next().await.unwrap();
    assert_eq!(name, "tool.status.changed");
    assert_eq!((&data["toolName"], &data["newStatus"]), (&json!("add"), &json!("maintenance")));
    assert_eq!(data["id"].to_string(), id);
    assert!(data["timestamp"].is_string());
    let (_, completed) = all.named("tool.execution.completed").await;
    assert_eq!(completed["toolName"], "add");
    all.named("tool.status.changed").await;
}

#[tokio::test]
async fn whoever_comes_back_hears_what_is_kept_since_then() {
    let shop = shop().await;
    let mut events = shop.stream("/api/v1/events?types=tool.status.changed", &[]).await;
    maintain(&shop, "add").await;
    let (id, _) = events.named("tool.status.changed").await;
    drop(events);
    maintain(&shop, "look").await;
    maintain(&shop, "slow").await;
    let mut again = shop.stream("/api/v1/events?types=tool.status.changed", &[("last-event-id", &id)]).await;
    maintain(&shop, "rare").await;
    for tool in ["look", "slow", "rare"] {
        assert_eq!(again.named("tool.status.changed").await.1["toolName"], tool);
    }
    shop.ask("GET", "/api/v1/events", None, &[("last-event-id", "yesterday")]).await.problem(422, "invalid_request");
}

#[tokio::test]
async fn a_tenant_hears_its_own_and_what_concerns_everybody() {
    let shop = shop().await;
    let mut events = shop.stream("/api/v1/events", &[]).await;
    let foreign = shop.hub.call("add", json!({"a": 1, "b": 2})).tenant(Tenant::new("other").unwrap()).await;
    let own = shop.hub.call("add", json!({"a": 1, "b": 2})).await;
    let (_, heard) = events.named("tool.execution.completed").await;
    assert_eq!(heard["callId"], json!(own.id));
    assert_ne!(heard["callId"], json!(foreign.id));
    shop.hub.set_tool_status("add", ToolStatus::Maintenance, None, None, View::Shared).await.unwrap();
    events.named("tool.status.changed").await;
}

#[tokio::test]
async fn a_listener_to_one_thread_hears_of_no_other() {
    let shop = shop().await;
    let mut events = shop.stream("/api/v1/events?threadId=t1&types=tool.status.changed", &[]).await;
    let tenant = Tenant::default();
    for id in ["t2", "t1"] {
        let thread = ThreadId::new(id).unwrap();
        let view = View::Thread(&tenant, &thread);
        shop.hub.set_tool_status("add", ToolStatus::Failed, None, None, view).await.unwrap();
    }
    let (_, heard) = events.named("tool.status.changed").await;
    assert_eq!(heard["threadId"], "t1");
    maintain(&shop, "look").await;
    assert_eq!(events.named("tool.status.changed").await.1["toolName"], "look");
}

#[tokio::test]
async fn a_listener_that_is_too_slow_is_told_so_and_hears_the_latest() {
    let shop = shop().await;
    let mut events = shop.stream("/api/v1/events?types=tool.executor.exported", &[]).await;
    for _ in 0..5_000 {
        let _ = shop.hub.export(Format::Mcp);
    }
    let (reset, name, _) = events.next().await.unwrap();
    assert_eq!(name, "stream.reset");
    let (next, name, _) = events.next().await.unwrap();
    assert_eq!(name, "tool.executor.exported");
    assert!(next.parse::<u64>().unwrap() > reset.parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_shows_that_it_lives() {
    let shop = shop().await;
    let mut events = shop.stream("/api/v1/events", &[]).await;
    assert_eq!(events.raw().await.unwrap(), "retry: 2000\n\n");
    let silent = tokio::time::Instant::now();
    assert_eq!(events.raw().await.unwrap(), ": ka\n\n");
    assert_eq!(silent.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn streams_end_when_the_server_goes_away() {
    let shop = shop().await;
    let bound = Server::new(shop.hub.clone(), shop.store.clone(), settings()).bind().await.unwrap();
    let mut socket = tokio::net::TcpStream::connect(bound.address()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(bound.serve(async { drop(stopped.await) }));
    socket.write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut heard = vec![0; 4096];
    assert!(tokio::time::timeout(LONG, socket.read(&mut heard)).await.unwrap().unwrap() > 0);
    drop(stop);
    tokio::time::timeout(LONG, socket.read_to_end(&mut heard)).await.expect("the stream ends").unwrap();
    tokio::time::timeout(LONG, served).await.expect("the server ends").unwrap().unwrap();
}
