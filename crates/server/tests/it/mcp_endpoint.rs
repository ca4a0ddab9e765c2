//! The MCP endpoint: lists, calls, outcomes, threads and bad input, in both eras of the protocol.

use serde_json::{Value, json};
use toolhub_core::{CallContext, StatusScope, ToolError, dynamic, status::ToolStatus};
use toolhub_server::{Scope, Server};

use crate::{
    support_api::{ApiFixture, api_fixture, send},
    support_listener::{make_key, settings_with_keys},
    support_mcp::{LEGACY, MODERN, McpClient, events, initialize_message, text},
};

/// A client of each era.
async fn both(fixture: &ApiFixture) -> [McpClient; 2] {
    [McpClient::legacy(&fixture.router, "/mcp").await, McpClient::modern(&fixture.router, "/mcp")]
}

#[tokio::test]
async fn both_eras_list_and_call_the_tools_of_the_hub() {
    let fixture = api_fixture().await;
    for client in both(&fixture).await {
        let list = client.result("tools/list", json!({})).await;
        let names: Vec<&str> =
            list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert!(names.is_sorted() && names.contains(&"add") && names.contains(&"order"), "{names:?}");
        let add = list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "add").unwrap();
        assert_eq!(
            (&add["description"], &add["annotations"]["readOnlyHint"]),
            (&json!("Adds two numbers"), &json!(true))
        );
        assert_eq!(add["inputSchema"]["required"], json!(["a", "b"]));
        assert_eq!((&list["ttlMs"], &list["cacheScope"]), (&json!(60_000), &json!("private")));

        let result = client.call("add", json!({"a": 1, "b": 2})).await;
        assert_eq!((text(&result), &result["isError"]), ("3", &json!(false)));
        assert_eq!(result["resultType"], if client.session.is_some() { Value::Null } else { "complete".into() });
    }
    let calls = fixture.get("/api/v1/calls?tool=add").await.expect_status(200);
    assert_eq!(calls["items"].as_array().unwrap().len(), 2, "each call is in the journal");
}

#[tokio::test]
async fn what_a_model_can_repair_is_a_result_and_what_it_cannot_is_an_error() {
    let fixture = api_fixture().await;
    for client in both(&fixture).await {
        let result = client.call("add", json!({"a": "x", "b": 2})).await;
        assert_eq!(result["isError"], true);
        assert!(text(&result).contains("a: expected an integer"), "{result}");
        let result = client.call("broken", json!({})).await;
        assert_eq!((&result["isError"], &result["_meta"]["dev.toolhub/code"]), (&json!(true), &json!("tool_error")));
        assert!(result["structuredContent"].is_null());
        let error = client.error("tools/call", json!({"name": "ad", "arguments": {}})).await;
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().contains("did you mean `add`"), "{error}");
    }
}

#[tokio::test]
async fn structured_output_comes_with_the_same_as_text() {
    let fixture = api_fixture().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let tool = |name: &str, output: Value| {
        dynamic(name, json!({"type": "object"}), move |_: Value, _: CallContext| {
            let output = output.clone();
            async move { Ok::<_, ToolError>(output) }
        })
        .output_schema(schema.clone())
        .read_only()
    };
    let long = json!({"n": 1, "text": "x".repeat(30_000)});
    let tools = [
        tool("good", json!({"n": 1})),
        tool("odd", json!({"n": "one"})),
        tool("long", long.clone()),
        tool("other__good", json!({"n": 1})).origin("other", "good"),
    ];
    fixture.hub.register_all(tools).unwrap();
    for client in both(&fixture).await {
        let list = client.result("tools/list", json!({})).await;
        let tools = list["tools"].as_array().unwrap().iter().filter(|tool| tool["outputSchema"].is_object());
        let promised: Vec<&Value> = tools.map(|tool| &tool["name"]).collect();
        assert_eq!(promised, ["good", "long", "odd"], "answers of other servers are not held to a schema");
        let result = client.call("other__good", json!({})).await;
        assert_eq!(result["structuredContent"], json!({"n": 1}));
        let result = client.call("long", json!({})).await;
        assert_eq!(result["structuredContent"], long, "whole, also if its text is too long for a model");
        let result = client.call("good", json!({})).await;
        assert_eq!((&result["structuredContent"], text(&result)), (&json!({"n": 1}), "{\"n\":1}"));
        let result = client.call("odd", json!({})).await;
        assert_eq!((&result["structuredContent"], text(&result)), (&Value::Null, "{\"n\":\"one\"}"));
    }
}

