//! Lists become tools, and calls reach the server.

use std::sync::Arc;

use serde_json::json;
use toolhub_core::{
    ErrorKind, Policy, SourceToolState, ToolBuilder, ToolHub,
    ids::Tenant,
    status::{Language, ToolStatus},
    testing::EventRecorder,
};

use super::{TestServer, connected, info, names, shared_status, source, text, tools, wait_for};

#[tokio::test]
async fn the_tools_of_a_server_have_its_name_in_front_and_one_that_cannot_be_used_is_quarantined_alone() {
    let mut list = tools(&["echo", "pid", "echo"]);
    list.as_array_mut().unwrap().push(json!({"name": "odd", "inputSchema": {"type": "array"}}));
    let server = TestServer::new(&list);
    let hub = connected(server.server().exclude(["p*"])).await;
    assert_eq!(names(&hub), ["t__echo"]);
    let info = info(&hub);
    let quarantined = info.tools.iter().filter(|tool| tool.state == SourceToolState::Quarantined);
    let reasons: Vec<_> = quarantined.map(|tool| (tool.name.as_str(), tool.reason.clone().unwrap())).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert_eq!(info.details["protocolVersion"], "2026-07-28");
    assert_eq!(hub.get("t__echo").unwrap().source(), Some("t"));
    let why = hub.explain("t__odd", &Tenant::default(), None).await.unwrap_err().operator;
    let reason = &reasons.iter().find(|(name, _)| *name == "odd").unwrap().1;
    assert_eq!(why, format!("`t__odd` is not registered: the server `t` offers it, but {reason}"));
    let keeps_names = connected(server.server().prefix("")).await;
    assert_eq!(names(&keeps_names), ["echo", "pid"]);
}

#[tokio::test]
async fn a_call_carries_trace_and_key_and_brings_progress_and_log_lines_back() {
    let server = TestServer::new(&tools(&["echo", "work"]));
    let hub = connected(server.server().env("API_TOKEN", "s3cr3t-token")).await;
    let outcome = hub.call("t__echo", json!({"a": 1})).idempotency_key("k1").await;
    let echoed: serde_json::Value = serde_json::from_str(outcome.output.as_str().unwrap()).unwrap();
    assert_eq!(echoed["arguments"], json!({"a": 1}));
    assert_eq!(echoed["meta"]["dev.toolhub/idempotencyKey"], "k1");
    let mut recorder = EventRecorder::new(&hub);
    assert_eq!(text(&hub, "t__work", json!({})).await, "done");
    let progress = recorder.names().into_iter().filter(|name| *name == "call.progress").count();
    assert_eq!(progress, 3);
    let log = hub.sources()[0].log_lines().join("\n");
    assert!(log.contains("log line with") && !log.contains("s3cr3t-token"), "{log}");
}

#[tokio::test]
async fn outputs_fit_the_schema_of_the_server_and_one_that_cannot_be_used_is_not_promised() {
    let mut list = tools(&["echo", "pid", "work"]);
    list[0]["outputSchema"] = json!({"type": "object", "required": ["n"]});
    list[1]["outputSchema"] = json!({"$ref": "https://example.com/schema"});
    let hub = connected(TestServer::new(&list).server()).await;
    let echo = hub.get("t__echo").unwrap();
    assert!(echo.fits(&json!({"n": 1})) && !echo.fits(&json!("text")));
    let pid = hub.get("t__pid").unwrap();
    assert!(pid.definition.output_schema.is_none() && pid.fits(&json!("text")));
    let notes = info(&hub).details["notes"].to_string();
    assert!(notes.contains("`pid`: its `outputSchema` is left out"), "{notes}");
}

#[tokio::test]
async fn requests_to_a_server_are_measured_by_method() {
    let hub = connected(TestServer::new(&tools(&["echo"])).server()).await;
    for _ in 0..3 {
        text(&hub, "t__echo", json!({})).await;
    }
    let counts: Vec<_> =
        hub.sources()[0].operations().iter().map(|(method, latency)| (*method, latency.count)).collect();
    assert_eq!(counts, [("server/discover", 1), ("tools/list", 1), ("tools/call", 3)]);
}

#[tokio::test]
async fn an_output_that_does_not_fit_its_own_schema_passes_and_is_counted() {
    let mut list = tools(&["echo", "pid"]);
    list[0]["outputSchema"] = json!({"type": "object"});
    let hub = connected(TestServer::new(&list).server()).await;
    // More in a row than failures withhold a tool.
    for tool in ["t__pid", "t__echo", "t__echo", "t__echo", "t__echo"] {
        text(&hub, tool, json!({})).await;
    }
    assert_eq!(hub.sources()[0].output_mismatches(), 4);
    assert_eq!(shared_status(&hub, "t__echo").await, ToolStatus::Available);
}

