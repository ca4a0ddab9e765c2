//! MCP servers over HTTP: listed, restarted, approved, and shown in health, metrics, explanations and events.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use toolhub_core::{
    BoxFuture, DefinitionChange, DefinitionDifference, SourceConnection, SourceHandle, SourceTool, SourceToolState,
    StoreRole, ToolHub,
    clock::Timestamp,
    testing::{TestSource, TestSourceControl, scripted},
};
use toolhub_server::{Backup, HostControl, HostControlError, ReloadReport, Scope, Server, ToolChangeError};

use crate::{
    support_api::{ApiFixture, api_fixture, send},
    support_listener::{make_key, settings_with_keys},
};

const SINCE: &str = "2027-01-31T12:00:00.000Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Adds the server `fs` with a tool that is registered, one that waits, and one that cannot be registered.
async fn add_fs(fixture: &ApiFixture) -> (TestSourceControl, SourceHandle) {
    let (source, mut control) = TestSource::new("fs");
    fixture.hub.add_source(Arc::new(source)).unwrap();
    let handle = control.handle().await;
    handle.replace_tools(vec![scripted("fs__read", []).0, scripted("fs__write", []).0.pending_approval("see")]).await;
    handle.connected().await;
    let tool = |name: &str, state, reason: Option<&str>| SourceTool {
        name: name.into(),
        tool_name: fixture.hub.get(&format!("fs__{name}")).map(|tool| tool.definition.name.clone()),
        state,
        reason: reason.map(String::from),
    };
    control.set_info(|info| {
        (info.status.connection, info.status.since) = (SourceConnection::Connected, time(SINCE));
        info.details.insert("protocolVersion".into(), "2025-11-25".into());
        info.tools = vec![
            tool("odd", SourceToolState::Quarantined, Some("its schema has an unknown keyword")),
            tool("read", SourceToolState::Registered, None),
            tool("write", SourceToolState::PendingApproval, None),
        ];
    });
    control.set_pending(vec![
        DefinitionChange {
            name: "write".into(),
            is_new: false,
            differences: vec![DefinitionDifference {
                path: "description".into(),
                before: Some("a".into()),
                after: Some("b".into()),
            }],
            digest: "d1".into(),
        },
        DefinitionChange { name: "link".into(), is_new: true, differences: Vec::new(), digest: "d2".into() },
    ]);
    (control, handle)
}

fn disconnect(control: &TestSourceControl, handle: &SourceHandle) {
    handle.disconnected("exited with 1");
    control.set_info(|info| {
        info.status.connection = SourceConnection::Disconnected;
        info.status.last_error = Some("exited with 1".into());
        info.status.next_attempt = Some(time("2027-01-31T12:00:05Z"));
    });
}

#[tokio::test]
async fn servers_are_listed_with_counts_and_shown_with_their_tools() {
    let fixture = api_fixture().await;
    assert_eq!(fixture.get("/api/v1/mcp-servers").await.expect_status(200), json!({"items": [], "nextCursor": null}));
    add_fs(&fixture).await;
    fixture.hub.add_source(Arc::new(TestSource::new("git").0)).unwrap();
    let first = fixture.get("/api/v1/mcp-servers?limit=1").await.expect_status(200);
    let counts = json!({"registered": 1, "pendingApproval": 1, "quarantined": 1});
    let fs = json!({"name": "fs", "connection": "connected", "since": SINCE, "toolCounts": counts});
    assert_eq!(first["items"], json!([fs]));
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = fixture.get(&format!("/api/v1/mcp-servers?limit=1&cursor={cursor}")).await.expect_status(200);
    assert_eq!((&second["items"][0]["name"], &second["nextCursor"]), (&json!("git"), &json!(null)));
    let shown = fixture.get("/api/v1/mcp-servers/fs").await.expect_status(200);
    assert_eq!(shown["details"], json!({"protocolVersion": "2025-11-25"}));
    let odd = json!({"name": "odd", "state": "quarantined", "reason": "its schema has an unknown keyword"});
    let read = json!({"name": "read", "toolName": "fs__read", "state": "registered"});
    let write = json!({"name": "write", "toolName": "fs__write", "state": "pending_approval"});
    assert_eq!(shown["tools"], json!([odd, read, write]));
}

