//! Names in `telemetry.redact` are secret in everything the hub records.

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process};

#[test]
fn a_name_that_the_owner_lists_is_redacted_wherever_a_call_or_state_is_recorded() {
    let folder = TempFolder::new();
    folder.write(
        "toolhub.toml",
        r#"
        [telemetry]
        redact = ["Salary*"]
        log = { level = "trace", format = "json" }
        [tools.raise]
        command = "cat"
        confirm = true
        parameters = { type = "object", properties = { salary_new = { type = "string" } } }
        "#,
    );
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[]);
    let mut connection = HttpConnection::connect(server.port);
    let mut send = |what: &str, body: Value| connection.send(what, "", &body.to_string());
    let call = json!({"arguments": {"salary_new": "canary-1"}, "threadId": "t"});
    let waiting = send("POST /api/v1/tools/raise/calls", call.clone()).json();
    let approval = waiting["approval"]["id"].as_str().expect("an approval").to_owned();
    let shown = send(&format!("GET /api/v1/approvals/{approval}"), json!({})).text;
    assert!(shown.contains("[redacted]") && !shown.contains("canary"), "{shown}");
    send(&format!("POST /api/v1/approvals/{approval}"), json!({"outcome": "cancel"}));
    assert_eq!(
        send("PUT /api/v1/state/contexts/t%2Fstaff/business", json!({"data": {"salaryOld": "canary-2"}})).status,
        201
    );
    for what in [
        "GET /api/v1/calls",
        "GET /api/v1/approvals?state=denied",
        "GET /api/v1/state/contexts/t%2Fstaff/business/history",
    ] {
        let found = send(what, json!({}));
        assert_eq!(found.status, 200, "{what}: {}", found.text);
        assert!(found.text.contains("[redacted]") && !found.text.contains("canary"), "{what}: {}", found.text);
    }
    server.signal("TERM");
    let (_, _, log) = server.wait_for_exit();
    assert!(!log.contains("canary"), "{log}");
}
