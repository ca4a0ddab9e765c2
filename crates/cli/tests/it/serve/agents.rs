//! Agents behind the real binary: conversations with tools that wait, fail and recover, across restarts.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process};

/// The scripted model: computes, reports, probes and deletes on request, and says so where it cannot.
const SCRIPT: &str = r#"
[[turn]]
when = { user = 'compute (?<sum>\S+)', tool_available = "calculator" }
call = [{ tool = "calculator", args = { expression = "$sum" } }]
[[turn]]
when = { user = "report", tool_available = "report" }
call = [{ tool = "report", args = { title = "Sums" } }]
[[turn]]
when = { user = "report", tool_missing = "report" }
say = "No report yet."
[[turn]]
when = { user = "probe", tool_available = "probe" }
call = [{ tool = "probe" }]
[[turn]]
when = { user = "probe", tool_missing = "probe" }
say = "The probe is not there."
[[turn]]
when = { user = 'delete (?<folder>\S+)' }
call = [{ tool = "dangerous", args = { folder = "$folder" } }]
[[turn]]
when = { tool_result = "*" }
say = "Done: ${result}"
[default]
say = "I have ${tools}."
"#;

/// Fails as long as a file exists.
const PROBE: &str = r#"
import json, os, sys
json.load(sys.stdin)
if os.path.exists("down"):
    sys.exit("the line is dead")
print(json.dumps("alive"))
"#;

const CONFIG: &str = r#"
[status]
failure_threshold = 3
failure_duration = "10m"
[llm]
provider = "scripted"
script = "script.toml"
[agents.default]
system_prompt = "You are careful."
toolsets = ["basic"]
[agents.outside]
tool_execution = "external"
external_deadline = "10m"
[toolsets.basic]
description = "Everyday tools"
tools = ["calculator", "report", "probe", "dangerous"]
[tools.calculator]
builtin = "calculator"
[tools.clock]
builtin = "clock"
[tools.report]
builtin = "report"
depends_on = ["calculator"]
[tools.dangerous]
builtin = "dangerous"
[tools.probe]
description = "Looks whether the line is alive."
command = "python3"
args = ["probe.py"]
"#;

fn create_folder() -> TempFolder {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", CONFIG);
    folder.write("script.toml", SCRIPT);
    folder.write("probe.py", PROBE);
    folder
}

fn start_server(folder: &TempFolder) -> Process {
    let path = std::env::var("PATH").unwrap_or_default();
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off"), ("PATH", path.as_str())];
    Process::start(folder.path(), &["serve", "--port", "0"], &variables)
}

/// Stops a server gracefully, and starts the next one on the same folder.
fn restart(server: Process, folder: &TempFolder) -> Process {
    server.signal("TERM");
    let (code, _, err) = server.wait_for_exit();
    assert_eq!(code, Some(0), "{err}");
    start_server(folder)
}

fn send_message(server: &Process, thread: &str, body: &Value) -> (u16, Value) {
    let what = format!("POST /api/v1/threads/{thread}/messages");
    let response = HttpConnection::connect(server.port).send(&what, "", &body.to_string());
    (response.status, response.json())
}

/// The agent's reply to a message that completes without waiting.
#[track_caller]
fn expect_reply(server: &Process, thread: &str, content: &str) -> String {
    let (status, reply) = send_message(server, thread, &json!({ "content": content }));
    assert_eq!((status, &reply["status"]), (200, &json!("completed")), "{reply}");
    reply["message"]["content"].as_str().expect("a text").to_owned()
}

fn get(server: &Process, path: &str) -> Value {
    let response = HttpConnection::connect(server.port).send(&format!("GET {path}"), "", "");
    assert_eq!(response.status, 200, "{}", response.text);
    response.json()
}

fn post(server: &Process, path: &str, body: &Value) -> (u16, Value) {
    let response = HttpConnection::connect(server.port).send(&format!("POST {path}"), "", &body.to_string());
    (response.status, response.json())
}

fn tool_state(server: &Process, thread: &str, tool: &str) -> (String, String) {
    let states = get(server, &format!("/agents/{thread}/tool-states"));
    let state = &states["data"]["toolStates"][tool];
    let text = |name: &str| state[name].as_str().unwrap_or_else(|| panic!("{states}")).to_owned();
    (text("status"), text("reason"))
}

/// Waits for the end of a run.
fn wait_for_run_end(server: &Process, run: &Value) -> Value {
    let path = format!("/api/v1/runs/{}", run.as_str().expect("the id of a run"));
    for _ in 0..3_000 {
        let run = get(server, &path);
        if !["running", "waiting"].iter().any(|open| run["status"] == *open) {
            return run;
        }
        thread::park_timeout(Duration::from_millis(10));
    }
    panic!("the run does not end: {}", get(server, &path));
}

