//! Several servers with one config on one Redis: what is done on one of them holds on the others.

use std::{process::Command, thread, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_testkit::{RedisServer, TempFolder, soak};

use super::{connection::HttpConnection, process::Process};
use crate::config::run_toolhub;

/// By when something must be so that costs a few requests; the tests allow more on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// What is done on one node must hold on the others within a second. Other tests of `./test` run at the same time, so only the soak run
/// asserts it.
fn propagation() -> Duration {
    soak(SOON, Duration::from_secs(1))
}
/// A killed node is dead after its silence; its calls are closed a little later.
const UNTIL_CLOSED: Duration = Duration::from_secs(90);

const TOOLS: &str = r#"
[tools.calculator]
builtin = "calculator"
[tools.dangerous]
builtin = "dangerous"
[tools.slow]
command = "sh"
args = ["-c", "cat >/dev/null; sleep 300"]
parameters = { type = "object" }
timeout = "10m"
confirm = false
[auth]
mode = "keys"
[llm]
provider = "scripted"
script = "script.toml"
[agents.outside]
tool_execution = "external"
"#;

/// Ended calls expire after a second, and the maintainer removes them then.
const SHORT_RETENTION: &str = "[state]\ncleanup_interval = \"1s\"\n[store.retention]\ncalls = \"1s\"\n";

/// The scripted model.
const SCRIPT: &str = r#"
[[turn]]
when = { user = "compute" }
call = [{ tool = "calculator", args = { expression = "1+1" } }]
[[turn]]
when = { tool_result = "*" }
say = "Done: ${result}"
"#;

/// Three nodes, and the key of an administrator.
struct Nodes {
    nodes: Vec<Process>,
    key: String,
    folder: TempFolder,
    redis: RedisServer,
}

impl Nodes {
    fn start() -> Self {
        Self::start_with("")
    }

    /// The same with these lines in the config.
    fn start_with(lines: &str) -> Self {
        let (redis, folder) = (RedisServer::start(), TempFolder::new());
        let created = run_toolhub(folder.path(), &["--json", "keys", "create", "ops"], &[]);
        let created: Value = serde_json::from_str(&created.out).unwrap_or_else(|_| panic!("{}", created.err));
        let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\nnode_timeout = \"2s\"\n", redis.url());
        let key = format!("[[auth.keys]]\nname = \"ops\"\nhash = {}\nscopes = [\"admin\"]\n", created["hash"]);
        folder.write("toolhub.toml", &format!("{store}{TOOLS}{key}{lines}"));
        folder.write("script.toml", SCRIPT);
        let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
        let node = |_| Process::start(folder.path(), &["serve", "--port", "0"], &variables);
        let nodes = (0..3).map(node).collect();
        let key = created["key"].as_str().expect("a key").to_owned();
        Self { nodes, key, folder, redis }
    }

    /// Sends a request to a node; returns the status and the body.
    fn send(&self, node: usize, what: &str, body: &Value) -> (u16, Value) {
        self.send_with(node, &self.key, "", what, body)
    }

    fn send_with(&self, node: usize, key: &str, headers: &str, what: &str, body: &Value) -> (u16, Value) {
        let headers = format!("authorization: Bearer {key}\r\n{headers}");
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let response = HttpConnection::connect(self.nodes[node].port).send(what, &headers, &text);
        (response.status, serde_json::from_str(&response.text).unwrap_or_default())
    }

    /// Starts a call that goes on without its caller.
    fn start_call(&self, node: usize, tool: &str, arguments: &Value) -> Value {
        let what = format!("POST /api/v1/tools/{tool}/calls");
        let body = json!({"arguments": arguments, "threadId": "t"});
        let (status, started) = self.send_with(node, &self.key, "prefer: respond-async\r\n", &what, &body);
        assert_eq!(status, 202, "{started}");
        started
    }
}