#[tokio::test]
async fn an_unknown_server_is_404_with_the_closest_names() {
    let fixture = api_fixture().await;
    add_fs(&fixture).await;
    for (method, path) in
        [("GET", ""), ("POST", "/restart"), ("GET", "/logs"), ("GET", "/changes"), ("POST", "/approve")]
    {
        let reply = fixture.request(method, &format!("/api/v1/mcp-servers/fss{path}"), None, &[]).await;
        let problem = reply.expect_problem(404, "mcp_server_not_found");
        assert_eq!(problem["suggestions"], json!(["fs"]), "{method} {path}");
    }
    let far = fixture.get("/api/v1/mcp-servers/elsewhere").await.expect_problem(404, "mcp_server_not_found");
    assert_eq!(far["suggestions"], json!(null));
}

#[tokio::test]
async fn a_server_is_restarted_unless_it_is_disabled() {
    let fixture = api_fixture().await;
    let (control, _) = add_fs(&fixture).await;
    let reply = fixture.request("POST", "/api/v1/mcp-servers/fs/restart", None, &[]).await;
    assert_eq!(reply.expect_status(202)["name"], "fs");
    control.set_info(|info| info.status.connection = SourceConnection::Disabled);
    let reply = fixture.request("POST", "/api/v1/mcp-servers/fs/restart", None, &[]).await;
    reply.expect_problem(409, "conflict");
    assert_eq!(control.actions(), ["restart"]);
    let entries = fixture.get("/api/v1/audit").await.expect_status(200);
    assert_eq!(entries["items"][0]["act"], "mcp_server.restart", "{entries}");
}

