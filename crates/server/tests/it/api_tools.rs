//! Tools over the API: listed, looked up, overridden, exported, created.

use std::sync::Arc;

use serde_json::{Value, json};
use toolhub_core::{BoxFuture, CallContext, StoreRole, ToolHub, dynamic};
use toolhub_server::{Backup, HostControl, HostControlError, ReloadReport, Server, ToolChangeError};

use crate::support_api::{api_fixture, send, settings};

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_listed_by_name_and_filtered() {
    let api = api_fixture().await;
    let all = api.get("/api/v1/tools").await.expect_status(200);
    assert_eq!(names(&all), ["add", "broken", "look", "order", "rare", "report", "slow"]);
    assert_eq!(all["nextCursor"], Value::Null);
    let add = &all["items"][0];
    assert_eq!(
        (&add["status"], &add["reason"], &add["kind"]),
        (&json!("available"), &json!("never run"), &json!("stateless"))
    );
    assert_eq!(add["stats"]["calls"], 0);
    assert_eq!(names(&api.get("/api/v1/tools?tag=numbers").await.expect_status(200)), ["add"]);
    assert_eq!(names(&api.get("/api/v1/tools?q=SOMETHING").await.expect_status(200)), ["order"]);
    assert_eq!(names(&api.get("/api/v1/tools?status=failed").await.expect_status(200)), [""; 0]);
    assert_eq!(names(&api.get("/api/v1/tools?kind=rest").await.expect_status(200)), [""; 0]);
    api.get("/api/v1/tools?status=gone").await.expect_problem(422, "invalid_request");
    api.get("/api/v1/tools?color=red").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn reasons_of_statuses_come_in_the_language_that_is_asked_for() {
    let api = api_fixture().await;
    for (language, reason) in [("zh-CN", "尚未执行"), ("en", "never run"), ("de", "never run")] {
        let get =
            async |path| api.request("GET", path, None, &[("accept-language", language)]).await.expect_status(200);
        assert_eq!(get("/api/v1/tools").await["items"][0]["reason"], reason);
        assert_eq!(get("/api/v1/tools/add").await["reason"], reason);
        assert_eq!(get("/api/v1/tools/add/explain").await["reason"], reason);
    }
}

#[tokio::test]
async fn no_tool_has_the_name_of_a_route_beside_those_of_tools() {
    let api = api_fixture().await;
    let document = api.get("/openapi.json").await.expect_status(200);
    let paths = document["paths"].as_object().unwrap().keys();
    let routes: Vec<&str> = paths
        .filter_map(|path| path.strip_prefix("/api/v1/tools/")?.split('/').next())
        .filter(|segment| !segment.starts_with('{'))
        .collect();
    assert!(routes.contains(&"export"), "{routes:?}");
    for name in routes {
        let refused = api
            .hub
            .register(dynamic(name, json!({"type": "object"}), async |given: Value, _: CallContext| Ok(given)))
            .unwrap_err();
        assert!(refused.to_string().contains(&format!("`{name}_tool`")), "{refused}");
    }
}

#[tokio::test]
async fn a_list_of_tools_goes_on_where_a_page_ended() {
    let api = api_fixture().await;
    let (mut path, mut found) = ("/api/v1/tools?limit=3".to_owned(), Vec::new());
    loop {
        let reply = api.get(&path).await;
        let page = reply.expect_status(200);
        found.extend(names(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/api/v1/tools?limit=3&cursor={cursor}");
        assert_eq!(reply.header("link"), format!("<{path}>; rel=\"next\""));
    }
    assert_eq!(found, ["add", "broken", "look", "order", "rare", "report", "slow"]);
    api.get("/api/v1/tools?cursor=elsewhere").await.expect_problem(422, "invalid_request");
    api.get("/api/v1/tools?limit=0").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn one_tool_is_shown_whole_and_an_unknown_one_suggests_others() {
    let api = api_fixture().await;
    let add = api.get("/api/v1/tools/add").await.expect_status(200);
    assert_eq!(add["parameters"]["required"], json!(["a", "b"]));
    assert!(add["policy"]["timeoutMs"].is_u64() && add["standing"]["shouldRebind"] == false, "{add}");
    let unknown = api.get("/api/v1/tools/ad").await.expect_problem(404, "tool_not_found");
    assert_eq!(unknown["suggestions"][0], "add");
}

#[tokio::test]
async fn a_status_set_by_hand_holds_for_everybody_until_it_is_reset() {
    let api = api_fixture().await;
    let body = json!({"status": "maintenance", "reason": "new disk", "until": "2999-01-01T00:00:00.000Z"});
    let set = api.request("PUT", "/api/v1/tools/add/status", Some(body), &[]).await.expect_status(200);
    assert_eq!((&set["status"], &set["reason"]), (&json!("maintenance"), &json!("in maintenance: new disk")));
    let call = api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await;
    call.expect_problem(503, "tool_maintenance");
    assert_eq!(names(&api.get("/api/v1/tools?status=maintenance").await.expect_status(200)), ["add"]);
    let reset = api.request("POST", "/api/v1/tools/add/reset", None, &[]).await.expect_status(200);
    assert_eq!(reset["status"], "available");
    let invalid = api.request("PUT", "/api/v1/tools/add/status", Some(json!({"status": "ready"})), &[]).await;
    invalid.expect_problem(422, "invalid_request");
    let invalid =
        api.request("PUT", "/api/v1/tools/add/status", Some(json!({"status": "failed", "raeson": "x"})), &[]).await;
    let invalid = invalid.expect_problem(422, "invalid_request");
    assert_eq!(invalid["errors"][0]["pointer"], "/raeson");
    assert!(invalid["errors"][0]["detail"].as_str().unwrap().contains("did you mean `reason`?"), "{invalid}");
    let unknown = api.request("PUT", "/api/v1/tools/ad/status", Some(json!({"status": "failed"})), &[]).await;
    unknown.expect_problem(404, "tool_not_found");
}

#[tokio::test]
async fn tools_are_exported_for_a_provider_and_a_thread_gets_what_it_is_offered() {
    let api = api_fixture().await;
    let named = |list: &Value, at: &str| -> Vec<String> {
        let tools = list["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool.pointer(at).unwrap().as_str().unwrap().to_owned()).collect()
    };
    let all = api.get("/api/v1/tools/export?format=openai").await.expect_status(200);
    assert_eq!(named(&all, "/function/name").len(), 7);
    let offered = api.get("/api/v1/tools/export?format=anthropic&threadId=t1").await.expect_status(200);
    assert!(!named(&offered, "/name").contains(&"report".into()), "{offered}");
    api.post("/api/v1/tools/look/calls", json!({"threadId": "t1"})).await.expect_status(200);
    let offered = api.get("/api/v1/tools/export?format=anthropic&threadId=t1").await.expect_status(200);
    assert!(named(&offered, "/name").contains(&"report".into()), "{offered}");
    for format in ["openai-responses", "gemini", "mcp"] {
        assert_eq!(
            api.get(&format!("/api/v1/tools/export?format={format}")).await.expect_status(200)["format"],
            format
        );
    }
    api.get("/api/v1/tools/export?format=fax").await.expect_problem(422, "invalid_request");
    api.get("/api/v1/tools/export").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn tools_do_not_come_over_the_api_where_nobody_makes_them_and_commands_never() {
    let api = api_fixture().await;
    api.post("/api/v1/tools", json!({"name": "x", "builtin": "clock"})).await.expect_problem(422, "invalid_request");
    let refused =
        api.post("/api/v1/tools", json!({"name": "x", "command": "rm"})).await.expect_problem(422, "invalid_request");
    assert!(refused["detail"].as_str().unwrap().contains("not accepted through the API"), "{refused}");
    api.request("DELETE", "/api/v1/tools/ad", None, &[]).await.expect_problem(404, "tool_not_found");
}

#[tokio::test]
async fn a_disabled_tool_is_refused_until_it_is_enabled() {
    let api = api_fixture().await;
    let off = api.post("/api/v1/tools/add/disable", json!({"reason": "too dear"})).await.expect_status(200);
    assert_eq!(off["status"], "unavailable");
    assert!(off["reason"].as_str().unwrap().contains("too dear"), "{off}");
    let call = json!({"arguments": {"a": 1, "b": 2}});
    api.post("/api/v1/tools/add/calls", call.clone()).await.expect_problem(503, "tool_unavailable");
    assert_eq!(
        api.request("POST", "/api/v1/tools/add/enable", None, &[]).await.expect_status(200)["status"],
        "available"
    );
    api.post("/api/v1/tools/add/calls", call).await.expect_status(200);
    assert_eq!(
        api.request("POST", "/api/v1/tools/add/disable", None, &[]).await.expect_status(200)["status"],
        "unavailable"
    );
    api.request("POST", "/api/v1/tools/ad/enable", None, &[]).await.expect_problem(404, "tool_not_found");
}

/// A host program whose tools return their arguments; all other tools count as configured.
struct EchoToolHost(ToolHub);

impl HostControl for EchoToolHost {
    fn config(&self) -> Value {
        Value::Null
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>> {
        Box::pin(async { Err(HostControlError::Unsupported("there is no file".into())) })
    }

    fn backup(&self, _: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        Box::pin(async { Err(HostControlError::Unsupported("there is no store".into())) })
    }

    fn create_tool(&self, tool: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        Box::pin(async move {
            if tool["builtin"] != "echo" {
                return Err(ToolChangeError::Refused("the only builtin is `echo`".into()));
            }
            let name = tool["name"].as_str().unwrap();
            let echo = dynamic(name, json!({"type": "object"}), async |given: Value, _: CallContext| Ok(given));
            self.0.register(echo.category("api")).map_err(|_| ToolChangeError::NameTaken)
        })
    }

    fn replace_tool<'a>(&'a self, name: &'a str, tool: Value) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        Box::pin(async move {
            self.remove_tool(name).await?;
            self.create_tool(tool).await
        })
    }

    fn remove_tool<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        Box::pin(async move {
            let made_here = self.0.get(name).is_some_and(|tool| tool.definition.metadata.category.is_some());
            if !made_here {
                return Err(ToolChangeError::Configured);
            }
            self.0.unregister(name).await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn tools_come_and_go_over_the_api_but_not_those_of_the_config() {
    let api = api_fixture().await;
    let host_control = Arc::new(EchoToolHost(api.hub.clone()));
    let router = Server::with_host_control(api.hub.clone(), api.store.clone(), settings(), host_control).router();
    let send = |method: &'static str, path: &'static str, body: Value| {
        let (router, body) = (router.clone(), (!body.is_null()).then(|| body.to_string()));
        async move { send(&router, method, path, body, &[]).await }
    };
    let echo = json!({"name": "echo", "builtin": "echo"});
    let created = send("POST", "/api/v1/tools", echo.clone()).await;
    assert_eq!(
        (created.expect_status(201)["name"].clone(), created.header("location")),
        (json!("echo"), "/api/v1/tools/echo")
    );
    assert_eq!(
        api.post("/api/v1/tools/echo/calls", json!({"arguments": {"a": 1}})).await.expect_status(200)["output"],
        json!({"a": 1})
    );
    send("POST", "/api/v1/tools", echo).await.expect_problem(409, "tool_exists");
    send("PUT", "/api/v1/tools/echo", json!({"builtin": "echo"})).await.expect_status(200);
    send("PUT", "/api/v1/tools/other", json!({"builtin": "echo"})).await.expect_status(201);
    send("PUT", "/api/v1/tools/other", json!({"name": "echo", "builtin": "echo"}))
        .await
        .expect_problem(422, "invalid_request");
    send("PUT", "/api/v1/tools/add", json!({"builtin": "echo"})).await.expect_problem(409, "tool_exists");
    let configured = send("DELETE", "/api/v1/tools/add", Value::Null).await.expect_problem(409, "conflict");
    assert!(configured["detail"].as_str().unwrap().contains("comes from the config"), "{configured}");
    assert_eq!(send("DELETE", "/api/v1/tools/other", Value::Null).await.status, 204);
    send("DELETE", "/api/v1/tools/other", Value::Null).await.expect_problem(404, "tool_not_found");
    let unknown = json!({"name": "x", "builtin": "fax"});
    send("POST", "/api/v1/tools", unknown).await.expect_problem(422, "invalid_request");
    send("POST", "/api/v1/tools", json!({"name": "a b"})).await.expect_problem(422, "invalid_request");
    send("POST", "/api/v1/tools", json!({"builtin": "echo"})).await.expect_problem(422, "invalid_request");
}
