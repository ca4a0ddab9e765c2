//! The binary as a server: reloads under load, graceful shutdown, secrets, and the demo.

mod agents;
mod approvals;
mod attacks;
mod clock_jump;
mod connection;
mod damaged_store;
mod dashboard;
mod dead_ends;
mod floods;
mod full_disk;
mod hostile;
mod imports;
mod inspection;
mod logs;
mod many_nodes;
mod mcp_added;
mod mcp_endpoint;
mod mcp_export;
mod mcp_import;
mod mcp_json;
mod mcp_servers;
mod mcp_sessions;
mod mcp_stdio;
mod mcp_tools;
mod nodes_killed;
mod old_registries;
mod planted_secrets;
mod process;
mod redis_refusals;
mod redis_store;
mod reload_and_restore;
mod runs_killed;
mod service;
mod signals;
mod state_backups;
mod stdio_client;
mod stub_llm;
mod threads_killed;
mod tools;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::json;
use toolhub_testkit::{TempFolder, soak};

use crate::config::run_toolhub;
use connection::HttpConnection;
use process::Process;

const TOOLS: &str = r#"
[tools.calculator]
builtin = "calculator"
[tools.counter]
builtin = "counter"
"#;

fn calculate(connection: &mut HttpConnection) -> u16 {
    let body = json!({"arguments": {"expression": "2+3*4"}}).to_string();
    let response = connection.send("POST /api/v1/tools/calculator/calls", "", &body);
    assert!(response.status != 200 || response.json()["output"] == 14, "{}", response.text);
    response.status
}

