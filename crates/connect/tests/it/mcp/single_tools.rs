//! Single tools of servers, with names and settings of their own.

use serde_json::json;
use toolhub_connect::config::{ToolConfig, create_tool};
use toolhub_core::{
    ErrorKind, HubChange, Kind, NoArguments, SourceConnection, SourceToolState, ToolError, ToolHub, status::ToolStatus,
    tool,
};

use super::{HttpServer, TestServer, connected, info, names, shared_status, text, tools, wait_for};

async fn noop(_: NoArguments) -> Result<&'static str, ToolError> {
    Ok("a function")
}

async fn wait_until_registered(hub: &ToolHub, tool: &str) {
    wait_for("the tool", || hub.get(tool)).await;
    wait_for("the connection", || {
        hub.sources().iter().all(|source| source.info().status.connection == SourceConnection::Connected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_tool_of_a_server_is_offered_under_another_name_with_its_own_settings() {
    let server = TestServer::new(&tools(&["echo", "exit"]));
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let schema = parameters.clone();
    let named = server
        .server()
        .exclude(["e*"])
        .tool_as("look", "echo", move |tool| tool.description("Looks at a city.").parameters(schema.clone()));
    let hub = connected(named.tool_as("leave", "exit", |tool| tool).tool_as("lost", "missing", |tool| tool)).await;
    assert_eq!(names(&hub), ["leave", "look"]);
    let look = hub.get("look").unwrap();
    assert_eq!((look.definition.description.as_str(), &look.definition.parameters), ("Looks at a city.", &parameters));
    assert_eq!(hub.call("look", json!({})).await.error_kind(), Some(ErrorKind::ArgumentsInvalid));
    assert!(text(&hub, "look", json!({"city": "Oslo"})).await.contains("Oslo"));
    let info = info(&hub);
    let lost = info.tools.iter().find(|tool| tool.name == "missing").unwrap();
    assert_eq!(lost.state, SourceToolState::Quarantined);
    assert!(lost.reason.as_ref().unwrap().contains("`lost` cannot be offered"), "{lost:?}");
    // It shares the connection of its server.
    hub.call("leave", json!({})).await;
    assert_eq!(shared_status(&hub, "look").await, ToolStatus::Unavailable);
}

#[tokio::test]
async fn a_single_tool_comes_and_goes_with_a_server_of_its_own() {
    let server = TestServer::new(&tools(&["pid", "echo"]));
    let hub = ToolHub::builder().tool(tool("add", noop)).build().await.unwrap();
    let who = || server.named("who").single_tool("pid", |tool| tool.description("Who is it?")).unwrap();
    hub.register_mcp(who()).unwrap();
    wait_until_registered(&hub, "who").await;
    assert_eq!(names(&hub), ["add", "who"]);
    assert_eq!(hub.get("who").unwrap().definition.kind, Kind::Mcp);
    let pid = text(&hub, "who", json!({})).await;
    let taken = hub.register_mcp(who()).unwrap_err().to_string();
    assert!(taken.contains("`who`"), "{taken}");
    let wrong = hub.register_mcp(tool("minus", noop)).unwrap_err().to_string();
    assert!(wrong.contains("use `register_stateless`"), "{wrong}");
    let lost = hub.register_mcp(server.named("x").single_tool("pid", |tool| tool).unwrap().description("lost"));
    assert!(lost.unwrap_err().to_string().contains("in the closure"));
    let name_taken = hub.register(server.named("add").single_tool("pid", |tool| tool).unwrap()).unwrap_err();
    assert!(name_taken.to_string().contains("there is a tool named `add` already"), "{name_taken}");
    assert_eq!(hub.sources().len(), 1, "nothing was added by what was refused");
    hub.unregister("who").await.unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "its process is gone");
    assert_eq!((names(&hub), hub.sources().len()), (vec!["add".to_owned()], 0));
}

#[tokio::test]
async fn a_change_replaces_a_single_tool_and_a_function_by_each_other() {
    let server = TestServer::new(&tools(&["pid"]));
    let single = || server.named("who").single_tool("pid", |tool| tool).unwrap();
    let waits = || tool("next", noop).after("who");
    let hub = ToolHub::builder().tool(single()).tool(waits()).build().await.unwrap();
    wait_until_registered(&hub, "who").await;
    let pid = text(&hub, "who", json!({})).await;
    hub.apply(HubChange::tools_only().put(tool("who", noop))).await.unwrap();
    assert_eq!(text(&hub, "who", json!({})).await, "a function");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "its process is gone");
    // A change that is refused leaves everything as it was.
    let refused = HubChange::tools_only().put(single()).put(tool("odd", noop).after("nothing"));
    hub.apply(refused).await.unwrap_err();
    assert_eq!((text(&hub, "who", json!({})).await.as_str(), hub.sources().len()), ("a function", 0));
    for _ in 0..2 {
        hub.apply(HubChange::tools_only().put(single())).await.unwrap();
        wait_until_registered(&hub, "who").await;
        text(&hub, "who", json!({})).await;
    }
    hub.apply(HubChange::tools_only().remove("who")).await.unwrap();
    assert_eq!((names(&hub), hub.sources().len()), (vec!["next".to_owned()], 0));
}

#[tokio::test]
async fn a_tool_of_an_mcp_server_is_made_of_json() {
    let server = HttpServer::start(&[]);
    let config: ToolConfig = serde_json::from_value(json!({
        "name": "look", "kind": "mcp", "server_url": server.url, "tool": "echo", "allow_hosts": ["127.0.0.1"],
        "headers": {"X-Team": "blue"}, "description": "Looks.", "annotations": {"read_only": true}, "timeout": "5s",
    }))
    .unwrap();
    let hub = ToolHub::builder().build().await.unwrap();
    hub.register(create_tool(&config).unwrap()).unwrap();
    wait_until_registered(&hub, "look").await;
    assert!(text(&hub, "look", json!({"city": "Oslo"})).await.contains("Oslo"));
    let look = hub.get("look").unwrap();
    assert_eq!(look.definition.description, "Looks.");
    assert_eq!(look.limits().timeout, std::time::Duration::from_secs(5));
    assert!(look.definition.annotations.read_only);
}
