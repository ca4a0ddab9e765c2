//! `toolhub mcp serve --stdio`: MCP clients over pipes, alone and several on one config.

use std::{fs, thread};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{
    TOOLS,
    connection::HttpConnection,
    mcp_servers::QUIET,
    process::Process,
    stdio_client::{StdioClient, free_port},
};
use crate::config::run_toolhub;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../connect/tests/mcp_servers/stdio_server.py");

/// A folder with a config: the tools of this module, and those of a test server under `t`.
fn folder(port: u16, more: &str) -> TempFolder {
    let folder = TempFolder::new();
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let header = json!({"name": "echo", "inputSchema": {"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}}}});
    let tools: Vec<Value> =
        ["work", "append", "hang", "report", "elicit"].map(tool).into_iter().chain([header]).collect();
    folder.write("tools.json", &Value::Array(tools).to_string());
    write_config(&folder, port, more);
    folder
}

fn write_config(folder: &TempFolder, port: u16, more: &str) {
    let (tools, ledger) = (folder.path().join("tools.json"), folder.path().join("ledger"));
    let server = format!(
        "[mcp_servers.t]\ncommand = \"python3\"\nargs = [{SERVER:?}]\nread_only = [\"*\"]\nenv = {{ TOOLS = {tools:?}, LEDGER = {ledger:?} }}\n"
    );
    folder.write("toolhub.toml", &format!("[server]\nport = {port}\n{TOOLS}{server}{more}"));
}

fn names(list: &Value) -> Vec<&str> {
    list["result"]["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

#[test]
fn a_client_of_either_era_lists_calls_and_hears_progress_and_changes() {
    for is_modern in [false, true] {
        let port = free_port();
        let folder = folder(port, "");
        let start = if is_modern { StdioClient::modern } else { StdioClient::legacy };
        let mut client = start(folder.path(), &[], &QUIET);
        let list = client.request("tools/list", json!({}));
        assert!(names(&list).contains(&"calculator") && names(&list).contains(&"t__work"), "{list}");
        assert_eq!(client.text("calculator", &json!({"expression": "2+3*4"})), "14");
        let params = json!({"name": "t__work", "arguments": {}, "_meta": {"progressToken": "p"}});
        let worked = client.request("tools/call", params);
        assert_eq!(worked["result"]["content"][0]["text"], "done", "{worked}");
        let progress = client.wait_for("notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "p", "{progress}");
        assert_eq!(client.call("missing", &json!({}))["error"]["code"], -32602);

        if is_modern {
            client.begin("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
            client.wait_for("notifications/subscriptions/acknowledged");
        }
        // The stream of the session may not be open yet, so that the first change is missed.
        let mut http = HttpConnection::connect(port);
        let changes = ["[tools.clock]\nbuiltin = \"clock\"\n", ""].into_iter().cycle().take(30);
        let heard = changes.into_iter().find(|more| {
            write_config(&folder, port, more);
            assert_eq!(http.send("POST /api/v1/reload", "", "").status, 200);
            client.hears("notifications/tools/list_changed")
        });
        let list = client.request("tools/list", json!({}));
        assert_eq!(names(&list).contains(&"clock"), !heard.expect("a change is heard").is_empty());
        let (code, rest, err) = client.finish();
        assert_eq!((code, rest), (Some(0), vec![]), "{err}");
        assert!(HttpConnection::try_connect(port).is_none(), "its server has stopped");
    }
}

#[test]
fn a_cancelled_call_ends_at_the_tool_and_is_not_answered() {
    for is_modern in [false, true] {
        let folder = folder(free_port(), "");
        let start = if is_modern { StdioClient::modern } else { StdioClient::legacy };
        let mut client = start(folder.path(), &[], &QUIET);
        // Cancelled in the same moment.
        let id = client.begin("tools/call", json!({"name": "t__hang", "arguments": {}}));
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
        assert_eq!(client.text("calculator", &json!({"expression": "1+1"})), "2");
        let id = client.begin("tools/call", json!({"name": "t__hang", "arguments": {}}));
        let before = client.text("t__report", &json!({}));
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
        while client.text("t__report", &json!({})) == before {}
        let (code, rest, err) = client.finish();
        assert_eq!((code, rest), (Some(0), vec![]), "{err}");
    }
}

#[test]
fn a_question_of_a_tool_is_answered_over_stdin() {
    let folder = folder(free_port(), "protocol = \"legacy\"\n");
    let mut client = StdioClient::legacy(folder.path(), &[], &QUIET);
    let id = client.begin("tools/call", json!({"name": "t__elicit", "arguments": {}}));
    let question = client.wait_for("elicitation/create");
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}}));
    let answer = client.answer(id);
    assert!(answer["result"]["content"][0]["text"].to_string().contains("accept"), "{answer}");
}

#[test]
fn arguments_that_become_headers_are_found_also_without_a_list() {
    let folder = folder(free_port(), "");
    let mut client = StdioClient::modern(folder.path(), &[], &QUIET);
    for region in ["eu", "\u{fc}ber all"] {
        let echoed = client.text("t__echo", &json!({"region": region}));
        let echoed: Value = serde_json::from_str(&echoed).expect("JSON");
        assert_eq!(echoed["arguments"]["region"], region);
    }
}

#[test]
fn a_line_that_is_no_message_is_answered_and_the_next_one_is_read() {
    let folder = folder(free_port(), "");
    let config = fs::read_to_string(folder.path().join("toolhub.toml")).expect("it is there");
    folder.write("toolhub.toml", &config.replace("[server]\n", "[server]\nbody_limit = \"1KiB\"\n"));
    let mut client = StdioClient::legacy(folder.path(), &[], &QUIET);
    for (line, code) in [("{", -32700), ("[]", -32600), ("\"text\"", -32600), (&"x".repeat(5_000), -32600)] {
        client.send_line(line);
        let answer = client.receive();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{line}: {answer}");
    }
    client.send_line("");
    // What the server refuses has the id of its request.
    let unknown = client.request("some/thing", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    assert_eq!(client.text("calculator", &json!({"expression": "1+1"})), "2");
    client.signal("TERM");
    let (code, rest, err) = client.finish();
    assert_eq!((code, rest), (Some(0), vec![]), "{err}");
}

#[test]
fn a_killed_process_is_replaced_and_the_others_keep_session_and_thread_and_call_nothing_twice() {
    let port = free_port();
    let folder = folder(port, "");
    let first = StdioClient::legacy(folder.path(), &[], &QUIET);
    let mut others: Vec<StdioClient> = (0..2).map(|_| StdioClient::legacy(folder.path(), &[], &QUIET)).collect();
    others.push(StdioClient::modern(folder.path(), &["--thread", "shared"], &QUIET));
    for client in &mut others {
        client.request("tools/list", json!({}));
        assert_eq!(client.text("counter", &json!({})), "1");
    }
    let callers: Vec<_> = others
        .into_iter()
        .enumerate()
        .map(|(caller, mut client)| {
            thread::spawn(move || {
                let (mut answered, mut interrupted) = (Vec::new(), Vec::new());
                for number in 0..60 {
                    let number = format!("{caller}-{number}");
                    let answer = client.call("t__append", &json!({"number": number}));
                    match answer["error"]["data"]["code"].as_str() {
                        None if answer["result"]["isError"] == false => answered.push(number),
                        // Its MCP server was not connected yet.
                        None => {}
                        Some(code) => {
                            assert_eq!(code, "interrupted", "{answer}");
                            interrupted.push(answer["error"]["message"].clone());
                        }
                    }
                }
                (client, answered, interrupted)
            })
        })
        .collect();
    let ledger = || fs::read_to_string(folder.path().join("ledger")).unwrap_or_default();
    while ledger().lines().count() < 20 {
        thread::yield_now();
    }
    first.signal("KILL");
    let mut results: Vec<_> =
        callers.into_iter().map(|caller| caller.join().expect("every call is answered")).collect();
    let written = ledger();
    let mut lines: Vec<&str> = written.lines().collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "no call was carried out twice");
    for (client, answered, interrupted) in &mut results {
        assert!(interrupted.len() <= 1, "one call was in flight: {interrupted:?}");
        assert!(answered.iter().all(|number| lines.contains(&number.as_str())));
        assert_eq!(client.text("counter", &json!({})), "2", "the thread is the same");
    }
    let mut http = HttpConnection::connect(port);
    assert_eq!(http.send("GET /livez", "", "").status, 200);
    // The one that took over leaves in order, and the next one takes over.
    while let Some((client, ..)) = results.pop() {
        let (code, _, err) = client.finish();
        assert_eq!(code, Some(0), "{err}");
        for (client, ..) in &mut results {
            client.request("tools/list", json!({}));
            assert_eq!(client.text("calculator", &json!({"expression": "1+1"})), "2");
        }
    }
}

#[test]
fn a_session_that_a_new_server_does_not_know_is_opened_again() {
    let port = free_port();
    let folder = folder(port, "[store]\nbackend = \"memory\"\n");
    let first = StdioClient::legacy(folder.path(), &[], &QUIET);
    let mut second = StdioClient::legacy(folder.path(), &[], &QUIET);
    let mut third = StdioClient::legacy(folder.path(), &["--thread", "mine"], &QUIET);
    assert_eq!(second.text("counter", &json!({})), "1");
    assert_eq!(third.text("counter", &json!({})), "1");
    first.signal("KILL");
    drop(first);
    // A list is repeated, wherever the old server stopped.
    assert!(names(&second.request("tools/list", json!({}))).contains(&"counter"));
    assert!(names(&third.request("tools/list", json!({}))).contains(&"counter"));
    assert_eq!(second.text("counter", &json!({})), "1", "the store was in memory");
    assert_eq!(third.text("counter", &json!({})), "1");
    second.wait_for("notifications/tools/list_changed");
}

#[test]
fn clients_of_a_thread_share_its_state_also_with_a_server_that_runs_already() {
    let port = free_port();
    let folder = folder(port, "");
    let server = Process::start(folder.path(), &["serve"], &QUIET);
    let mut first = StdioClient::legacy(folder.path(), &["--thread", "trip"], &QUIET);
    let mut second = StdioClient::modern(folder.path(), &["--thread", "trip"], &QUIET);
    assert_eq!(first.text("counter", &json!({})), "1");
    assert_eq!(second.text("counter", &json!({})), "2");
    let mut http = HttpConnection::connect(port);
    assert_eq!(http.send("GET /api/v1/threads/trip", "", "").status, 200);
    server.signal("TERM");
    server.wait_for_exit();
    // A list is repeated if its connection is lost; a call would not be.
    first.request("tools/list", json!({}));
    second.request("tools/list", json!({}));
    assert_eq!(first.text("counter", &json!({})), "3");
    assert_eq!(second.text("counter", &json!({})), "4");
}

#[test]
fn a_hub_with_keys_needs_the_token_of_the_client() {
    let folder = folder(free_port(), "");
    let created = run_toolhub(
        folder.path(),
        &["--json", "keys", "create", "k", "--scope", "tools:read", "--scope", "tools:call"],
        &QUIET,
    );
    let created: Value = serde_json::from_str(&created.out).unwrap_or_else(|_| panic!("{}", created.err));
    let config = fs::read_to_string(folder.path().join("toolhub.toml")).expect("it is there");
    let keys = format!(
        "{config}[auth]\nmode = \"keys\"\n[[auth.keys]]\nname = \"k\"\nhash = {}\nscopes = [\"tools:read\", \"tools:call\"]\n",
        created["hash"]
    );
    folder.write("toolhub.toml", &keys);
    let none = run_toolhub(folder.path(), &["mcp", "serve", "--stdio"], &QUIET);
    assert!(none.code == 3 && none.out.is_empty() && none.err.contains("TOOLHUB_TOKEN"), "{none:?}");
    let wrong = run_toolhub(folder.path(), &["mcp", "serve", "--stdio"], &[QUIET[0], ("TOOLHUB_TOKEN", "thk_no")]);
    assert!(wrong.code == 3 && wrong.out.is_empty(), "{wrong:?}");
    let variables = [QUIET[0], ("TOOLHUB_TOKEN", created["key"].as_str().expect("a key"))];
    let mut first = StdioClient::legacy(folder.path(), &[], &variables);
    let mut second = StdioClient::modern(folder.path(), &[], &variables);
    assert_eq!(first.text("calculator", &json!({"expression": "1+1"})), "2");
    assert_eq!(second.text("calculator", &json!({"expression": "1+1"})), "2");
}

#[test]
fn an_address_that_another_server_has_is_named_and_stdout_stays_empty() {
    let port = free_port();
    let (ours, theirs) = (folder(port, ""), folder(port, ""));
    let _server = Process::start(theirs.path(), &["serve"], &QUIET);
    let ran = run_toolhub(ours.path(), &["mcp", "serve", "--stdio"], &QUIET);
    assert!(ran.code == 4 && ran.out.is_empty(), "{ran:?}");
    assert!(ran.err.contains(&theirs.path().join("toolhub.toml").display().to_string()), "{}", ran.err);
    // It can be named, also without a config.
    let url = format!("http://127.0.0.1:{port}");
    let empty = TempFolder::new();
    let mut client = StdioClient::legacy(empty.path(), &["--server", &url], &QUIET);
    assert_eq!(client.text("calculator", &json!({"expression": "1+1"})), "2");
    let none = run_toolhub(
        empty.path(),
        &["mcp", "serve", "--stdio", "--set", &format!("server.port={}", free_port())],
        &QUIET,
    );
    assert!(none.code == 2 && none.err.contains("toolhub init"), "{none:?}");
}