/// Waits until the condition holds.
#[track_caller]
fn within(time: Duration, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < time, "the condition did not hold within {time:?}");
        thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn what_is_done_on_one_of_three_nodes_holds_on_the_others() {
    let nodes = Nodes::start();
    // Membership.
    for node in 0..3 {
        let of_all = |nodes: &Value, condition: &dyn Fn(&Value) -> bool| {
            nodes["items"].as_array().map_or(0, |nodes| nodes.iter().filter(|node| condition(node)).count())
        };
        within(SOON, || {
            let listed = nodes.send(node, "GET /api/v1/nodes", &Value::Null).1;
            let first = listed["items"][0]["configDigest"].clone();
            let counts = [
                of_all(&listed, &|node| node["state"] == "alive" && node["configDigest"] == first),
                of_all(&listed, &|node| node["isSelf"] == true),
                of_all(&listed, &|node| node["isMaintainer"] == true),
            ];
            counts == [3, 1, 1]
        });
    }
    let url = format!("http://127.0.0.1:{}", nodes.nodes[0].port);
    let listed = run_toolhub(nodes.folder.path(), &["nodes", "--server", &url], &[("TOOLHUB_TOKEN", &nodes.key)]);
    assert_eq!((listed.code, listed.out.lines().count()), (0, 4), "{listed:?}");
    assert!(listed.out.contains("this one") && listed.out.contains("maintenance"), "{listed:?}");
    let ready = HttpConnection::connect(nodes.nodes[0].port);
    let ready = { ready }.send("GET /readyz?verbose", &format!("authorization: Bearer {}\r\n", nodes.key), "").text;
    assert!(ready.contains("[+]nodes 3 alive") && ready.contains("`store.redis.seal_secret`"), "{ready}");

    assert!(ready.contains("[+]maintenance by node ") && ready.contains("[+]store server redis://"), "{ready}");
    let metric = |node: usize, name: &str| {
        let key = format!("authorization: Bearer {}\r\n", nodes.key);
        let page = HttpConnection::connect(nodes.nodes[node].port).send("GET /metrics", &key, "").text;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        value.unwrap_or_else(|| panic!("{name} is missing: {page}"))
    };
    let sum = |name: &str| (0..3).map(|node| metric(node, name)).sum::<u64>();
    assert_eq!((sum("toolhub_nodes_alive "), sum("toolhub_maintenance_lease ")), (9, 1));

    // A tool.
    let tool = json!({"name": "made", "builtin": "calculator"});
    assert_eq!(nodes.send(0, "POST /api/v1/tools", &tool).0, 201);
    let call = json!({"arguments": {"expression": "1+1"}});
    for node in [1, 2] {
        within(propagation(), || nodes.send(node, "POST /api/v1/tools/made/calls", &call).1["status"] == "success");
        assert_eq!(nodes.send(node, "POST /api/v1/tools", &tool).0, 409);
    }
    assert_eq!(nodes.send(2, "DELETE /api/v1/tools/made", &Value::Null).0, 204);
    for node in [0, 1] {
        within(propagation(), || nodes.send(node, "GET /api/v1/tools/made", &Value::Null).0 == 404);
    }

    // A key.
    let (status, created) = nodes.send(1, "POST /api/v1/keys", &json!({"name": "ann", "scopes": ["tools:read"]}));
    assert_eq!(status, 201, "{created}");
    let key = created["key"].as_str().expect("a key");
    let use_key = |node| nodes.send_with(node, key, "", "GET /api/v1/tools", &Value::Null).0;
    for node in 0..3 {
        within(propagation(), || use_key(node) == 200);
    }
    let revoke = format!("DELETE /api/v1/keys/{}", created["id"].as_str().expect("an id"));
    assert_eq!(nodes.send(2, &revoke, &Value::Null).0, 204);
    for node in 0..3 {
        within(propagation(), || use_key(node) == 401);
    }

    // An approval.
    let asked = nodes.start_call(0, "dangerous", &json!({"folder": "/tmp/old"}));
    let (id, approval) =
        (asked["id"].as_str().expect("a call"), asked["approval"]["id"].as_str().expect("an approval"));
    let answer = format!("POST /api/v1/approvals/{approval}");
    assert_eq!(nodes.send(1, &answer, &json!({"outcome": "proceed_once"})).0, 200);
    let shown = format!("GET /api/v1/calls/{id}");
    within(propagation(), || nodes.send(2, &shown, &Value::Null).1["status"] == "success");

    // A tool that is switched off.
    assert_eq!(nodes.send(0, "POST /api/v1/tools/calculator/disable", &Value::Null).0, 200);
    for node in [1, 2] {
        within(propagation(), || {
            nodes.send(node, "GET /api/v1/tools/calculator", &Value::Null).1["status"] == "unavailable"
        });
    }
}

#[test]
fn one_command_reloads_the_config_of_all_nodes() {
    let nodes = Nodes::start();
    let url = format!("http://127.0.0.1:{}", nodes.nodes[1].port);
    let reload = |arguments: &[&str]| {
        let arguments = [&["reload", "--all", "--server", &url], arguments].concat();
        run_toolhub(nodes.folder.path(), &arguments, &[("TOOLHUB_TOKEN", &nodes.key)])
    };
    let file = std::fs::read_to_string(nodes.folder.path().join("toolhub.toml")).expect("the config is there");
    nodes.folder.write("toolhub.toml", &format!("{file}[tools.more]\nbuiltin = \"calculator\"\n"));
    let done = reload(&[]);
    assert_eq!((done.code, done.out.matches("tools added: more").count()), (0, 3), "{done:?}");
    for node in 0..3 {
        assert_eq!(nodes.send(node, "GET /api/v1/tools/more", &Value::Null).0, 200);
    }
    let done = reload(&["--json"]);
    let reloads: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
    let statuses: Vec<_> = reloads["nodes"].as_array().expect("nodes").iter().map(|node| &node["status"]).collect();
    assert_eq!(statuses, ["reloaded"; 3], "{reloads}");

    nodes.folder.write("toolhub.toml", &format!("{file}[tools.more]\nbultin = \"calculator\"\n"));
    let refused = reload(&[]);
    assert_eq!((refused.code, refused.out.matches("not reloaded: ").count()), (2, 3), "{refused:?}");
    assert_eq!(refused.out.matches("bultin").count(), 3, "{refused:?}");
    assert_eq!(nodes.send(0, "GET /api/v1/tools/more", &Value::Null).0, 200, "the old config is in force");
}

