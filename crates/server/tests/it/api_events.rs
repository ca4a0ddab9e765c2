//! Events over the API: heard as they happen, and afterwards.

use serde_json::json;
use toolhub_core::{
    View,
    ids::{Tenant, ThreadId},
    status::ToolStatus,
};

use crate::support_api::{Shop, shop};

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
