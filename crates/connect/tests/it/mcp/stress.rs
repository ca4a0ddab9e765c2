//! Many calls at once: servers that die, callers that leave, long lists.

use std::{collections::HashMap, fs, sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_core::{Effect, Outcome, Policy, SourceConnection, ToolHub, status::ToolStatus};
use toolhub_testkit::{is_soak, soak};

use super::{TestServer, connected, shared_status, text, text_when_back, tools, wait_for};

/// Calls per round.
const CALLS: usize = 100;

/// Calls that each append their number to a ledger. The server is killed when some of them have ended.
#[tokio::test]
async fn a_server_killed_during_calls_leaves_one_outcome_for_each_and_no_effect_twice() {
    let mut list = tools(&["append", "pid"]);
    // The server denies that it is read-only: a failed call may have had its effect.
    list[0]["annotations"] = json!({"readOnlyHint": false});
    let server = TestServer::new(&list);
    let ledger = server.folder.join("ledger");
    fs::write(&ledger, "").unwrap();
    let allowed = Policy { confirm: Some(false), ..Policy::default() };
    let hub = connected(server.server().policy(allowed).env("LEDGER", ledger.to_string_lossy())).await;
    for round in 0..soak(3, 6) {
        let pid = text_when_back(&hub, "t__pid").await;
        let numbers: Vec<usize> = (0..CALLS).map(|call| round * CALLS + call).collect();
        let calls = numbers.iter().map(|number| hub.call("t__append", json!({"number": number})).start());
        let calls: Vec<_> = calls.collect();
        // A different number of calls has had its effect by then in each round.
        let effects =
            |text: String| numbers.iter().filter(|number| text.lines().any(|line| line == number.to_string())).count();
        let read = || fs::read_to_string(&ledger).unwrap();
        wait_for("some effects", || (effects(read()) > round * 7 % 50).then_some(())).await;
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        let killed = Instant::now();
        wait_for("the tools to be withheld", || (!is_connected(&hub)).then_some(())).await;
        let withheld = killed.elapsed();
        let outcomes: Vec<Outcome> = join_all(calls.into_iter().map(IntoFuture::into_future)).await;
        let text = fs::read_to_string(&ledger).unwrap();
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for line in text.lines() {
            *counts.entry(line.parse().unwrap()).or_default() += 1;
        }
        for (number, outcome) in numbers.iter().zip(&outcomes) {
            let count = counts.get(number).copied().unwrap_or_default();
            assert!(count <= 1, "call {number} had its effect {count} times");
            match (outcome.is_success(), outcome.effect) {
                (true, _) => assert_eq!(count, 1, "call {number} succeeded without its effect"),
                (false, Effect::None) => assert_eq!(count, 0, "call {number} says that nothing happened: {outcome:#?}"),
                (false, _) => {}
            }
        }
        wait_for("the tools to be back", || is_connected(&hub).then_some(())).await;
        println!("round {round}: withheld after {withheld:?}, back after {:?}", killed.elapsed());
    }
}

/// With a soak run the contract holds: withheld within 100 ms, back within 1.5 s.
#[tokio::test]
async fn the_tools_of_a_killed_server_are_withheld_at_once_and_back_soon() {
    let server = TestServer::new(&tools(&["pid", "echo"]));
    let hub = connected(server.server()).await;
    let (mut worst_withheld, mut worst_back) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..soak(2, 20) {
        // After a connection that lived for a while the first attempt is made soon.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
        let pid = text(&hub, "t__pid", json!({})).await;
        let killed = Instant::now();
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        for tool in ["t__pid", "t__echo"] {
            wait_for_status(&hub, tool, ToolStatus::Unavailable).await;
        }
        worst_withheld = worst_withheld.max(killed.elapsed());
        for tool in ["t__pid", "t__echo"] {
            wait_for_status(&hub, tool, ToolStatus::Available).await;
        }
        assert_ne!(text(&hub, "t__pid", json!({})).await, pid);
        worst_back = worst_back.max(killed.elapsed());
    }
    println!("tools of a killed server: withheld after {worst_withheld:?} at most, back after {worst_back:?} at most");
    if is_soak() {
        assert!(worst_withheld <= Duration::from_millis(100) && worst_back <= Duration::from_millis(1_500));
    }
}

async fn wait_for_status(hub: &ToolHub, tool: &str, status: ToolStatus) {
    let start = Instant::now();
    while shared_status(hub, tool).await != status {
        assert!(start.elapsed() < super::WAIT_TIMEOUT, "`{tool}` is not {status:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn is_connected(hub: &ToolHub) -> bool {
    hub.sources().iter().all(|source| source.info().status.connection == SourceConnection::Connected)
}

#[tokio::test]
async fn calls_whose_callers_leave_are_cancelled_at_the_server_and_leave_nothing_behind() {
    let server = TestServer::new(&tools(&["hang", "report"]));
    let hub = connected(server.server()).await;
    let calls = soak(200, 10_000);
    for batch in (0..calls).collect::<Vec<_>>().chunks(100) {
        let waits =
            batch.iter().map(|_| tokio::time::timeout(Duration::from_millis(200), hub.call("t__hang", json!({}))));
        assert!(join_all(waits).await.iter().all(Result::is_err));
    }
    let count = async || {
        let report: Value = serde_json::from_str(&text(&hub, "t__report", json!({})).await).unwrap();
        report["cancelled"].as_array().unwrap().len()
    };
    let start = Instant::now();
    while count().await < calls {
        assert!(start.elapsed() < super::WAIT_TIMEOUT, "{} of {calls} calls were cancelled", count().await);
    }
    assert_eq!(hub.running_calls(), 0);
}

#[tokio::test]
async fn one_changed_tool_of_a_thousand_changes_one_registration() {
    let names: Vec<String> = (0..998).map(|number| format!("tool{number}")).chain(["flood".into()]).collect();
    let list = |changed: &str| -> Value {
        let tool = |name: &String| {
            let text = if name == "tool500" { changed } else { "" };
            json!({"name": name, "description": text, "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}})
        };
        names.iter().map(tool).collect()
    };
    let server = TestServer::new(&list("old")).flags(&["legacy"]);
    let hub: ToolHub = connected(server.server().trust()).await;
    let before = hub.list(&Default::default());
    assert_eq!(before.len(), 999);
    server.set_tools(&list("new"));
    let flood = hub.call("t__flood", json!({"count": 1, "a": ""})).await;
    assert!(flood.is_success(), "{flood:#?}");
    let is_new = || hub.get("t__tool500").is_some_and(|tool| tool.definition.description == "new");
    wait_for("the change", || is_new().then_some(())).await;
    let after = hub.list(&Default::default());
    let changed = before.iter().zip(&after).filter(|(before, after)| !Arc::ptr_eq(before, after)).count();
    assert_eq!(changed, 1);
}
