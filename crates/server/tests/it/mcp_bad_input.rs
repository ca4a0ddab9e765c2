//! Messages to the MCP endpoint that are wrong, in both eras of the protocol.

use serde_json::json;

use crate::{
    support_api::{api_fixture, send},
    support_mcp::{LEGACY, MODERN, McpClient, both_eras, initialize_message},
};

#[tokio::test]
async fn bad_input_gets_an_error_that_says_what_is_wrong() {
    let fixture = api_fixture().await;
    let [legacy, modern] = both_eras(&fixture).await;
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
    let large = format!("{list}{}", " ".repeat(2 << 20));
    for headers in [&[("mcp-protocol-version", MODERN), ("mcp-method", "tools/list")][..], &[]] {
        raw(&large, headers).await.expect_problem(413, "too_large");
    }
    assert_eq!(send(&fixture.router, "GET", "/mcp", None, &[]).await.status, 400);
    assert_eq!(send(&fixture.router, "GET", "/mcp", None, &[("mcp-protocol-version", MODERN)]).await.status, 405);
}

#[tokio::test]
async fn a_message_that_does_not_fit_is_refused_by_its_id_with_what_is_wrong() {
    let fixture = api_fixture().await;
    for client in both_eras(&fixture).await {
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
        let call = client.message("tools/call", json!({"name": "add", "arguments": {"a": "VALUE"}}));
        for value in ["\"\\ud83d\"", "1e400"] {
            let text = call.to_string().replace("\"VALUE\"", value);
            let refused = client.post_text(&call, text).await.expect_status(400);
            assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32700)), "{value}: {refused}");
        }
        message = client.message("tools/call", json!({"name": "add"}));
        message["params"]["_meta"] = json!([1]);
        let refused = client.post(&message).await.expect_status(400);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32602)), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("_meta"), "{refused}");
    }
    let list = McpClient::modern(&fixture.router, "/mcp").message("tools/list", json!({})).to_string();
    let versions = [("mcp-protocol-version", MODERN), ("mcp-protocol-version", LEGACY), ("mcp-method", "tools/list")];
    let refused = send(&fixture.router, "POST", "/mcp", Some(list), &versions).await.expect_status(400);
    assert_eq!(refused["error"]["code"], -32020, "{refused}");
    let [legacy, _] = both_eras(&fixture).await;
    let stale = legacy.send("GET", None, &[("last-event-id", "99-1")]).await;
    assert!(stale.expect_status(400)["error"]["message"].as_str().unwrap().contains("Last-Event-ID"));
    let opening = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}});
    let refused = McpClient::modern(&fixture.router, "/mcp").post(&opening).await.expect_status(400);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32602)), "{refused}");
}
