//! The section `[mcp_endpoint]` of the config, and what clients of the binary see of it.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{
    TOOLS,
    connection::{HttpConnection, HttpResponse},
    mcp_servers::QUIET,
    process::Process,
};

const CONFIG: &str = r#"
[server]
drain_timeout = "1h"
[toolsets.sums]
tools = ["calculator"]
[mcp_endpoint]
toolset = "sums"
mode = "search"
"#;

fn start(config: &str) -> (TempFolder, Process) {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("{TOOLS}{config}"));
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    (folder, server)
}

/// The head and the body of a request without a session.
fn message(method: &str, mut params: Value) -> (String, String) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let name = params["name"].as_str().or(params["taskId"].as_str());
    let name = name.map(|name| format!("mcp-name: {name}\r\n")).unwrap_or_default();
    let headers = format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{name}"
    );
    (headers, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string())
}

/// Makes a request of a client that can handle tasks.
fn send_with_tasks(server: &Process, method: &str, params: Value) -> Value {
    let (headers, body) = message(method, params);
    let capabilities = r#"clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let body = body.replace(r#"clientCapabilities":{}"#, capabilities);
    HttpConnection::connect(server.port).send("POST /mcp", &headers, &body).json()["result"].clone()
}

fn send(connection: &mut HttpConnection, path: &str, method: &str, params: Value) -> HttpResponse {
    let (headers, body) = message(method, params);
    connection.send(&format!("POST {path}"), &headers, &body)
}

fn names(connection: &mut HttpConnection, path: &str) -> Vec<String> {
    let list = send(connection, path, "tools/list", json!({})).json();
    let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn the_endpoint_has_the_toolset_and_the_mode_of_the_config_and_its_streams_end_at_sigterm() {
    let (_folder, server) = start(CONFIG);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(names(&mut connection, "/mcp"), ["call_tool", "describe_tool", "search_tools"]);
    assert_eq!(names(&mut connection, "/mcp?mode=list"), ["calculator"]);
    let counter = json!({"name": "call_tool", "arguments": {"name": "counter", "arguments": {}}});
    assert_eq!(send(&mut connection, "/mcp", "tools/call", counter).json()["error"]["code"], -32602);
    let sum = json!({"name": "call_tool", "arguments": {"name": "calculator", "arguments": {"expression": "2+3"}}});
    let sum = send(&mut connection, "/mcp", "tools/call", sum).json();
    assert_eq!(sum["result"]["isError"], false, "{sum}");
    // Calls before it on the connection change nothing.
    assert_eq!(names(&mut connection, "/mcp?mode=list"), ["calculator"]);

    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts connections");
    let (headers, body) = message("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n{headers}\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("acknowledged") {
        let mut part = [0; 1_024];
        let length = stream.read(&mut part).expect("an answer");
        assert!(length > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&part[..length]);
    }
    server.signal("TERM");
    stream.read_to_end(&mut received).expect("the stream ends");
    assert!(received.ends_with(b"\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&received));
    let (code, _, err) = server.wait_for_exit();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn tasks_outlive_a_server_that_is_killed() {
    let config = r#"
[tools.dangerous]
builtin = "dangerous"
[tools.sleep]
command = "/bin/sh"
args = ["-c", "sleep 600"]
description = "sleeps"
timeout = "15m"
[mcp_endpoint]
task_after = "10ms"
"#;
    let (folder, server) = start(config);
    let call = |name: &str, arguments: Value| {
        let task = send_with_tasks(&server, "tools/call", json!({"name": name, "arguments": arguments}));
        assert_eq!(task["resultType"], "task", "{task}");
        json!({"taskId": task["taskId"]})
    };
    let (waiting, running) = (call("dangerous", json!({"folder": "/tmp/old"})), call("sleep", json!({})));
    server.signal("KILL");
    drop(server);

    let server = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let status = |task: &Value| send_with_tasks(&server, "tasks/get", task.clone());
    let interrupted = status(&running);
    assert_eq!(interrupted["status"], "completed", "{interrupted}");
    assert_eq!(interrupted["result"]["isError"], true, "{interrupted}");
    let text = interrupted["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("Whether it took effect is not known"), "{interrupted}");
    assert_ne!(status(&waiting)["status"], "completed");
    let mut connection = HttpConnection::connect(server.port);
    let list = connection.send("GET /api/v1/approvals?state=pending", "", "").json();
    let id = list["items"][0]["id"].as_str().unwrap_or_else(|| panic!("{list}")).to_owned();
    let answer = json!({"outcome": "proceed_once"}).to_string();
    let answered = connection.send(&format!("POST /api/v1/approvals/{id}"), "", &answer);
    assert_eq!(answered.status, 200, "{}", answered.text);
    let done = loop {
        let found = status(&waiting);
        if found["status"] == "completed" {
            break found;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    };
    assert_eq!(done["result"]["content"][0]["text"], "/tmp/old is deleted (not really)", "{done}");
}

#[test]
fn an_endpoint_that_is_switched_off_is_not_found_and_says_which_key_of_the_config() {
    let (_folder, server) = start("[mcp_endpoint]\nenabled = false\n");
    let mut connection = HttpConnection::connect(server.port);
    let refused = send(&mut connection, "/mcp", "tools/list", json!({}));
    assert_eq!(refused.status, 404, "{}", refused.text);
    assert!(refused.text.contains("mcp_endpoint.enabled"), "{}", refused.text);
    assert_eq!(super::calculate(&mut connection), 200);
}
