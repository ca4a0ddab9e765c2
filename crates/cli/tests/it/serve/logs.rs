//! The log of a server: what happens to tools, in JSON lines.

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process};

const CONFIG: &str = r#"
[telemetry]
log = { level = "info", format = "json" }
[tools.flaky]
builtin = "flaky"
[tools.dangerous]
builtin = "dangerous"
"#;

/// The log lines with this message.
fn find<'a>(log: &'a str, message: &str) -> Vec<(&'a str, Value)> {
    let lines = log.lines().filter_map(|line| Some((line, serde_json::from_str::<Value>(line).ok()?)));
    lines.filter(|(_, line)| line["message"] == message).collect()
}

#[test]
fn the_log_tells_what_happens_to_tools() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", CONFIG);
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[]);
    let mut connection = HttpConnection::connect(server.port);
    let mut send = |what: &str, body: Value| connection.send(what, "", &body.to_string());
    for _ in 0..3 {
        assert_eq!(send("POST /api/v1/tools/flaky/calls", json!({"threadId": "t"})).json()["status"], "error");
    }
    let body = json!({"arguments": {"folder": "/tmp/x"}, "threadId": "t"});
    let waiting = send("POST /api/v1/tools/dangerous/calls", body);
    assert_eq!(waiting.status, 202, "{}", waiting.text);
    let approval = waiting.json()["approval"]["id"].as_str().expect("an approval").to_owned();
    let answered = send(&format!("POST /api/v1/approvals/{approval}"), json!({"outcome": "proceed_once"}));
    assert_eq!(answered.status, 200, "{}", answered.text);
    send("GET /api/v1/tools/sk-canary", json!({}));
    folder.write("toolhub.toml", &format!("{CONFIG}[tools.clock]\nbuiltin = \"clock\"\n"));
    assert_eq!(send("POST /api/v1/reload", json!({})).status, 200);
    server.signal("HUP");
    server.signal("TERM");
    let (_, _, log) = server.wait_for_exit();

    let failed = find(&log, "call failed");
    assert_eq!(failed.len(), 3, "{log}");
    for (_, line) in &failed {
        assert_eq!((&line["level"], &line["tool"], &line["thread"]), (&json!("warn"), &json!("flaky"), &json!("t")));
        assert!(line["call"].is_string() && line["error"].is_string() && line["ms"].is_number(), "{line}");
    }
    let changed = find(&log, "tool status changed");
    assert!(changed.iter().any(|(_, line)| line["tool"] == "flaky" && line["status"] == "failed"), "{log}");
    assert!(changed.iter().all(|(_, line)| line["level"] == "warn"), "{log}");
    for message in ["approval requested", "approval resolved"] {
        let lines = find(&log, message);
        assert!(lines.iter().any(|(_, line)| line["approval"] == approval && line["tool"] == "dangerous"), "{log}");
        assert!(lines.iter().all(|(_, line)| line["level"] == "info"), "{log}");
    }
    let requests = find(&log, "request");
    let call = requests.iter().find(|(_, line)| line["tool"] == "flaky").expect("a request of the tool");
    let fields: Vec<Option<usize>> =
        ["tool", "status", "ms", "method", "route"].iter().map(|name| call.0.find(&format!("\"{name}\":"))).collect();
    assert!(fields.is_sorted() && fields[0].is_some(), "tool, status and time come first: {}", call.0);
    assert!(!log.contains("sk-canary"), "an unknown tool name is not logged");
    for (_, line) in find(&log, "config reloaded") {
        assert!(line["added"].is_array() && line["removed"].is_array(), "{line}");
    }
}