#[test]
fn a_tool_that_waits_for_another_is_used_in_a_later_turn_after_a_restart() {
    let folder = create_folder();
    let server = start_server(&folder);
    assert_eq!(expect_reply(&server, "t1", "a report, please"), "No report yet.");
    assert_eq!(tool_state(&server, "t1", "report").0, "unavailable");
    assert_eq!(expect_reply(&server, "t1", "compute 2+3*4"), "Done: 14");
    assert_eq!(tool_state(&server, "t1", "report"), ("available".into(), "dependencies met".into()));
    let server = restart(server, &folder);
    assert_eq!(tool_state(&server, "t1", "report"), ("available".into(), "dependencies met".into()));
    assert!(expect_reply(&server, "t1", "a report, please").starts_with("Done: # Sums"));
    assert_eq!(tool_state(&server, "t1", "report"), ("available".into(), "executed successfully".into()));
    // The conversation is complete; another thread shares nothing of it.
    let messages = get(&server, "/api/v1/threads/t1/messages");
    let messages = messages["items"].as_array().expect("messages").clone();
    let user_messages: Vec<&Value> =
        messages.iter().filter(|one| one["role"] == "user").map(|one| &one["content"]).collect();
    assert_eq!(user_messages, ["a report, please", "compute 2+3*4", "a report, please"]);
    let calls: usize = messages.iter().map(|one| one["calls"].as_array().map_or(0, Vec::len)).sum();
    let results: usize = messages.iter().map(|one| one["results"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!((calls, results), (2, 2));
    assert_eq!(expect_reply(&server, "t2", "a report, please"), "No report yet.");
}

#[test]
fn a_failing_tool_is_withheld_shown_reset_and_used_again() {
    let folder = create_folder();
    folder.write("down", "");
    let server = start_server(&folder);
    for _ in 0..3 {
        let (_, reply) = send_message(&server, "t1", &json!({"content": "probe it"}));
        assert_eq!((&reply["status"], &reply["calls"][0]["status"]), (&json!("completed"), &json!("error")), "{reply}");
    }
    let (status, reason) = tool_state(&server, "t1", "probe");
    assert_eq!((status.as_str(), reason.as_str()), ("failed", "failed 3 times in a row"));
    // The model is not offered the tool; only this thread's status tells why.
    assert_eq!(expect_reply(&server, "t1", "probe it"), "The probe is not there.");
    assert_eq!(expect_reply(&server, "t1", "hello"), "I have calculator, dangerous.");
    let full = get(&server, "/agents/t1/tool-states?detail=full");
    assert_eq!(full["data"]["toolStates"]["probe"]["consecutiveFailures"], 3);
    assert!(full["data"]["toolStates"]["probe"]["lastFailureTime"].is_string());
    assert!(full["data"]["toolStates"]["clock"].is_null(), "it is not in the toolset");
    assert_eq!(expect_reply(&server, "t2", "hello"), "I have calculator, dangerous, probe.");
    // The status survives a restart.
    let server = restart(server, &folder);
    assert_eq!(tool_state(&server, "t1", "probe").0, "failed");
    std::fs::remove_file(folder.path().join("down")).expect("the file can be removed");
    let (status, reset) = post(&server, "/agents/t1/tool-states/reset", &json!({"toolName": "probe"}));
    assert_eq!((status, &reset["data"]["reset"]), (200, &json!(["probe"])));
    assert_eq!(tool_state(&server, "t1", "probe").0, "available");
    assert_eq!(expect_reply(&server, "t1", "probe it"), "Done: alive");
    assert_eq!(tool_state(&server, "t1", "probe"), ("available".into(), "executed successfully".into()));
    let metrics = HttpConnection::connect(server.port).send("GET /metrics", "", "").text;
    assert!(metrics.contains("gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name=\"default\""), "{metrics}");
    assert!(metrics.contains("gen_ai_client_token_usage_count"), "{metrics}");
}

#[test]
fn a_run_waits_for_a_person_over_a_restart_and_through_a_kill() {
    for signal in ["TERM", "KILL"] {
        let folder = create_folder();
        let server = start_server(&folder);
        let (status, reply) = send_message(&server, "t1", &json!({"content": "delete /tmp/old"}));
        assert_eq!((status, &reply["status"]), (202, &json!("waiting")), "{reply}");
        let approval = reply["calls"][0]["approval"]["id"].as_str().expect("an approval").to_owned();
        server.signal(signal);
        server.wait_for_exit();
        let server = start_server(&folder);
        let run = get(&server, &format!("/api/v1/runs/{}", reply["runId"].as_str().expect("a run")));
        assert_eq!((&run["status"], &run["calls"][0]["approvalId"]), (&json!("waiting"), &json!(approval)), "{signal}");
        let (status, busy) = send_message(&server, "t1", &json!({"content": "hello"}));
        assert_eq!((status, &busy["code"], &busy["runId"]), (409, &json!("run_open"), &reply["runId"]));
        let yes = json!({"outcome": "proceed_once"});
        let (status, response) = post(&server, &format!("/api/v1/approvals/{approval}"), &yes);
        assert_eq!(status, 200, "{response}");
        let run = wait_for_run_end(&server, &reply["runId"]);
        assert_eq!(run["status"], "completed", "{signal}: {run}");
        assert!(run["content"].as_str().is_some_and(|text| text.contains("/tmp/old is deleted")), "{run}");
        assert_eq!(run["calls"].as_array().map(Vec::len), Some(1), "{signal}: the call was made once");
    }
}

#[test]
fn the_work_of_an_agent_can_be_done_outside() {
    let folder = create_folder();
    let server = start_server(&folder);
    let (status, reply) = send_message(&server, "t1", &json!({"content": "compute 1+1", "agent": "outside"}));
    assert_eq!((status, &reply["status"]), (202, &json!("waiting")), "{reply}");
    let call = &reply["calls"][0];
    assert_eq!((&call["tool"], &call["arguments"]), (&json!("calculator"), &json!({"expression": "1+1"})));
    let result = format!("/api/v1/calls/{}/result", call["id"].as_str().expect("a call"));
    assert_eq!(post(&server, &result, &json!({"output": 3})).0, 200);
    assert_eq!(wait_for_run_end(&server, &reply["runId"])["content"], "Done: 3");
    let (status, late) = post(&server, &result, &json!({"output": 2}));
    assert_eq!((status, &late["code"]), (409, &json!("call_ended")));
    // The result counts as if the hub had executed the call, so the report is available.
    assert_eq!(tool_state(&server, "t1", "report").0, "available");
}

#[test]
fn of_many_messages_at_once_one_begins_a_run_and_each_is_answered() {
    let folder = create_folder();
    let server = start_server(&folder);
    let responses: Vec<(u16, Value)> = thread::scope(|scope| {
        let one = |_| scope.spawn(|| send_message(&server, "t1", &json!({"content": "delete /tmp/old"})));
        let all: Vec<_> = (0..8).map(one).collect();
        all.into_iter().map(|one| one.join().expect("it was answered")).collect()
    });
    assert_eq!(responses.iter().filter(|(status, _)| *status == 202).count(), 1, "{responses:?}");
    assert_eq!(responses.iter().filter(|(status, reply)| *status == 409 && reply["code"] == "run_open").count(), 7);
    let messages = get(&server, "/api/v1/threads/t1/messages");
    let user_messages =
        messages["items"].as_array().expect("messages").iter().filter(|one| one["role"] == "user").count();
    assert_eq!(user_messages, 1);
}

#[test]
fn agents_are_defined_anew_when_the_config_is_read_again() {
    let folder = create_folder();
    let server = start_server(&folder);
    let (_, open) = send_message(&server, "open", &json!({"content": "delete /tmp/old"}));
    assert_eq!(expect_reply(&server, "t1", "hello"), "I have calculator, dangerous, probe.");
    let toolsets = get(&server, "/api/v1/toolsets");
    let expected = json!({
        "name": "basic", "description": "Everyday tools", "patterns": ["calculator", "report", "probe", "dangerous"],
        "tools": ["calculator", "dangerous", "probe", "report"], "agents": ["default"],
    });
    assert_eq!(toolsets["items"], json!([expected]));
    let names = |path: &str| {
        let tools = get(&server, path);
        let tools = tools.get("items").or(tools.get("tools")).and_then(Value::as_array).expect("tools").clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("/api/v1/tools?toolset=basic"), ["calculator", "dangerous", "probe", "report"]);
    let export = "/api/v1/tools/export?format=anthropic&toolset=basic";
    assert_eq!(names(export), ["calculator", "dangerous", "probe", "report"]);
    assert_eq!(names(&format!("{export}&threadId=t1")), ["calculator", "dangerous", "probe"]);
    let refused = HttpConnection::connect(server.port).send("GET /api/v1/tools?toolset=basics", "", "");
    assert_eq!((refused.status, &refused.json()["suggestions"]), (422, &json!(["basic"])));
    let less = CONFIG.replace("\"calculator\", \"report\", \"probe\", \"dangerous\"", "\"clock\"");
    let less = less.replace("[agents.outside]\ntool_execution = \"external\"\nexternal_deadline = \"10m\"\n", "");
    folder.write("toolhub.toml", &less);
    folder.write("script.toml", "[default]\nsay = \"Now I have ${tools}.\"\n");
    let (status, done) = post(&server, "/api/v1/reload", &json!({}));
    assert_eq!((status, &done["needsRestart"]), (200, &json!([])), "{done}");
    assert_eq!(expect_reply(&server, "t1", "hello"), "Now I have clock.");
    let (status, gone) = send_message(&server, "t1", &json!({"content": "hello", "agent": "outside"}));
    assert_eq!((status, &gone["code"], &gone["suggestions"]), (404, &json!("agent_not_found"), &json!(["default"])));
    // The run that was open ends with the old script.
    let approval = open["calls"][0]["approval"]["id"].as_str().expect("an approval");
    let yes = json!({"outcome": "proceed_once"});
    assert_eq!(post(&server, &format!("/api/v1/approvals/{approval}"), &yes).0, 200);
    let run = wait_for_run_end(&server, &open["runId"]);
    assert!(run["content"].as_str().is_some_and(|text| text.starts_with("Done: ")), "{run}");
    // An invalid script changes nothing.
    folder.write("script.toml", "[[turn]]\nsay = 7\nsya = \"x\"\n");
    let (status, refused) = post(&server, "/api/v1/reload", &json!({}));
    assert_eq!((status, &refused["code"]), (422, &json!("config_invalid")), "{refused}");
    assert!(refused["errors"][0]["detail"].as_str().is_some_and(|text| text.contains("script.toml:")), "{refused}");
    assert_eq!(expect_reply(&server, "t1", "hello"), "Now I have clock.");
}

#[test]
fn a_model_that_cannot_be_reached_fails_its_run_and_its_key_is_told_nobody() {
    const KEY: &str = "canary-of-the-model";
    let folder = TempFolder::new();
    // Nothing listens on this port.
    let llm = "[llm]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\nretries = 0\n";
    folder.write("toolhub.toml", &format!("{llm}api_key = {{ env = \"MODEL_KEY\" }}\n"));
    let variables = [("MODEL_KEY", KEY), ("TOOLHUB__TELEMETRY__LOG__LEVEL", "trace")];
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let (status, reply) = send_message(&server, "t1", &json!({"content": "hello"}));
    assert_eq!((status, &reply["status"], &reply["message"]), (200, &json!("failed"), &Value::Null), "{reply}");
    assert_eq!(reply["error"]["code"], "model_unreachable", "{reply}");
    let mut outputs = vec![reply.to_string()];
    for path in ["config", "threads/t1/runs", "threads/t1/messages", "threads/t1/export", "info"] {
        outputs.push(get(&server, &format!("/api/v1/{path}")).to_string());
    }
    outputs.push(HttpConnection::connect(server.port).send("GET /metrics", "", "").text);
    server.signal("TERM");
    let (_, out, err) = server.wait_for_exit();
    for text in outputs.iter().chain([&out, &err]) {
        assert!(!text.contains(KEY), "{text}");
    }
}

#[test]
fn a_config_without_a_model_says_what_to_write() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[tools.calculator]\nbuiltin = \"calculator\"\n");
    let server = start_server(&folder);
    let (status, reply) = send_message(&server, "t1", &json!({"content": "hello"}));
    assert_eq!((status, &reply["code"]), (404, &json!("agent_not_found")));
    assert!(reply["hint"].as_str().is_some_and(|hint| hint.contains("[llm]")), "{reply}");
}

#[test]
fn each_step_leaves_a_line_about_the_tools_in_the_language_of_the_log() {
    let english =
        "tools 4 (available 3, failed 0, roots 3): [calculator, dangerous, probe] [waiting: report ← calculator]";
    let chinese = "🔧 可用工具 (4个) (可用: 3, 失败: 0, 根节点: 3): [calculator, dangerous, probe] [等待依赖: report ← calculator]";
    for (locale, line) in [("en_US.UTF-8", english), ("zh_CN.UTF-8", chinese)] {
        let folder = create_folder();
        let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("LANG", locale)]);
        expect_reply(&server, "t1", "hello");
        server.signal("TERM");
        let (_, _, log) = server.wait_for_exit();
        assert!(log.contains(line), "{locale}: {log}");
    }
}