#[test]
fn a_call_of_a_killed_node_is_closed_as_interrupted_by_another() {
    let nodes = Nodes::start();
    let started = nodes.start_call(0, "slow", &json!({}));
    let shown = format!("GET /api/v1/calls/{}", started["id"].as_str().expect("a call"));
    within(SOON, || nodes.send(1, &shown, &Value::Null).0 == 200);
    nodes.nodes[0].signal("KILL");
    within(UNTIL_CLOSED, || nodes.send(1, &shown, &Value::Null).1["error"]["code"] == "interrupted");
    assert_eq!(nodes.send(2, &shown, &Value::Null).1["error"]["code"], "interrupted");
}

#[test]
fn a_call_on_one_node_is_cancelled_and_gets_an_external_result_on_another() {
    let nodes = Nodes::start();
    let started = nodes.start_call(0, "slow", &json!({}));
    let call = started["id"].as_str().expect("a call");
    let (shown, cancel) = (format!("GET /api/v1/calls/{call}"), format!("POST /api/v1/calls/{call}/cancel"));
    let (status, cancelled) = nodes.send(1, &cancel, &Value::Null);
    assert_eq!(status, 202, "{cancelled}");
    within(propagation(), || nodes.send(2, &shown, &Value::Null).1["status"] == "cancelled");
    assert_eq!(nodes.send(2, &cancel, &Value::Null).0, 409, "it has ended");

    let message = json!({"content": "compute", "agent": "outside"});
    let (status, waiting) = nodes.send(0, "POST /api/v1/threads/outside/messages", &message);
    assert_eq!((status, &waiting["status"]), (202, &json!("waiting")), "{waiting}");
    let result = format!("POST /api/v1/calls/{}/result", waiting["calls"][0]["id"].as_str().expect("a call"));
    let (status, taken) = nodes.send(1, &result, &json!({"output": 3}));
    assert_eq!(status, 200, "{taken}");
    let (status, late) = nodes.send(2, &result, &json!({"output": 2}));
    assert_eq!((status, &late["code"]), (409, &json!("call_ended")), "{late}");
    let run = format!("GET /api/v1/runs/{}", waiting["runId"].as_str().expect("a run"));
    within(SOON, || nodes.send(2, &run, &Value::Null).1["content"] == "Done: 3");
}

#[test]
fn the_maintenance_of_a_killed_node_is_done_by_another() {
    let nodes = Nodes::start_with(SHORT_RETENTION);
    let maintainer = |of: usize| {
        let listed = nodes.send(of, "GET /api/v1/nodes", &Value::Null).1;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|node| node["isMaintainer"] == true).map(|node| node["id"].clone())
    };
    let own_id = |of: usize| {
        let listed = nodes.send(of, "GET /api/v1/nodes", &Value::Null).1;
        listed["items"]
            .as_array()
            .and_then(|items| items.iter().find(|node| node["isSelf"] == true)?.get("id").cloned())
    };
    within(SOON, || (0..3).all(|node| maintainer(node).is_some()));
    let first = maintainer(0);
    let killed = (0..3).find(|node| own_id(*node) == first).expect("one of the nodes");
    let others: Vec<usize> = (0..3).filter(|node| *node != killed).collect();
    nodes.nodes[killed].signal("KILL");
    within(UNTIL_CLOSED, || others.iter().all(|node| maintainer(*node).is_some_and(|id| Some(id) != first)));
    let records = || nodes.redis.cli(&["--scan", "--pattern", "toolhub:*:p:main/c/*"]);
    for node in &others {
        let body = json!({"arguments": {"expression": "1+1"}});
        assert_eq!(nodes.send(*node, "POST /api/v1/tools/calculator/calls", &body).1["status"], "success");
    }
    within(SOON, || !records().is_empty());
    within(UNTIL_CLOSED, || records().is_empty());
}

#[test]
fn the_example_of_three_nodes_runs_and_shows_that_they_share_a_thread() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/many-nodes/three_nodes.py");
    let mut command = Command::new("python3");
    command.arg(script).env("TOOLHUB", env!("CARGO_BIN_EXE_toolhub"));
    let output = command.output().expect("python3 can be started");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{error}");
    let lines: Vec<&str> = out.lines().collect();
    let expected = [
        "node 1 counts to 1",
        "node 2 counts to 2",
        "node 3 counts to 3",
        "node 1 is killed",
        "node 2 counts to 4",
        "node 3 counts to 5",
        "nodes that are alive: 2",
    ];
    assert_eq!(lines, expected);
}