#[test]
fn a_config_is_read_again_a_thousand_times_and_no_call_notices() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for caller in 0..4 {
            let (stop, calls, port) = (&stop, &calls, server.port);
            scope.spawn(move || {
                let mut connection = HttpConnection::connect(port);
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(calculate(&mut connection), 200);
                    let thread = json!({"arguments": {}, "threadId": format!("t{caller}")}).to_string();
                    let counted = connection.send("POST /api/v1/tools/counter/calls", "", &thread);
                    assert_eq!(
                        (counted.status, &counted.json()["status"]),
                        (200, &json!("success")),
                        "{}",
                        counted.text
                    );
                    calls.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
        let mut admin = HttpConnection::connect(server.port);
        let rounds = soak(200, 1_000);
        for round in 0..rounds {
            // Change a limit, add and remove a tool, replace a tool; and every tenth time write an invalid file.
            let more = if round % 2 == 0 { "[tools.clock]\nbuiltin = \"clock\"\n" } else { "" };
            let bad = if round % 10 == 9 { "[tools.calculater]\nbuiltin = \"calculater\"\n" } else { "" };
            let text = format!(
                "[defaults]\ntimeout = \"{}s\"\n{TOOLS}description = \"Count {round}.\"\n{more}{bad}",
                30 + round % 7
            );
            folder.write("toolhub.toml", &text);
            let response = admin.send("POST /api/v1/reload", "", "");
            let expected = if bad.is_empty() { 200 } else { 422 };
            assert_eq!(response.status, expected, "round {round}: {}", response.text);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let calls = calls.into_inner();
    assert!(calls > 100, "too little load: {calls} calls");
    let count = HttpConnection::connect(server.port).send("GET /api/v1/state/contexts/t0%2Fcounter/business", "", "");
    assert!(count.json()["data"].is_object() || count.json()["data"].is_number(), "{}", count.text);
}

#[test]
fn a_server_that_is_asked_to_stop_answers_every_call_it_took() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let (port, answered) = (server.port, Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let answered = answered.clone();
            thread::spawn(move || {
                let mut connection = HttpConnection::connect(port);
                let mut counted = 0_u64;
                let body = json!({"arguments": {}, "threadId": format!("t{caller}")}).to_string();
                loop {
                    match connection.try_send("POST /api/v1/tools/counter/calls", "", &body) {
                        Some(response) if response.status == 200 => {
                            counted = response.json()["output"].as_u64().expect("a count");
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        // The server refuses new calls from here on.
                        Some(response) => {
                            assert_eq!(response.status, 503, "{}", response.text);
                            return counted;
                        }
                        None => return counted,
                    }
                }
            })
        })
        .collect();
    while answered.load(Ordering::Relaxed) < 200 && callers.iter().any(|caller| !caller.is_finished()) {
        thread::park_timeout(Duration::from_millis(1));
    }
    server.signal("TERM");
    let counted: Vec<u64> =
        callers.into_iter().map(|caller| caller.join().expect("every caller got a response")).collect();
    let (code, ..) = server.wait_for_exit();
    assert_eq!(code, Some(0));
    assert!(counted.iter().sum::<u64>() > 0, "no call succeeded");
    // Every response matches the stored state: a call that was accepted was also answered.
    for (caller, counted) in counted.into_iter().enumerate() {
        let shown = run_toolhub(folder.path(), &["--json", "state", "get", &format!("t{caller}/counter")], &[]);
        let entry: serde_json::Value = serde_json::from_str(&shown.out).unwrap_or_default();
        assert_eq!(entry["version"].as_u64().unwrap_or(0), counted, "caller {caller}: {}{}", shown.out, shown.err);
    }
    let open = run_toolhub(folder.path(), &["--json", "calls", "list", "--status", "executing"], &[]);
    let open: serde_json::Value = serde_json::from_str(&open.out).expect("a list");
    assert_eq!(open["items"], json!([]), "every call has ended");
}

#[test]
fn a_key_that_leaves_the_config_is_refused_once_it_is_read_again() {
    let folder = TempFolder::new();
    let create = |name: &str| {
        let created = run_toolhub(folder.path(), &["--json", "keys", "create", name, "--scope", "admin"], &[]);
        serde_json::from_str::<serde_json::Value>(&created.out)
            .unwrap_or_else(|_| panic!("{}{}", created.out, created.err))
    };
    let (old, new) = (create("old"), create("new"));
    let lines = |name: &str, key: &serde_json::Value| {
        format!("[[auth.keys]]\nname = \"{name}\"\nhash = {}\nscopes = [\"admin\"]\n", key["hash"])
    };
    let (first, second) = (lines("old", &old), lines("new", &new));
    folder.write("toolhub.toml", &format!("[auth]\nmode = \"keys\"\n{first}{second}"));
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let mut connection = HttpConnection::connect(server.port);
    let header = |key: &serde_json::Value| format!("authorization: Bearer {}\r\n", key["key"].as_str().expect("a key"));
    let (old, new) = (header(&old), header(&new));
    assert_eq!(connection.send("GET /api/v1/tools", &old, "").status, 200);
    folder.write("toolhub.toml", &format!("[auth]\nmode = \"keys\"\n{second}"));
    let done = connection.send("POST /api/v1/reload", &new, "");
    assert_eq!((done.status, &done.json()["needsRestart"]), (200, &json!([])), "{}", done.text);
    assert_eq!(connection.send("GET /api/v1/tools", &old, "").status, 401);
    assert_eq!(connection.send("GET /api/v1/tools", &new, "").status, 200);
}

#[test]
fn a_reload_that_leaves_nobody_who_may_administer_is_done_and_said_aloud() {
    let folder = TempFolder::new();
    let created = run_toolhub(folder.path(), &["--json", "keys", "create", "ops", "--scope", "admin"], &[]);
    let created: serde_json::Value = serde_json::from_str(&created.out).unwrap_or_else(|_| panic!("{}", created.err));
    let config = |scope: &str| {
        format!(
            "[auth]\nmode = \"keys\"\n[[auth.keys]]\nname = \"ops\"\nhash = {}\nscopes = [\"{scope}\"]\n",
            created["hash"]
        )
    };
    folder.write("toolhub.toml", &config("admin"));
    let server =
        Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "warn")]);
    let (mut connection, key) = (HttpConnection::connect(server.port), created["key"].as_str().expect("a key"));
    let own = format!("authorization: Bearer {key}\r\n");
    folder.write("toolhub.toml", &config("tools:read"));
    assert_eq!(connection.send("POST /api/v1/reload", &own, "").status, 200);
    assert_eq!(connection.send("POST /api/v1/reload", &own, "").status, 403);
    server.signal("TERM");
    let (_, _, err) = server.wait_for_exit();
    assert!(err.contains("no key with the scope `admin`") && err.contains("SIGHUP"), "{err}");
}