#[tokio::test]
async fn the_last_log_lines_are_returned_oldest_first() {
    let fixture = api_fixture().await;
    let (control, _) = add_fs(&fixture).await;
    ["one", "two", "three"].iter().for_each(|line| control.log(line));
    let lines = async |query: &str| {
        fixture.get(&format!("/api/v1/mcp-servers/fs/logs{query}")).await.expect_status(200)["items"].clone()
    };
    assert_eq!(lines("").await, json!(["one", "two", "three"]));
    assert_eq!(lines("?limit=2").await, json!(["two", "three"]));
    assert_eq!(lines("?limit=900").await, json!(["one", "two", "three"]));
    fixture.get("/api/v1/mcp-servers/fs/logs?limit=all").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn changed_definitions_are_shown_and_approved_by_name_or_all() {
    let fixture = api_fixture().await;
    let (control, _) = add_fs(&fixture).await;
    let changes = async || fixture.get("/api/v1/mcp-servers/fs/changes").await.expect_status(200)["items"].clone();
    let link = json!({"name": "link", "isNew": true, "differences": [], "digest": "d2"});
    let difference = json!({"path": "description", "before": "a", "after": "b"});
    let write = json!({"name": "write", "isNew": false, "differences": [difference], "digest": "d1"});
    assert_eq!(changes().await, json!([link, write]));
    let path = "/api/v1/mcp-servers/fs/approve";
    let unknown = fixture.post(path, json!({"tools": ["wrte"]})).await.expect_problem(404, "tool_not_found");
    assert_eq!(unknown["suggestions"], json!(["write"]));
    fixture.post(path, json!({"tool": "write"})).await.expect_problem(422, "invalid_request");
    for empty in [json!({"tools": []}), json!({"digests": {}}), json!({"tools": null})] {
        fixture.post(path, empty).await.expect_status(422);
    }
    // What has changed again since it was shown is not approved.
    let stale = json!({"tools": ["link"], "digests": {"link": "d2", "write": "d0"}});
    let changed = fixture.post(path, stale).await.expect_problem(409, "conflict");
    assert_eq!(changed["detail"], "the definition of `write` has changed again");
    let approved = fixture.post(path, json!({"digests": {"write": "d1"}})).await.expect_status(200);
    assert_eq!(approved, json!({"approved": ["write"]}));
    assert_eq!(changes().await, json!([link]));
    let approved = fixture.request("POST", path, None, &[]).await.expect_status(200);
    assert_eq!(approved, json!({"approved": ["link"]}));
    assert_eq!(changes().await, json!([]));
    assert_eq!(control.actions(), ["approve write", "approve link"]);
}

#[tokio::test]
async fn operating_tools_needs_tools_write_and_approving_needs_admin() {
    let fixture = api_fixture().await;
    add_fs(&fixture).await;
    let scopes = [Scope::ToolsRead, Scope::ToolsCall, Scope::ToolsWrite, Scope::Admin];
    let (settings, keys): (Vec<_>, Vec<_>) =
        scopes.iter().map(|scope| make_key(scope.as_str(), "main", &[*scope])).unzip();
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings_with_keys(settings)).router();
    let status = json!({"status": "maintenance"}).to_string();
    let expected = [
        ("GET", "/api/v1/mcp-servers", None, [200, 403, 403, 200]),
        ("GET", "/api/v1/mcp-servers/fs", None, [200, 403, 403, 200]),
        ("GET", "/api/v1/mcp-servers/fs/changes", None, [200, 403, 403, 200]),
        // It has the lines of all tenants.
        ("GET", "/api/v1/mcp-servers/fs/logs", None, [403, 403, 403, 200]),
        ("POST", "/api/v1/mcp-servers/fs/restart", None, [403, 403, 202, 202]),
        ("POST", "/api/v1/mcp-servers/fs/approve", None, [403, 403, 403, 200]),
        ("PUT", "/api/v1/tools/add/status", Some(status), [403, 403, 200, 200]),
        ("POST", "/api/v1/tools/add/reset", None, [403, 403, 200, 200]),
        ("POST", "/api/v1/tools/add/disable", None, [403, 403, 200, 200]),
        ("POST", "/api/v1/tools/add/enable", None, [403, 403, 200, 200]),
        ("DELETE", "/api/v1/tools/none", None, [403, 403, 403, 404]),
    ];
    for (method, path, body, statuses) in expected {
        for ((key, scope), status) in keys.iter().zip(scopes).zip(statuses) {
            let token = format!("Bearer {key}");
            let reply = send(&router, method, path, body.clone(), &[("authorization", &token)]).await;
            assert_eq!(reply.status, status, "{method} {path} with {scope}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_connected_is_degraded_but_the_hub_is_ready() {
    let fixture = api_fixture().await;
    let (control, handle) = add_fs(&fixture).await;
    let (off, off_control) = TestSource::new("off");
    off_control.set_info(|info| info.status.connection = SourceConnection::Disabled);
    fixture.hub.add_source(Arc::new(off)).unwrap();
    let ready = fixture.get("/readyz?verbose").await;
    assert!(ready.text.contains("[+]mcp server fs ok\n[+]mcp server off disabled\n"), "{ready:?}");
    disconnect(&control, &handle);
    let ready = fixture.get("/readyz?verbose").await;
    let line = format!(
        "[!]mcp server fs degraded: disconnected since {SINCE}: exited with 1; next attempt at 2027-01-31T12:00:05.000Z\n"
    );
    assert_eq!(ready.status, 200);
    assert!(ready.text.contains(&line) && ready.text.ends_with("ok\n"), "{ready:?}");
    let metrics = fixture.get("/metrics").await.text;
    assert!(metrics.contains("toolhub_mcp_server_up{server=\"fs\"} 0\n"), "{metrics}");
    assert!(!metrics.contains("server=\"off\""), "{metrics}");
    assert!(!metrics.contains("mcp_client_operation_duration_seconds_count"), "{metrics}");
    assert!(metrics.contains("toolhub_mcp_output_mismatches_total{server=\"fs\"} 0\n"), "{metrics}");
    control.record_call(Duration::from_millis(30));
    control.record_mismatch();
    control.set_info(|info| info.status.connection = SourceConnection::Connected);
    let metrics = fixture.get("/metrics").await.text;
    assert!(metrics.contains("toolhub_mcp_server_up{server=\"fs\"} 1\n"), "{metrics}");
    assert!(metrics.contains("toolhub_mcp_output_mismatches_total{server=\"fs\"} 1\n"), "{metrics}");
    let count = "mcp_client_operation_duration_seconds_count{server=\"fs\",mcp_method_name=\"tools/call\"} 1\n";
    assert!(metrics.contains(count), "{metrics}");
}

#[tokio::test]
async fn an_explanation_names_the_server_and_why_it_offers_no_such_tool() {
    let fixture = api_fixture().await;
    let (control, handle) = add_fs(&fixture).await;
    let explain = async |tool: &str| fixture.get(&format!("/api/v1/tools/{tool}/explain")).await;
    let shown = explain("fs__read").await.expect_status(200);
    assert_eq!(shown["source"], json!({"name": "fs", "connection": "connected", "since": SINCE}));
    assert_eq!(explain("add").await.expect_status(200)["source"], json!(null));
    disconnect(&control, &handle);
    let shown = explain("fs__read").await.expect_status(200);
    let next = "2027-01-31T12:00:05.000Z";
    let line = format!("Server `fs`: disconnected since {SINCE}: exited with 1; next attempt at {next}.");
    assert!(shown["text"].as_str().unwrap().lines().any(|shown| shown == line), "{shown}");
    assert_eq!(
        (&shown["source"]["lastError"], &shown["source"]["nextAttempt"]),
        (&json!("exited with 1"), &json!(next))
    );
    let odd = explain("fs__odd").await.expect_problem(404, "tool_not_found");
    let why = "`fs__odd` is not registered: the server `fs` offers it, but its schema has an unknown keyword";
    assert_eq!(odd["detail"], why);
    let other = explain("fs__raed").await.expect_problem(404, "tool_not_found");
    assert_eq!(other["detail"], "no tool is named `fs__raed`");
    // Nothing is known of a server that has not listed its tools yet.
    control.set_info(|info| info.tools.clear());
    let other = explain("fs__more").await.expect_problem(404, "tool_not_found");
    let why =
        format!("no tool is named `fs__more`; the server `fs`, which may add it, is disconnected since {SINCE}: ");
    assert!(other["detail"].as_str().unwrap().starts_with(&why), "{other}");
}

#[tokio::test]
async fn connections_of_servers_are_events() {
    let fixture = api_fixture().await;
    let (control, handle) = add_fs(&fixture).await;
    let mut events = fixture.stream("/api/v1/events?types=mcp.server.*", &[]).await;
    disconnect(&control, &handle);
    handle.connected().await;
    let (_, lost) = events.next_named("mcp.server.disconnected").await;
    assert_eq!(
        (&lost["serverName"], &lost["tools"], &lost["reason"]),
        (&json!("fs"), &json!(2), &json!("exited with 1"))
    );
    let (_, back) = events.next_named("mcp.server.connected").await;
    assert_eq!((&back["serverName"], &back["tools"]), (&json!("fs"), &json!(2)));
}

/// A host program that adds test sources, and has `fs` in its config.
struct Host(ToolHub);

impl HostControl for Host {
    fn config(&self) -> Value {
        json!({})
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>> {
        Box::pin(async { Err(HostControlError::Unsupported("nothing to reload".into())) })
    }

    fn backup(&self, _: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        Box::pin(async { Err(HostControlError::Unsupported("nothing to back up".into())) })
    }

    fn add_mcp_server(&self, server: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        Box::pin(async move {
            if server.get("url").is_none() {
                return Err(ToolChangeError::Refused("the server has no `url`".into()));
            }
            let source = TestSource::new(server["name"].as_str().unwrap()).0;
            self.0.add_source(Arc::new(source)).map_err(|_| ToolChangeError::NameTaken)
        })
    }

    fn remove_mcp_server<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        Box::pin(async move {
            if name == "fs" {
                return Err(ToolChangeError::Configured);
            }
            self.0.remove_source(name).await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn servers_are_added_and_removed_by_admins_and_never_as_programs() {
    let fixture = api_fixture().await;
    add_fs(&fixture).await;
    let (admin_setting, admin) = make_key("admin", "main", &[Scope::Admin]);
    let (writer_setting, writer) = make_key("writer", "main", &[Scope::ToolsWrite]);
    let settings = settings_with_keys([admin_setting, writer_setting]);
    let host = Arc::new(Host(fixture.hub.clone()));
    let router = Server::with_host_control(fixture.hub.clone(), fixture.store.clone(), settings, host).router();
    let request = async |method: &str, path: &str, body: Option<Value>, key: &str| {
        let (path, key) = (format!("/api/v1/mcp-servers{path}"), format!("Bearer {key}"));
        send(&router, method, &path, body.map(|body| body.to_string()), &[("authorization", &key)]).await
    };
    let web = || Some(json!({"name": "web", "url": "https://mcp.example/mcp"}));
    request("POST", "", web(), &writer).await.expect_problem(403, "forbidden");
    let added = request("POST", "", web(), &admin).await;
    assert_eq!(added.header("location"), "/api/v1/mcp-servers/web");
    assert_eq!(added.expect_status(201)["connection"], "connecting");
    request("POST", "", web(), &admin).await.expect_problem(409, "conflict");
    let program = json!({"name": "sh", "command": "sh", "args": ["-c", "id"]});
    let refused = request("POST", "", Some(program), &admin).await.expect_problem(403, "command_forbidden");
    assert!(refused["hint"].as_str().unwrap().contains("[mcp_servers.NAME]"), "{refused}");
    for bad in [json!({}), json!({"name": 7}), json!({"name": "a b", "url": "x"}), json!({"name": "no_url"})] {
        request("POST", "", Some(bad), &admin).await.expect_problem(422, "invalid_request");
    }
    request("DELETE", "/web", None, &writer).await.expect_problem(403, "forbidden");
    let configured = request("DELETE", "/fs", None, &admin).await.expect_problem(409, "conflict");
    assert!(configured["hint"].as_str().unwrap().contains("remove [mcp_servers.fs]"), "{configured}");
    request("DELETE", "/web", None, &admin).await.expect_status(204);
    request("DELETE", "/web", None, &admin).await.expect_problem(404, "mcp_server_not_found");
}

#[tokio::test]
async fn only_admins_see_how_a_program_is_started() {
    let fixture = api_fixture().await;
    let (control, _) = add_fs(&fixture).await;
    control.set_info(|info| drop(info.admin_details.insert("command".into(), "npx -y files".into())));
    let (admin_setting, admin) = make_key("admin", "main", &[Scope::Admin]);
    let (reader_setting, reader) = make_key("reader", "main", &[Scope::ToolsRead]);
    let settings = settings_with_keys([admin_setting, reader_setting]);
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    let details = async |key: &str| {
        let key = format!("Bearer {key}");
        let shown = send(&router, "GET", "/api/v1/mcp-servers/fs", None, &[("authorization", &key)]).await;
        shown.expect_status(200)["details"].clone()
    };
    assert_eq!(details(&admin).await, json!({"protocolVersion": "2025-11-25", "command": "npx -y files"}));
    assert_eq!(details(&reader).await, json!({"protocolVersion": "2025-11-25"}));
}
