//! The MCP endpoint: lists, results and metrics, in both eras of the protocol.

use serde_json::{Value, json};
use toolhub_core::{CallContext, StatusScope, ToolError, dynamic, status::ToolStatus};
use toolhub_server::{McpMode, Server};

use crate::{
    support_api::{api_fixture, send, settings},
    support_mcp::{LEGACY, McpClient, both_eras, initialize_message, text},
};

#[tokio::test]
async fn both_eras_list_and_call_the_tools_of_the_hub() {
    let fixture = api_fixture().await;
    for client in both_eras(&fixture).await {
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
    for client in both_eras(&fixture).await {
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
    for client in both_eras(&fixture).await {
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
    for client in both_eras(&fixture).await {
        let result = client.call("order", json!({"what": client.session.is_some()})).await;
        let (model, user) = (text(&result), &result["content"][1]);
        assert!(result["isError"] == true && !model.contains("http"), "{result}");
        assert_eq!(model.matches("apr_").count(), 1, "{model}");
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
    let clients = both_eras(&fixture).await;
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
    let mut changed = first["nextCursor"].as_str().unwrap().to_owned();
    changed.pop();
    assert_eq!(client.error("tools/list", json!({"cursor": changed})).await["code"], -32602);
    let names = |page: &Value| -> Vec<String> {
        page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = [names(&first), names(&second)].concat();
    assert_eq!((names(&first).len(), &second["nextCursor"]), (1_000, &Value::Null));
    assert!(all.is_sorted() && all.len() > 1_500 && all.contains(&"many_1499".to_owned()));
}

#[tokio::test]
async fn only_the_era_that_has_tasks_is_offered_them() {
    let fixture = api_fixture().await;
    let modern = McpClient::modern(&fixture.router, "/mcp");
    let discovered = modern.result("server/discover", json!({})).await;
    assert!(discovered["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{discovered}");
    let opened = modern.post(&initialize_message(LEGACY)).await.expect_status(200);
    let capabilities = &opened["result"]["capabilities"];
    assert!(capabilities["tools"].is_object() && !capabilities.to_string().contains("tasks"), "{capabilities}");
}

#[tokio::test]
async fn requests_sessions_and_listeners_are_counted() {
    let fixture = api_fixture().await;
    let [legacy, modern] = both_eras(&fixture).await;
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

#[tokio::test]
async fn an_endpoint_that_is_switched_off_does_not_exist_and_the_api_does() {
    let fixture = api_fixture().await;
    let mut settings = settings();
    settings.mcp.enabled = false;
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    let mut client = McpClient::modern(&router, "/mcp");
    let mut replies = vec![
        client.post(&client.message("tools/list", json!({}))).await,
        client.post(&initialize_message(LEGACY)).await,
    ];
    client.session = Some("mcp_never".into());
    for verb in ["GET", "DELETE"] {
        replies.push(client.send(verb, None, &[]).await);
    }
    for reply in replies {
        let problem = reply.expect_problem(404, "not_found");
        assert!(problem["detail"].as_str().unwrap().contains("switched off"), "{problem}");
        assert!(problem["hint"].as_str().unwrap().contains("mcp_endpoint.enabled = true"), "{problem}");
    }
    let called = json!({"arguments": {"a": 1, "b": 2}}).to_string();
    assert_eq!(send(&router, "POST", "/api/v1/tools/add/calls", Some(called), &[]).await.status, 200);
}

#[tokio::test]
async fn search_mode_can_be_the_default_and_the_address_overrides_it() {
    let fixture = api_fixture().await;
    let mut settings = settings();
    settings.mcp.mode = McpMode::Search;
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    for client in [McpClient::legacy(&router, "/mcp").await, McpClient::modern(&router, "/mcp")] {
        assert_eq!(client.names().await, ["call_tool", "describe_tool", "search_tools"]);
        let sum = client.call("call_tool", json!({"name": "add", "arguments": {"a": 2, "b": 3}})).await;
        assert_eq!(text(&sum), "5");
        let listed = McpClient { path: "/mcp?mode=list".into(), ..client };
        assert!(listed.names().await.contains(&"add".to_owned()));
    }
}

#[tokio::test]
async fn without_a_session_a_list_does_not_vary_with_the_calls_before_it() {
    let fixture = api_fixture().await;
    let client = McpClient::modern(&fixture.router, "/mcp");
    let before = client.result("tools/list", json!({})).await;
    // `look` makes `report` available in its thread, `order` asks for an approval, `broken` fails.
    for tool in ["look", "report", "order", "broken", "add"] {
        client.call(tool, json!({})).await;
    }
    assert_eq!(client.result("tools/list", json!({})).await, before);
    let in_thread = json!({"name": "look", "arguments": {}, "_meta": {"dev.toolhub/threadId": "t-1"}});
    client.result("tools/call", in_thread).await;
    assert_eq!(client.result("tools/list", json!({})).await, before);
    assert_eq!(McpClient::modern(&fixture.router, "/mcp").result("tools/list", json!({})).await, before);
}
