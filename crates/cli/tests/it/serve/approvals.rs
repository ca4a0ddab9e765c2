//! Approvals across processes: a call without a waiting caller, the link in the log, and grants.

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{connection::HttpConnection, process::Process};
use crate::config::run_toolhub;

fn send_batch(server: &Process) -> Value {
    let arguments = json!({"folder": "/tmp/old"}).to_string();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "dangerous", "arguments": arguments}});
    let body = json!([call]).to_string();
    let path = "POST /api/v1/threads/t1/batches?format=openai";
    HttpConnection::connect(server.port).send(path, "idempotency-key: step-1\r\n", &body).json()
}

#[test]
fn an_approved_call_that_nobody_waits_for_runs_when_it_is_made_again_and_the_log_has_its_link() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[tools.dangerous]\nbuiltin = \"dangerous\"\n");
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[]);
    let url = format!("http://127.0.0.1:{}", server.port);
    let run = |arguments: &[&str]| run_toolhub(folder.path(), arguments, &[("TOOLHUB_URL", &url), ("LANG", "C.UTF-8")]);
    let asked = send_batch(&server);
    assert_eq!(asked["calls"][0]["status"], "awaiting_approval", "{asked}");
    let id = asked["calls"][0]["approval"]["id"].as_str().expect("an id").to_owned();
    let shown = run(&["approvals", "show", &id]);
    assert!(
        shown.out.contains("no caller waits for it") && shown.out.contains(&format!("{url}/ui/approvals/{id}")),
        "{shown:?}"
    );
    let approved = run(&["approvals", "approve", &id, "--always-thread"]);
    assert_eq!(approved.code, 0, "{approved:?}");
    assert!(approved.err.contains("it runs when the call is made again, within"), "{approved:?}");
    assert_eq!(send_batch(&server)["messages"][0]["content"], "/tmp/old is deleted (not really)");
    let approved = run(&["approvals", "list", "--state", "approved"]);
    assert!(approved.out.contains(&id) && approved.out.contains("proceed always"), "{approved:?}");
    let explained = run(&["tools", "explain", "dangerous", "--thread", "t1"]);
    assert!(explained.out.contains("Granted in this thread by local"), "{explained:?}");
    let grants = run(&["approvals", "grants"]);
    assert!(grants.out.contains("dangerous") && grants.out.contains("thread t1"), "{grants:?}");
    let grant = grants.out.split_whitespace().find(|word| word.starts_with("gr_")).expect("the id of a grant");
    let revoked = run(&["approvals", "revoke", grant]);
    assert_eq!((revoked.code, revoked.err.contains("revoked")), (0, true), "{revoked:?}");
    assert!(run(&["approvals", "grants"]).err.contains("no grants"));
    let unknown = run(&["approvals", "revoke", grant]);
    assert!(unknown.code != 0 && unknown.err.contains("toolhub approvals grants"), "{unknown:?}");
    server.signal("TERM");
    let (_, _, log) = server.wait_for_exit();
    let requested = log.lines().find(|line| line.contains("approval requested")).unwrap_or_default();
    assert!(requested.contains(&format!("{url}/ui/approvals/{id}")) && requested.contains("dangerous"), "{log}");
    assert!(log.lines().any(|line| line.contains("approval resolved") && line.contains(&id)), "{log}");
}
