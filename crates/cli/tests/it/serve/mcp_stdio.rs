//! `toolhub mcp serve --stdio`: MCP clients over pipes, alone and several on one config.
//!
//! With `TOOLHUB_SOAK` set, the others must go on within two seconds after the first of three was killed.

use std::{fs, thread, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_testkit::{TempFolder, is_soak};

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
    let null_id = r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#;
    for (line, code) in
        [("{", -32700), ("[]", -32600), ("\"text\"", -32600), (null_id, -32600), (&"x".repeat(5_000), -32600)]
    {
        client.send_line(line);
        let answer = client.receive();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{line}: {answer}");
    }
    // One that is too long is answered with its id, wherever that is.
    for (start, end) in [("\"id\":\"a\",", ""), ("", ",\"id\":\"a\"")] {
        let text = "x".repeat(5_000);
        client.send_line(&format!(
            r#"{{"jsonrpc":"2.0",{start}"method":"tools/call","params":{{"name":"calculator","arguments":{{"expression":"{text}"}}}}{end}}}"#
        ));
        let answer = client.receive();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("a"), &json!(-32600)), "{answer}");
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
    // A server that needs a moment to start: calls wait for it.
    let config = fs::read_to_string(folder.path().join("toolhub.toml")).expect("it is there");
    let slow = format!("command = \"sh\"\nargs = [\"-c\", \"sleep 0.3; exec python3 {SERVER}\"]");
    let config = config.replace(&format!("command = \"python3\"\nargs = [{SERVER:?}]"), &slow);
    // An interrupted call of a read-only tool with a key would run again.
    folder.write("toolhub.toml", &config.replace("read_only = [\"*\"]", "confirm = false"));
    let first = StdioClient::legacy(folder.path(), &[], &QUIET);
    let mut others: Vec<StdioClient> = (0..2).map(|_| StdioClient::legacy(folder.path(), &[], &QUIET)).collect();
    others.push(StdioClient::modern(folder.path(), &["--thread", "shared"], &QUIET));
    for client in &mut others {
        let list = client.request("tools/list", json!({}));
        assert!(names(&list).contains(&"t__append"), "{list}");
        assert_eq!(client.text("counter", &json!({})), "1");
    }
    let callers: Vec<_> = others
        .into_iter()
        .enumerate()
        .map(|(caller, mut client)| {
            thread::spawn(move || {
                let (mut answered, mut interrupted, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
                for number in 0..60 {
                    let number = format!("{caller}-{number}");
                    let mut params = json!({"name": "t__append", "arguments": {"number": number}});
                    if caller == 1 {
                        params["_meta"]["dev.toolhub/idempotencyKey"] = number.clone().into();
                    }
                    let begun = Instant::now();
                    let answer = client.request("tools/call", params);
                    longest = longest.max(begun.elapsed());
                    if answer["result"]["isError"] == false {
                        answered.push(number);
                        continue;
                    }
                    // The record of a call with a key says it, too.
                    let codes = [&answer["error"]["data"]["code"], &answer["result"]["_meta"]["dev.toolhub/code"]];
                    assert!(codes.contains(&&json!("interrupted")), "{answer}");
                    interrupted.push(answer);
                }
                (client, answered, interrupted, longest)
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
    let longest = results.iter().map(|(.., longest)| *longest).max().unwrap_or_default();
    println!("of three processes the first was killed: the calls of the others waited {longest:?} at most");
    assert!(!is_soak() || longest <= Duration::from_secs(2), "the others go on after {longest:?}");
    for (client, answered, interrupted, _) in &mut results {
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
    for list in ["tools", "prompts", "resources"] {
        second.wait_for(&format!("notifications/{list}/list_changed"));
    }
}

#[test]
fn a_process_that_leaves_does_not_wait_for_calls_of_others() {
    let port = free_port();
    let folder = folder(port, "timeout = \"10m\"\n");
    let config = fs::read_to_string(folder.path().join("toolhub.toml")).expect("it is there");
    folder.write("toolhub.toml", &config.replace("[server]\n", "[server]\ndrain_timeout = \"10m\"\n"));
    let first = StdioClient::legacy(folder.path(), &[], &QUIET);
    let mut caller = StdioClient::legacy(folder.path(), &[], &QUIET);
    let mut other = StdioClient::modern(folder.path(), &[], &QUIET);
    let id = caller.begin("tools/call", json!({"name": "t__hang", "arguments": {}}));
    while !run_toolhub(folder.path(), &["mcp", "logs", "t"], &QUIET).out.contains("hanging") {}
    first.signal("TERM");
    let answer = caller.answer(id);
    assert_eq!(answer["error"]["data"]["code"], "interrupted", "{answer}");
    let (code, _, err) = first.finish();
    assert_eq!(code, Some(0), "{err}");
    let list = other.request("tools/list", json!({}));
    assert!(names(&list).contains(&"t__hang"), "{list}");
    assert_eq!(caller.text("calculator", &json!({"expression": "1+1"})), "2");
}

#[test]
fn a_subscription_goes_on_with_the_next_server_and_hears_of_what_it_may_have_missed() {
    for signal in ["KILL", "TERM"] {
        let folder = folder(free_port(), "");
        let first = StdioClient::legacy(folder.path(), &[], &QUIET);
        let mut client = StdioClient::modern(folder.path(), &[], &QUIET);
        let wanted = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
        client.begin("subscriptions/listen", wanted);
        let meta = client.wait_for("notifications/subscriptions/acknowledged")["params"]["_meta"].clone();
        assert!(!meta["io.modelcontextprotocol/subscriptionId"].is_null(), "{meta}");
        first.signal(signal);
        for list in ["tools", "prompts"] {
            let changed = client.wait_for(&format!("notifications/{list}/list_changed"));
            let id = &changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            assert_eq!(*id, meta["io.modelcontextprotocol/subscriptionId"], "{changed}");
        }
        let (code, rest, err) = client.finish();
        assert!(code == Some(0) && !rest.iter().any(|line| line.contains("\"id\"")), "{rest:?} {err}");
    }
}

/// Waits until all threads of a process are stopped. One of them handles the signal, and the others run until it is scheduled.
fn wait_until_stopped(process: u32) {
    let is_stopped = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        status.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    let threads = || std::fs::read_dir(format!("/proc/{process}/task")).expect("the process exists");
    while !threads().flatten().all(is_stopped) {
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_server_that_is_stopped_is_named_and_used_again_when_it_goes_on() {
    let port = free_port();
    let folder = folder(port, "");
    let first = StdioClient::legacy(folder.path(), &[], &QUIET);
    let mut second = StdioClient::legacy(folder.path(), &[], &QUIET);
    assert_eq!(second.text("calculator", &json!({"expression": "1+1"})), "2");
    first.signal("STOP");
    wait_until_stopped(first.process());
    let address = format!("127.0.0.1:{port}");
    let call = second.begin("tools/call", json!({"name": "calculator", "arguments": {"expression": "1+1"}}));
    let list = second.request("tools/list", json!({}));
    assert_eq!(list["error"]["data"]["code"], "unreachable", "{list}");
    assert!(list["error"]["message"].to_string().contains(&address), "{list}");
    assert_eq!(second.answer(call)["error"]["data"]["code"], "interrupted", "it may be carried out later");
    let new = run_toolhub(folder.path(), &["mcp", "serve", "--stdio"], &QUIET);
    let process = format!("process {}", first.process());
    assert!(new.code == 4 && new.err.contains(&address) && new.err.contains(&process), "{new:?}");
    first.signal("CONT");
    while second.request("tools/list", json!({}))["result"].is_null() {}
    assert_eq!(second.text("calculator", &json!({"expression": "1+1"})), "2");
}

#[test]
fn quick_requests_do_not_wait_behind_calls() {
    let folder = folder(free_port(), "timeout = \"10m\"\n");
    let mut client = StdioClient::legacy(folder.path(), &[], &QUIET);
    for _ in 0..300 {
        client.begin("tools/call", json!({"name": "t__hang", "arguments": {}}));
    }
    assert!(client.request("ping", json!({}))["result"].is_object());
    assert!(names(&client.request("tools/list", json!({}))).contains(&"t__hang"));
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
    let create = |name: &str, scopes: &[&str]| {
        let scopes = scopes.iter().flat_map(|scope| ["--scope", scope]);
        let arguments: Vec<&str> = ["--json", "keys", "create", name].into_iter().chain(scopes).collect();
        let created = run_toolhub(folder.path(), &arguments, &QUIET);
        serde_json::from_str::<Value>(&created.out).unwrap_or_else(|_| panic!("{}", created.err))
    };
    let (created, caller) = (create("k", &["tools:read", "tools:call"]), create("c", &["tools:call"]));
    let config = fs::read_to_string(folder.path().join("toolhub.toml")).expect("it is there");
    let keys = format!(
        "{config}[auth]\nmode = \"keys\"\n[[auth.keys]]\nname = \"k\"\nhash = {}\nscopes = [\"tools:read\", \"tools:call\"]\n[[auth.keys]]\nname = \"c\"\nhash = {}\nscopes = [\"tools:call\"]\n",
        created["hash"], caller["hash"]
    );
    folder.write("toolhub.toml", &keys);
    let none = run_toolhub(folder.path(), &["mcp", "serve", "--stdio"], &QUIET);
    assert!(none.code == 3 && none.out.is_empty() && none.err.contains("TOOLHUB_TOKEN"), "{none:?}");
    let wrong = run_toolhub(folder.path(), &["mcp", "serve", "--stdio"], &[QUIET[0], ("TOOLHUB_TOKEN", "thk_no")]);
    assert!(wrong.code == 3 && wrong.out.is_empty(), "{wrong:?}");
    let empty = run_toolhub(folder.path(), &["mcp", "serve", "--stdio"], &[QUIET[0], ("TOOLHUB_TOKEN", "")]);
    assert!(empty.code == 3 && empty.err.contains("TOOLHUB_TOKEN"), "{empty:?}");
    let lines = run_toolhub(folder.path(), &["mcp", "serve", "--stdio"], &[QUIET[0], ("TOOLHUB_TOKEN", "a\nb")]);
    assert!(lines.code == 2 && lines.err.contains("TOOLHUB_TOKEN") && lines.out.is_empty(), "{lines:?}");
    let variables = [QUIET[0], ("TOOLHUB_TOKEN", created["key"].as_str().expect("a key"))];
    let mut first = StdioClient::legacy(folder.path(), &[], &variables);
    let mut second = StdioClient::modern(folder.path(), &[], &variables);
    assert_eq!(first.text("calculator", &json!({"expression": "1+1"})), "2");
    assert_eq!(second.text("calculator", &json!({"expression": "1+1"})), "2");
    let variables = [QUIET[0], ("TOOLHUB_TOKEN", caller["key"].as_str().expect("a key"))];
    let mut only_calls = StdioClient::legacy(folder.path(), &[], &variables);
    assert_eq!(only_calls.text("calculator", &json!({"expression": "1+1"})), "2");
    let refused = only_calls.request("tools/list", json!({}));
    assert_eq!(refused["error"]["data"]["code"], "forbidden", "{refused}");
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