#[tokio::test]
async fn a_call_that_needs_approval_names_it_to_the_model_and_links_it_for_the_user() {
    let fixture = api_fixture().await;
    for client in both(&fixture).await {
        let result = client.call("order", json!({"what": client.session.is_some()})).await;
        let (model, user) = (text(&result), &result["content"][1]);
        assert!(result["isError"] == true && model.contains("apr_") && !model.contains("http"), "{result}");
        assert_eq!((&user["type"], &user["annotations"]["audience"]), (&json!("resource_link"), &json!(["user"])));
        let url = user["uri"].as_str().unwrap();
        assert!(url.starts_with("http://localhost/ui/approvals/apr_"), "{url}");
        assert_eq!(result["_meta"]["dev.toolhub/approvalUrl"], url);

        let id = url.rsplit('/').next().unwrap();
        fixture.post(&format!("/api/v1/approvals/{id}"), json!({"outcome": "proceed_once"})).await.expect_status(200);
        let result = client.call("order", json!({"what": client.session.is_some()})).await;
        assert_eq!(result["isError"], false, "{result}");
    }
}

#[tokio::test]
async fn a_withheld_tool_is_not_listed_and_comes_back() {
    let fixture = api_fixture().await;
    let clients = both(&fixture).await;
    let set = async |status| fixture.hub.set_tool_status("add", status, None, None, StatusScope::Shared).await.unwrap();
    set(ToolStatus::Maintenance).await;
    for client in &clients {
        assert!(!client.names().await.contains(&"add".to_owned()));
        assert_eq!(client.call("add", json!({"a": 1, "b": 1})).await["isError"], true);
    }
    set(ToolStatus::Available).await;
    for client in &clients {
        assert!(client.names().await.contains(&"add".to_owned()));
    }
}

#[tokio::test]
async fn a_session_has_a_thread_and_without_one_the_caller_names_it() {
    let fixture = api_fixture().await;
    let [legacy, modern] = both(&fixture).await;
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
    restarted.router = Server::new(fixture.hub.clone(), fixture.store.clone(), crate::support_api::settings()).router();
    assert_eq!(restarted.call("report", json!({})).await["isError"], false);
    assert_eq!(restarted.send("DELETE", None, &[]).await.status, 204);
    let later = Server::new(fixture.hub.clone(), fixture.store.clone(), crate::support_api::settings()).router();
    restarted.router = later;
    assert_eq!(restarted.post(&restarted.message("tools/list", json!({}))).await.status, 404);
}

#[tokio::test]
async fn a_key_may_do_what_its_scopes_say() {
    let fixture = api_fixture().await;
    let (reader, reader_key) = make_key("reader", "a", &[Scope::ToolsRead]);
    let (caller, caller_key) = make_key("caller", "a", &[Scope::ToolsCall]);
    let (other, other_key) = make_key("other", "a", &[Scope::StateRead]);
    let settings = settings_with_keys([reader, caller, other]);
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    let client = |key: &str| McpClient::modern(&router, "/mcp").key(key);
    let check = async |key: &str, method: &str, params: Value, scope: Option<&str>| {
        let client = client(key);
        let reply = client.post(&client.message(method, params)).await;
        match scope {
            None => assert_eq!(reply.status, 200, "{method}: {reply:?}"),
            Some(scope) => {
                reply.expect_problem(403, "forbidden");
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
                assert_eq!(reply.header("www-authenticate"), challenge);
            }
        }
    };
    let add = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
    check(&reader_key, "tools/list", json!({}), None).await;
    check(&reader_key, "tools/call", add.clone(), Some("tools:call")).await;
    check(&caller_key, "tools/call", add, None).await;
    check(&caller_key, "tools/list", json!({}), Some("tools:read")).await;
    check(&caller_key, "server/discover", json!({}), None).await;
    check(&other_key, "server/discover", json!({}), Some("tools:read")).await;
    let anonymous = McpClient::modern(&router, "/mcp");
    assert_eq!(anonymous.post(&anonymous.message("tools/list", json!({}))).await.status, 401);
}

