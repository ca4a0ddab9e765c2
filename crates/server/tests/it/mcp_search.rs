//! Search mode: three tools instead of all.

use serde_json::{Value, json};
use toolhub_core::{CallContext, ToolError, dynamic};

use crate::{
    support_api::{ApiFixture, api_fixture},
    support_mcp::{McpClient, text},
};

async fn fixture_with_files() -> ApiFixture {
    let fixture = api_fixture().await;
    let tool = |name: &str, description: &str| {
        dynamic(
            name,
            json!({"type": "object"}),
            |given: Value, _: CallContext| async move { Ok::<_, ToolError>(given) },
        )
        .description(description)
        .read_only()
    };
    let files = [
        tool("files_read", "Returns the content of a file"),
        tool("files_list", "Lists the files of a directory"),
        tool("mail_send", "Sends a message to a person"),
    ];
    fixture.hub.register_all(files).unwrap();
    fixture
}

fn found(result: &Value) -> Vec<&str> {
    let tools = result["structuredContent"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_found_described_and_called_by_three_tools() {
    let fixture = fixture_with_files().await;
    let path = "/mcp?mode=search";
    for client in [McpClient::legacy(&fixture.router, path).await, McpClient::modern(&fixture.router, path)] {
        assert_eq!(client.names().await, ["call_tool", "describe_tool", "search_tools"]);
        let result = client.call("search_tools", json!({"query": "show me what is in a document"})).await;
        assert_eq!(found(&result)[0], "files_read", "{result}");
        let result = client.call("search_tools", json!({"query": "folders", "limit": 1})).await;
        assert_eq!(found(&result), ["files_list"]);
        let described = client.call("describe_tool", json!({"name": "add"})).await;
        assert_eq!(described["structuredContent"]["inputSchema"]["required"], json!(["a", "b"]), "{described}");
        let sum = client.call("call_tool", json!({"name": "add", "arguments": {"a": 2, "b": 3}})).await;
        assert_eq!(text(&sum), "5");
        // The rules of the named tool hold.
        let asked = client.call("call_tool", json!({"name": "order", "arguments": {"what": path}})).await;
        assert!(asked["isError"] == true && text(&asked).contains("apr_"), "{asked}");
        let invalid = client.call("call_tool", json!({"name": "add", "arguments": {"a": "x"}})).await;
        assert_eq!(invalid["isError"], true, "{invalid}");
    }
}

#[tokio::test]
async fn everyday_words_find_the_tool_that_does_what_they_ask_for() {
    let fixture = api_fixture().await;
    let tool = |name: &str, description: &str| {
        let echo = |given: Value, _: CallContext| async move { Ok::<_, ToolError>(given) };
        dynamic(name, json!({"type": "object"}), echo).description(description)
    };
    let issues = [
        tool("issues_create", "Creates an issue"),
        tool("issues_delete", "Deletes an issue"),
        tool("issues_list", "Lists the issues of a project").read_only(),
    ];
    fixture.hub.register_all(issues).unwrap();
    let client = McpClient::modern(&fixture.router, "/mcp?mode=search");
    let questions = [
        ("which bugs are there", "issues_list"),
        ("get rid of a ticket", "issues_delete"),
        ("please report a new bug", "issues_create"),
    ];
    for (question, expected) in questions {
        let result = client.call("search_tools", json!({"query": question})).await;
        assert_eq!(found(&result)[0], expected, "{question}: {result}");
    }
}

#[tokio::test]
async fn wrong_calls_in_search_mode_say_what_to_do() {
    let fixture = fixture_with_files().await;
    let client = McpClient::modern(&fixture.router, "/mcp?mode=search");
    let error = client.error("tools/call", json!({"name": "add", "arguments": {}})).await;
    assert!(error["message"].as_str().unwrap().contains("call_tool"), "{error}");
    for wrong in [json!({"name": "call_tool", "arguments": {"name": "ad"}}), json!({"name": "ad"})] {
        let error = client.error("tools/call", wrong).await;
        assert!(error["message"].as_str().unwrap().contains("`add`"), "{error}");
    }
    let unknown = client.call("describe_tool", json!({"name": "files_reed"})).await;
    assert!(unknown["isError"] == true && text(&unknown).contains("`files_read`"), "{unknown}");
    for (tool, arguments) in [
        ("search_tools", json!({"limit": 1})),
        ("search_tools", json!({"query": "add", "limit": 0})),
        ("search_tools", json!({"query": "add", "limit": 100_000})),
        ("search_tools", json!({"query": "add", "limit": "two"})),
        ("call_tool", json!({"name": 1})),
        ("describe_tool", json!({})),
    ] {
        let result = client.call(tool, arguments).await;
        assert!(result["isError"] == true && text(&result).contains("do not fit"), "{result}");
        assert_eq!(result["_meta"]["dev.toolhub/code"], "arguments_invalid", "{result}");
    }
    // A name that its caller cannot see is not suggested.
    let body = json!({"status": "maintenance", "reason": "new disk"});
    fixture.request("PUT", "/api/v1/tools/add/status", Some(body), &[]).await.expect_status(200);
    for name in ["add", "ad"] {
        let unknown = client.call("describe_tool", json!({"name": name})).await;
        assert_eq!(text(&unknown), format!("there is no tool `{name}`"), "{unknown}");
    }
    let none = client.call("search_tools", json!({"query": "zzz"})).await;
    assert!(text(&none).contains("No tool matches"), "{none}");
    let client = McpClient::modern(&fixture.router, "/mcp?mode=find");
    client.post(&client.message("tools/list", json!({}))).await.expect_status(422);
}