#[test]
fn a_tool_made_over_the_api_is_there_after_a_restart_and_the_config_wins() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off"), ("SECRET_OF_THE_HOST", "canary")];
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    let adder = json!({"name": "adder", "builtin": "calculator", "description": "Adds.", "maxConcurrency": 2,
        "annotations": {"readOnly": true}, "metadata": {"madeBy": "ann"}, "tags": null});
    let created = connection.send("POST /api/v1/tools", "", &adder.to_string());
    assert_eq!((created.status, &created.json()["description"]), (201, &json!("Adds.")), "{}", created.text);
    assert_eq!(connection.send("POST /api/v1/tools", "", &adder.to_string()).status, 409);
    let body = json!({"arguments": {"expression": "1+1"}}).to_string();
    assert_eq!(connection.send("POST /api/v1/tools/adder/calls", "", &body).json()["output"], 2);
    for (tool, word) in [
        (json!({"name": "x", "builtin": "calculater"}), "calculator"),
        (json!({"name": "x", "builtin": "clock", "descripton": "y"}), "description"),
        (json!({"name": "x", "builtin": "clock", "description": "${SECRET_OF_THE_HOST}"}), "SECRET_OF_THE_HOST"),
        (json!({"name": "x", "command": ["sh"]}), "config file"),
        (json!({"name": "x", "builtin": "clock", "timeout": 5}), "\"5s\""),
    ] {
        let response = connection.send("POST /api/v1/tools", "", &tool.to_string());
        assert_eq!(response.status, 422, "{tool}: {}", response.text);
        assert!(
            response.text.contains(word) || response.text.contains(&word.replace('"', "\\\"")),
            "{tool}: {}",
            response.text
        );
        assert!(!response.text.contains("canary"), "{}", response.text);
    }
    let taken = json!({"builtin": "clock"}).to_string();
    assert_eq!(connection.send("PUT /api/v1/tools/counter", "", &taken).status, 409, "the config wins");
    assert_eq!(connection.send("DELETE /api/v1/tools/counter", "", "").status, 409, "the config wins");
    server.signal("KILL");
    server.wait_for_exit();

    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(connection.send("POST /api/v1/tools/adder/calls", "", &body).json()["output"], 2);
    assert_eq!(connection.send("PUT /api/v1/tools/adder", "", &taken).status, 200);
    assert_eq!(connection.send("DELETE /api/v1/tools/adder", "", "").status, 204);
    assert_eq!(connection.send("POST /api/v1/tools/adder/calls", "", &body).status, 404);
    server.signal("KILL");
    server.wait_for_exit();

    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    assert_eq!(HttpConnection::connect(server.port).send("GET /api/v1/tools/adder", "", "").status, 404);
}

#[test]
fn a_tool_made_over_the_api_may_wait_for_any_tool_there_is_and_is_left_out_where_that_is_gone() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")];
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    let create = |connection: &mut HttpConnection, name: &str, after: &str| {
        let body = json!({"name": name, "builtin": "clock", "dependsOn": [after]}).to_string();
        connection.send("POST /api/v1/tools", "", &body)
    };
    let second = create(&mut connection, "second", "counter");
    assert_eq!(second.status, 201, "{}", second.text);
    assert_eq!(create(&mut connection, "third", "second").status, 201);
    let unknown = create(&mut connection, "fourth", "secnd");
    assert_eq!(unknown.status, 422, "{}", unknown.text);
    let early = connection.send("POST /api/v1/tools/second/calls", "", r#"{"threadId": "t"}"#);
    assert_eq!(early.json()["code"], "dependency_not_met", "{}", early.text);
    server.signal("KILL");
    server.wait_for_exit();
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(connection.send("GET /api/v1/tools/third", "", "").status, 200);
    server.signal("KILL");
    server.wait_for_exit();
    folder.write("toolhub.toml", "[tools.calculator]\nbuiltin = \"calculator\"\n");
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(connection.send("GET /api/v1/tools/calculator", "", "").status, 200);
    for removed in ["second", "third"] {
        assert_eq!(connection.send(&format!("GET /api/v1/tools/{removed}"), "", "").status, 404, "{removed}");
    }
}