#[tokio::test]
async fn bad_input_gets_an_error_that_says_what_is_wrong() {
    let fixture = api_fixture().await;
    let [legacy, modern] = both(&fixture).await;
    let raw = async |body: &str, headers: &[(&str, &str)]| {
        send(&fixture.router, "POST", "/mcp", Some(body.to_owned()), headers).await
    };
    let check = async |body: &str, headers: &[(&str, &str)], status: u16, code: i64, text: &str| {
        let reply = raw(body, headers).await;
        let error = reply.expect_status(status)["error"].clone();
        assert_eq!(error["code"], code, "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(text), "{body}: {error}");
    };
    check("{", &[], 400, -32700, "not JSON").await;
    check("[]", &[], 400, -32600, "one message").await;
    check("{\"a\":", &[], 400, -32700, "not JSON").await;
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(70), "]".repeat(70));
    check(&deep, &[], 400, -32700, "64").await;
    check(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, &[], 400, -32600, "`initialize` first").await;
    check(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, &[("mcp-protocol-version", "1999-01-01")], 400, -32022, MODERN)
        .await;
    let list = modern.message("tools/list", json!({})).to_string();
    check(&list, &[("mcp-protocol-version", MODERN), ("accept", "*/*")], 400, -32020, "Mcp-Method").await;
    let mut again = legacy.clone();
    again.path = "/mcp".into();
    let error = again.post(&initialize_message(LEGACY)).await.expect_status(400);
    assert!(error["error"]["message"].as_str().unwrap().contains("initialized already"));
    let unknown = modern.post(&modern.message("no/such", json!({}))).await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!(-32601)));
    let wrong = McpClient::modern(&fixture.router, "/mcp/nothing");
    wrong.post(&wrong.message("tools/list", json!({}))).await.expect_problem(404, "not_found");
    let wrong = McpClient::modern(&fixture.router, "/mcp/t/nothing");
    wrong.post(&wrong.message("tools/list", json!({}))).await.expect_problem(404, "thread_not_found");
    assert_eq!(send(&fixture.router, "GET", "/mcp", None, &[]).await.status, 400);
    assert_eq!(send(&fixture.router, "GET", "/mcp", None, &[("mcp-protocol-version", MODERN)]).await.status, 405);
}