#[tokio::test]
async fn calls_ask_for_approval_unless_the_owner_says_that_a_tool_is_read_only_or_trusts_the_server() {
    let server = TestServer::new(&tools(&["echo", "pid"]));
    let asking = |hub: &ToolHub, tool: &str| hub.get(tool).unwrap().rules(Language::English) == ["ask by default"];
    let hub = connected(server.server()).await;
    assert!(!asking(&hub, "t__echo"));
    let strict = TestServer::new(
        &json!([{"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": false}}]),
    );
    let hub = connected(strict.server()).await;
    assert!(asking(&hub, "t__echo"), "the server denies that it is read-only");
    let hub = connected(strict.server().trust()).await;
    assert!(!asking(&hub, "t__echo"));
    let allowed = Policy { confirm: Some(false), ..Policy::default() };
    let hub = connected(strict.server().policy(allowed)).await;
    assert!(!asking(&hub, "t__echo"));
    let hub = connected(strict.server().tool("echo", |tool| tool.description("refined"))).await;
    assert_eq!(hub.get("t__echo").unwrap().definition.description, "refined");
}

#[tokio::test]
async fn no_setting_makes_a_tool_read_only_whose_server_denies_it() {
    let mut list = tools(&["echo", "pid"]);
    list[0]["annotations"] = json!({"readOnlyHint": false});
    let server = TestServer::new(&list);
    let refined = server.server().tool("echo", ToolBuilder::read_only).tool_as("look", "echo", ToolBuilder::read_only);
    let hub = connected(refined.tool_as("who", "pid", ToolBuilder::read_only)).await;
    hub.register_mcp(server.named("single").single_tool("echo", ToolBuilder::read_only).unwrap()).unwrap();
    wait_for("the single tool", || hub.get("single")).await;
    let is_read_only = |tool: &str| hub.get(tool).unwrap().definition.annotations.read_only;
    assert!(is_read_only("t__pid") && is_read_only("who"));
    for denied in ["t__echo", "look", "single"] {
        assert!(!is_read_only(denied), "{denied}");
        assert!(hub.get(denied).unwrap().definition.annotations.destructive, "{denied}");
    }
}

#[tokio::test]
async fn a_tool_with_a_secret_in_its_name_is_quarantined_and_the_secret_shown_nowhere() {
    let server = TestServer::new(&tools(&["echo", "get_canary-1234567", "a"]));
    let hub = connected(server.server().env("API_TOKEN", "canary-1234567")).await;
    assert_eq!(names(&hub), ["t__a", "t__echo"]);
    let info = info(&hub);
    assert!(!format!("{info:?}").contains("canary"), "{info:#?}");
    let odd = info.tools.iter().find(|tool| tool.state == SourceToolState::Quarantined).unwrap();
    assert_eq!(
        (odd.name.as_str(), odd.reason.as_deref()),
        ("get_••••", Some("its name contains a secret of the server"))
    );
}

#[tokio::test]
async fn each_tenant_has_a_connection_of_its_own() {
    let server = TestServer::new(&tools(&["pid", "exit"]));
    let hub = connected(server.server()).await;
    let pid = async |tenant: &str| {
        let outcome = hub.call("t__pid", json!({})).tenant(Tenant::new(tenant).unwrap()).await;
        outcome.output.as_str().unwrap_or_else(|| panic!("{outcome:#?}")).to_owned()
    };
    let own = text(&hub, "t__pid", json!({})).await;
    let (a, b) = (pid("a").await, pid("b").await);
    assert!(own != a && a != b && own != b, "three processes: {own} {a} {b}");
    assert_eq!(pid("a").await, a, "the connection is kept");
    // What happens to the connection of one tenant does not concern the others.
    let exit = hub.call("t__exit", json!({})).tenant(Tenant::new("a").unwrap()).await;
    assert_eq!(exit.error_kind(), Some(ErrorKind::UpstreamUnreachable));
    assert_eq!((text(&hub, "t__pid", json!({})).await, pid("b").await), (own, b));
    assert_ne!(pid("a").await, a, "a new connection");
}

#[tokio::test]
async fn an_error_of_a_tool_is_passed_on() {
    let server = TestServer::new(&tools(&["fail", "nothing"]));
    let hub = connected(server.server()).await;
    let refused = hub.call("t__nothing", json!({})).await;
    assert_eq!(refused.error_kind(), Some(ErrorKind::ToolRefused), "{refused:#?}");
    assert!(refused.model_text().contains("unknown tool"));
    let failed = hub.call("t__fail", json!({"code": -32603})).await;
    assert_eq!(failed.error_kind(), Some(ErrorKind::UpstreamError));
}

#[tokio::test]
async fn a_server_without_a_prefix_cannot_take_the_names_of_another_server() {
    let (thief, files) = (TestServer::new(&tools(&["fs__read", "echo"])), TestServer::new(&tools(&["read"])));
    let hub = connected(thief.server().prefix("")).await;
    assert_eq!(names(&hub), ["echo", "fs__read"]);
    hub.add_source(Arc::new(source(files.named("fs")))).unwrap();
    let owner = || hub.get("fs__read").map(|tool| tool.source().map(String::from));
    wait_for("the tool of `fs`", || owner().filter(|owner| owner.as_deref() == Some("fs"))).await;
    let reason = wait_for("the quarantine", || {
        let tools = hub.source("t").unwrap().info().tools;
        tools.into_iter().find(|tool| tool.state == SourceToolState::Quarantined).and_then(|tool| tool.reason)
    });
    assert_eq!(reason.await, "the name `fs__read` is reserved for the tools of `fs`");
    let same = hub.add_source(Arc::new(source(thief.named("u").prefix("fs")))).unwrap_err();
    assert_eq!(
        same.to_string(),
        "the tools of `fs` and `u` have the same names, `fs__*`; choose another prefix for one of them"
    );
}