#[test]
fn a_public_address_without_keys_is_refused_with_the_way_out() {
    let folder = TempFolder::new();
    let ran = run_toolhub(folder.path(), &["serve", "--host", "0.0.0.0"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("toolhub keys create"), "{}", ran.err);
}

#[test]
fn a_config_with_a_mistake_starts_nothing_and_an_address_that_is_taken_says_so() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[server]\nprot = 1\n");
    let ran = run_toolhub(folder.path(), &["serve"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("`port`") && ran.err.contains("toolhub.toml:2"), "{}", ran.err);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = taken.local_addr().expect("it has an address").port().to_string();
    folder.write("toolhub.toml", "");
    let ran = run_toolhub(folder.path(), &["serve", "--port", &port], &[]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(ran.err.contains("--port"), "{}", ran.err);
}

#[test]
fn the_demo_serves_its_tools_and_leaves_nothing_behind() {
    let folder = TempFolder::new();
    let server = Process::start(folder.path(), &["demo", "--port", "0"], &[]);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(connection.send("GET /livez", "", "").status, 200);
    assert_eq!(calculate(&mut connection), 200);
    let states = connection.send("GET /agents/demo/tool-states", "", "").json();
    let names: Vec<&String> = states["data"]["toolStates"].as_object().expect("its tools").keys().collect();
    let all = ["calculator", "clock", "counter", "dangerous", "echo", "flaky", "notes", "report", "weather", "words"];
    assert_eq!(names, all);
    let mut call = |tool: &str, arguments: serde_json::Value| {
        let body = json!({"arguments": arguments, "threadId": "demo"}).to_string();
        connection.send(&format!("POST /api/v1/tools/{tool}/calls"), "", &body).json()
    };
    assert_eq!(call("echo", json!({"text": "from an MCP server"}))["output"], "from an MCP server");
    assert_eq!(call("report", json!({"title": "Trip"}))["code"], "dependency_not_met");
    assert_eq!(call("weather", json!({"city": "Paris"}))["output"]["unit"], "°C");
    assert_eq!(call("report", json!({"title": "Trip"}))["status"], "success");
    assert_eq!(call("words", json!({"text": "two words"}))["output"], json!({"letters": 8, "words": 2}));
    let message = json!({"content": "weather in Oslo, then a report"}).to_string();
    let reply = connection.send("POST /api/v1/threads/talk/messages", "", &message).json();
    let tools: Vec<_> = reply["calls"].as_array().expect("its calls").iter().map(|call| &call["tool"]).collect();
    assert_eq!((&reply["status"], tools), (&json!("completed"), vec![&json!("weather"), &json!("report")]), "{reply}");
    let asks = json!({"arguments": {"folder": "/tmp/old"}}).to_string();
    let waits = connection.send("POST /api/v1/tools/dangerous/calls", "", &asks);
    assert_eq!((waits.status, &waits.json()["status"]), (202, &json!("awaiting_approval")), "{}", waits.text);
    // The printed commands can be copied: on this port they need --server.
    let url = format!("http://127.0.0.1:{}", server.port);
    let command = format!("expression='2+3*4' --server {url}\n");
    server.signal("TERM");
    let (code, out, err) = server.wait_for_exit();
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains(&command), "{out}");
    let claude_code = format!("claude mcp add --transport http toolhub {url}/mcp ");
    assert!(out.contains(&format!("MCP          {url}/mcp\n")) && out.contains(&claude_code), "{out}");
    assert!(
        out.contains("/docs") && out.contains(" chat \"weather in Oslo") && out.matches("call ").count() >= 2,
        "{out}"
    );
    let left: Vec<_> = fs::read_dir(folder.path()).expect("the folder is there").collect();
    assert!(left.is_empty(), "{left:?}");
}
