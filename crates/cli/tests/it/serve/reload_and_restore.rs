//! A server and its store after reloads, restores and restarts.

use std::fs;

use serde_json::json;
use toolhub_testkit::TempFolder;

use super::{TOOLS, calculate, connection::HttpConnection, process::Process};
use crate::config::run_toolhub;

#[test]
fn a_config_file_that_is_gone_or_emptied_changes_nothing() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let mut connection = HttpConnection::connect(server.port);
    folder.write("toolhub.toml", "\n");
    let emptied = connection.send("POST /api/v1/reload", "", "");
    assert_eq!(emptied.status, 422, "{}", emptied.text);
    assert!(emptied.text.contains("is empty") && emptied.text.contains("toolhub.toml"), "{}", emptied.text);
    fs::remove_file(folder.path().join("toolhub.toml")).expect("it is there");
    let missing = connection.send("POST /api/v1/reload", "", "");
    assert_eq!(missing.status, 422, "{}", missing.text);
    assert!(missing.text.contains("is missing"), "{}", missing.text);
    assert_eq!(calculate(&mut connection), 200);
    // Removing a tool in an existing file is applied.
    folder.write("toolhub.toml", "[tools.counter]\nbuiltin = \"counter\"\n");
    assert_eq!(connection.send("POST /api/v1/reload", "", "").json()["removed"], json!(["calculator"]));
}

#[test]
fn a_reload_names_the_settings_that_changed() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let url = format!("http://127.0.0.1:{}", server.port);
    let reload = || run_toolhub(folder.path(), &["--server", &url, "reload"], &[]);
    assert_eq!(reload().err.trim(), "nothing changed");
    folder.write(
        "toolhub.toml",
        &format!("{TOOLS}[[policy]]\ntool = \"calculator\"\ndecision = \"deny\"\n[defaults]\ntimeout = \"9s\"\n"),
    );
    assert_eq!(reload().out.trim(), "settings applied: defaults, policy");
}

#[test]
fn calls_go_on_in_a_store_that_was_restored() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("{TOOLS}[tools.dangerous]\nbuiltin = \"dangerous\"\n"));
    let run = |arguments: &[&str]| run_toolhub(folder.path(), arguments, &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let count = || run(&["--thread", "t", "call", "counter"]).out.trim().to_owned();
    let request_approval = || {
        let call = run(&["--json", "--no-input", "call", "dangerous", "folder=/tmp/old"]);
        let call: serde_json::Value = serde_json::from_str(&call.out).expect("a call that waits");
        call["approval"]["id"].as_str().expect("an approval").to_owned()
    };
    assert_eq!(count(), "1");
    let before = request_approval();
    let copy = run(&["backup"]).out.trim().to_owned();
    assert_eq!(count(), "2");
    let restored = run(&["restore", &copy]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert_eq!([count(), count()], ["2", "3"], "a state and its call are written together, as before");
    for approval in [before, request_approval()] {
        let output = run(&["approvals", "approve", &approval]);
        assert!(output.out.contains("/tmp/old is deleted"), "{}{}", output.out, output.err);
    }
}

#[test]
fn a_call_that_goes_on_in_another_process_arrived_before_that() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("{TOOLS}[tools.dangerous]\nbuiltin = \"dangerous\"\n"));
    let run = |arguments: &[&str]| {
        let out = run_toolhub(folder.path(), &[&["--json", "--no-input"], arguments].concat(), &[]).out;
        serde_json::from_str::<serde_json::Value>(&out).unwrap_or_default()
    };
    let waiting = run(&["call", "dangerous", "folder=/tmp/old"]);
    let later = run(&["call", "counter"]);
    run(&["approvals", "approve", waiting["approval"]["id"].as_str().expect("an approval")]);
    let ended = run(&["calls", "show", waiting["id"].as_str().expect("an id")]);
    let arrived = |call: &serde_json::Value| call["startedAt"].as_str().map(|at| at.trim_end_matches('Z').to_owned());
    assert_eq!(ended["status"], "success");
    assert!(arrived(&ended) <= arrived(&later), "{ended} came before {later}");
}

#[test]
fn a_tool_of_the_api_comes_back_when_the_config_lets_go_of_its_name() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let mut connection = HttpConnection::connect(server.port);
    let mine = json!({"name": "mine", "builtin": "clock", "description": "Of the API."}).to_string();
    assert_eq!(connection.send("POST /api/v1/tools", "", &mine).status, 201);
    for (more, of_the_api) in [("[tools.mine]\nbuiltin = \"notes\"\n", false), ("", true)] {
        folder.write("toolhub.toml", &format!("{TOOLS}{more}"));
        assert_eq!(connection.send("POST /api/v1/reload", "", "").status, 200);
        let tool = connection.send("GET /api/v1/tools/mine", "", "");
        assert_eq!(tool.status, 200, "{}", tool.text);
        assert_eq!(tool.json()["description"] == "Of the API.", of_the_api, "{}", tool.text);
    }
}

#[test]
fn what_needs_a_restart_is_told_until_there_was_one() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let mut connection = HttpConnection::connect(server.port);
    let other = format!("[server]\nbody_limit = \"1MiB\"\n{TOOLS}");
    for (text, expected) in
        [(other.as_str(), json!(["server.body_limit"])), (&other, json!(["server.body_limit"])), (TOOLS, json!([]))]
    {
        folder.write("toolhub.toml", text);
        let done = connection.send("POST /api/v1/reload", "", "");
        assert_eq!((done.status, &done.json()["needsRestart"]), (200, &expected), "{}", done.text);
        // Also to those who have not seen the reload.
        let info = HttpConnection::connect(server.port).send("GET /api/v1/info", "", "").json();
        let pending = info.get("restartPending").cloned().unwrap_or_else(|| json!([]));
        assert_eq!(pending, expected);
    }
}