#[tokio::test]
async fn a_slow_call_streams_its_progress_and_can_be_resumed_and_cancelled() {
    let fixture = api_fixture().await;
    let legacy = McpClient::legacy(&fixture.router, "/mcp").await;
    let call = json!({"name": "slow", "arguments": {}, "_meta": {"progressToken": "p"}});
    let message = legacy.message("tools/call", call);
    let headers = legacy.all_headers(Some(&message));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut stream = fixture.stream_request("POST", "/mcp", Some(message.to_string()), &headers).await;
    let mut received = String::new();
    while !received.contains("half of it") {
        received.push_str(&stream.next_chunk().await.unwrap());
    }
    let progress = events(&received).pop().unwrap();
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    let twice = legacy.post(&legacy.message("tools/list", json!({}))).await;
    assert!(twice.expect_status(400)["error"]["message"].as_str().unwrap().contains("in flight"));
    drop(stream);
    // The call goes on; its answer is there for the client that comes back.
    fixture.release.add_permits(1);
    let last = received.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let resumed = legacy.send("GET", None, &[("last-event-id", last)]).await;
    let answers = events(&resumed.text);
    assert_eq!((answers.len(), &answers[0]["id"]), (1, &json!(1)), "{answers:?}");
    assert_eq!(text(&answers[0]["result"]), "done");

    let mut stream = fixture.stream_request("POST", "/mcp", Some(message.to_string()), &headers).await;
    let mut received = String::new();
    while !received.contains("half of it") {
        received.push_str(&stream.next_chunk().await.unwrap());
    }
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(legacy.post(&cancelled).await.status, 202);
    fixture.dropped.acquire().await.unwrap().forget();
    // The stream ends without an answer, and the id is free again.
    while let Some(chunk) = stream.next_chunk().await {
        assert!(events(&chunk).is_empty(), "{chunk}");
    }
    // Resuming it is answered with 204: no event follows.
    let last = received.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    assert_eq!(legacy.send("GET", None, &[("last-event-id", last)]).await.status, 204);
    let freed = async || legacy.post(&legacy.message("ping", json!({}))).await.status == 200;
    while !freed().await {
        tokio::task::yield_now().await;
    }

    let modern = McpClient::modern(&fixture.router, "/mcp");
    let message = modern.message("tools/call", json!({"name": "slow", "arguments": {}, "_meta": {"progressToken": 7}}));
    let headers = modern.all_headers(Some(&message));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut stream = fixture.stream_request("POST", "/mcp", Some(message.to_string()), &headers).await;
    while !stream.next_chunk().await.unwrap().contains("half of it") {}
    drop(stream);
    fixture.dropped.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn a_message_that_does_not_fit_is_refused_by_its_id_with_what_is_wrong() {
    let fixture = api_fixture().await;
    for client in both(&fixture).await {
        for (method, params) in [
            ("tools/call", json!({"name": 5})),
            ("tools/call", json!({"name": "add", "arguments": [1]})),
            ("resources/read", json!({})),
            ("prompts/get", json!({"name": {}})),
            ("completion/complete", json!({})),
        ] {
            let error = client.error(method, params).await;
            let text = error["message"].as_str().unwrap();
            assert!(error["code"] == -32602 && text.contains("do not fit"), "{method}: {error}");
        }
        assert_eq!(client.error("no/such", json!({})).await["code"], -32601);
        let mut message = client.message("tools/list", json!({}));
        message["jsonrpc"] = "1.0".into();
        let refused = client.post(&message).await.expect_status(400);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32600)), "{refused}");
        message = client.message("tools/list", json!({}));
        message["id"] = json!(1.5);
        client.post(&message).await.expect_status(400);
    }
    let [legacy, _] = both(&fixture).await;
    let stale = legacy.send("GET", None, &[("last-event-id", "99-1")]).await;
    assert!(stale.expect_status(400)["error"]["message"].as_str().unwrap().contains("Last-Event-ID"));
    let opening = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}});
    let refused = McpClient::modern(&fixture.router, "/mcp").post(&opening).await.expect_status(400);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32602)), "{refused}");
}

#[tokio::test]
async fn a_list_has_pages_only_beyond_a_thousand_tools() {
    let fixture = api_fixture().await;
    let tool = |number: usize| {
        dynamic(&format!("many_{number:04}"), json!({"type": "object"}), |_: Value, _: CallContext| async move {
            Ok::<_, ToolError>(Value::Null)
        })
    };
    fixture.hub.register_all((0..1_500).map(|number| tool(number).read_only())).unwrap();
    let client = McpClient::modern(&fixture.router, "/mcp");
    let first = client.result("tools/list", json!({})).await;
    let second = client.result("tools/list", json!({"cursor": first["nextCursor"]})).await;
    let names = |page: &Value| -> Vec<String> {
        page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = [names(&first), names(&second)].concat();
    assert_eq!((names(&first).len(), &second["nextCursor"]), (1_000, &Value::Null));
    assert!(all.is_sorted() && all.len() > 1_500 && all.contains(&"many_1499".to_owned()));
}

#[tokio::test]
async fn requests_sessions_and_listeners_are_counted() {
    let fixture = api_fixture().await;
    let [legacy, modern] = both(&fixture).await;
    legacy.call("look", json!({})).await;
    modern.call("look", json!({})).await;
    let stream = legacy.listen(&fixture, json!({})).await;
    let expect = async |line: &str| {
        let page = fixture.get("/metrics").await;
        assert!(page.text.lines().any(|it| it == line), "{line}:\n{}", page.text);
    };
    expect("mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/call\"} 2").await;
    expect("toolhub_mcp_sessions 1").await;
    expect("toolhub_mcp_listeners 1").await;
    drop(stream);
    expect("toolhub_mcp_listeners 0").await;
}
