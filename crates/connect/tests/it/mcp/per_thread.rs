//! Servers with a connection per thread: a process or a session of its own, shared by the tools of the server there.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use toolhub_core::{
    ConnectionState, Effect, ErrorKind, Outcome, SourceConnection, SourceInfo, StateKind, ToolHub,
    ids::{Tenant, ThreadId},
    status::ToolStatus,
};

use super::{
    HttpServer, TestServer, connected, connected_hub, info, shared_status, source, tools, wait_connected, wait_for,
};

/// The text that a call in a thread returns.
async fn text(hub: &ToolHub, tool: &str, thread: &str) -> String {
    text_of(&hub.call(tool, json!({})).thread(thread).await)
}

#[track_caller]
fn text_of(outcome: &Outcome) -> String {
    assert!(outcome.is_success(), "{outcome:#?}");
    outcome.output.as_str().map_or_else(|| outcome.output.to_string(), str::to_owned)
}

fn is_running(pid: &str) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap()
}

async fn wait_gone(pid: &str) {
    wait_for(&format!("the end of process {pid}"), || (!is_running(pid)).then_some(())).await;
}

async fn connection(hub: &ToolHub, context: &str) -> Option<ConnectionState> {
    let entry = hub.state().get_state(&Tenant::default(), &context.parse().unwrap(), StateKind::Connection).await;
    entry.unwrap().map(|entry| serde_json::from_value(entry.data).unwrap())
}

#[tokio::test]
async fn each_thread_has_a_process_that_the_tools_of_the_server_share() {
    let server = TestServer::new(&tools(&["pid", "count"]));
    let hub = connected(server.server().per_thread()).await;
    let first = text(&hub, "t__pid", "t1").await;
    let second = text(&hub, "t__pid", "t2").await;
    assert_ne!(first, second);
    assert_eq!(text(&hub, "t__count", "t1").await, "1");
    assert_eq!(text(&hub, "t__count", "t1").await, "2");
    assert_eq!(text(&hub, "t__count", "t2").await, "1", "a thread does not see what another left behind");
    assert_eq!(text(&hub, "t__pid", "t1").await, first);
    let stranger = Tenant::new("stranger").unwrap();
    let of_stranger = hub.call("t__count", json!({})).thread("t1").tenant(stranger).await;
    assert_eq!(text_of(&of_stranger), "1", "the thread of another tenant is another thread");
    assert_eq!(hub.thread_contexts().instances(), 3);
    // A call without a thread gets a new one.
    let outcome = hub.call("t__count", json!({})).await;
    assert!(outcome.thread.is_some());
    assert_eq!(text_of(&outcome), "1");
    // Concurrent first calls make one process.
    let calls: Vec<_> = (0..10).map(|_| hub.call("t__pid", json!({})).thread("t3").start()).collect();
    let mut pids = Vec::new();
    for call in calls {
        pids.push(text_of(&call.await));
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
    hub.shutdown(Duration::from_secs(5)).await;
    for pid in [&first, &second, &pids[0]] {
        assert!(!is_running(pid), "no process is left");
    }
}

#[tokio::test]
async fn a_changed_tool_closes_nothing_and_a_removed_server_closes_all() {
    // The list is read again whenever the server ends the subscription.
    let server = TestServer::new(&tools(&["pid", "count"])).flags(&["end-subscription"]);
    let hub = connected(server.server().trust().per_thread()).await;
    let pids = [text(&hub, "t__pid", "t1").await, text(&hub, "t__pid", "t2").await];
    server.set_tools(&json!([{"name": "pid", "description": "changed"}, {"name": "echo"}]));
    let is_changed = || hub.get("t__pid").is_some_and(|tool| tool.definition.description == "changed");
    wait_for("the change", || (is_changed() && hub.get("t__count").is_none()).then_some(())).await;
    assert_eq!([text(&hub, "t__pid", "t1").await, text(&hub, "t__pid", "t2").await], pids);
    hub.remove_source("t").await.unwrap();
    assert!(!pids.iter().any(|pid| is_running(pid)), "their processes are gone");
    assert_eq!(hub.thread_contexts().instances(), 0);
}

#[tokio::test]
async fn a_process_ends_when_it_is_idle_with_its_thread_by_request_and_when_the_server_is_restarted() {
    let server = TestServer::new(&tools(&["pid", "count"]));
    let hub = connected(server.server().per_thread()).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let first = text(&hub, "t__pid", "t1").await;
    hub.delete_thread(&tenant, &thread).await.unwrap();
    assert!(!is_running(&first), "it ends with its thread");

    let (second, other) = (text(&hub, "t__pid", "t1").await, text(&hub, "t__pid", "t2").await);
    assert!(hub.thread_context(&tenant, &thread).cleanup("t__count").await);
    assert!(!is_running(&second), "a tool closes it although another one made it");
    assert!(is_running(&other));

    hub.source("t").unwrap().restart();
    wait_gone(&other).await;
    wait_connected(&hub).await;
    assert_eq!(text(&hub, "t__count", "t2").await, "1", "the next call makes a new one");

    let builder = ToolHub::builder().instance_idle_timeout(Duration::from_millis(50));
    let hub = connected_hub(builder, server.server().per_thread()).await;
    wait_gone(&text(&hub, "t__pid", "t1").await).await;
    assert!(info(&hub).tools.len() == 2 && hub.get("t__pid").is_some(), "the tools stay");
}

#[tokio::test]
async fn a_lost_process_is_replaced_by_the_next_call() {
    let exit = json!({"name": "exit", "annotations": {"readOnlyHint": false}});
    let definitions: Value = json!([exit, {"name": "pid"}, {"name": "count"}]);
    let server = TestServer::new(&definitions);
    let switch = server.folder.join("out-of-order");
    let settings = server.server().env("OUT_OF_ORDER", switch.to_string_lossy()).trust().per_thread();
    let hub = connected(settings).await;
    let first = text(&hub, "t__pid", "t1").await;
    let other = text(&hub, "t__pid", "t2").await;
    let lost = hub.call("t__exit", json!({})).thread("t1").await;
    assert_eq!((lost.error_kind(), lost.effect), (Some(ErrorKind::UpstreamUnreachable), Effect::Unknown), "{lost:#?}");
    let exit = connection(&hub, "t1/t__exit").await.unwrap();
    assert!(!exit.session_active && exit.error_count == 1, "{exit:?}");
    assert!(!connection(&hub, "t1/t__pid").await.unwrap().session_active, "it used the same process");
    assert_ne!(text(&hub, "t__pid", "t1").await, first);
    assert_eq!(text(&hub, "t__pid", "t2").await, other, "the other thread has lost nothing");

    // It cannot be replaced: nothing is sent.
    assert_eq!(hub.call("t__exit", json!({})).thread("t1").await.effect, Effect::Unknown);
    fs::write(&switch, "").unwrap();
    let refused = hub.call("t__exit", json!({})).thread("t1").await;
    assert_eq!((refused.error_kind(), refused.effect), (Some(ErrorKind::UpstreamUnreachable), Effect::None));
    fs::remove_file(&switch).unwrap();
    assert_eq!(text(&hub, "t__count", "t1").await, "1");
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_connects_has_sent_nothing_and_leaves_no_process() {
    let server = TestServer::new(&json!([{"name": "count"}]));
    let switch = server.folder.join("silent");
    let hub = connected(server.server().env("SILENT", switch.to_string_lossy()).trust().per_thread()).await;
    fs::write(&switch, "").unwrap();
    let connecting = hub.call("t__count", json!({})).thread("t1").start();
    let waiting = hub.call("t__count", json!({})).thread("t1").start();
    let pid = wait_for("the process", || {
        let text = fs::read_to_string(&switch).unwrap();
        text.ends_with('\n').then(|| text.trim().to_owned())
    })
    .await;
    fs::remove_file(&switch).unwrap();
    connecting.cancel();
    let outcome = connecting.await;
    assert_eq!((outcome.error_kind(), outcome.effect), (Some(ErrorKind::Cancelled), Effect::None), "{outcome:#?}");
    wait_gone(&pid).await;
    assert_eq!(text_of(&waiting.await), "1", "the call that waited for the connection makes it");
}

#[tokio::test]
async fn the_connection_state_of_each_tool_is_kept_per_thread() {
    let definitions = json!([{"name": "count"}, {"name": "pid"}, {"name": "fail", "inputSchema": {"type": "object"}}]);
    let server = TestServer::new(&definitions);
    for (settings, is_held) in [(server.server(), false), (server.server().per_thread(), true)] {
        let hub = connected(settings).await;
        text(&hub, "t__count", "t1").await;
        let state = connection(&hub, "t1/t__count").await.unwrap();
        assert_eq!((state.active, state.session_active, state.error_count), (is_held, true, 0), "{state:?}");
        let context = "t1/t__count".parse().unwrap();
        let entry = hub.state().get_state(&Tenant::default(), &context, StateKind::Connection).await.unwrap().unwrap();
        assert!(entry.created <= entry.updated);
        let failed = hub.call("t__fail", json!({"code": -32602})).thread("t1").await;
        assert!(failed.error.is_some());
        let state = connection(&hub, "t1/t__fail").await.unwrap();
        assert_eq!((state.session_active, state.error_count), (true, 1), "{state:?}");
        assert!(state.last_error.is_some_and(|error| error.contains("it failed")));
        for other in ["t1/t__pid", "t2/t__count", "t2/t__fail"] {
            assert_eq!(connection(&hub, other).await, None, "{other}");
        }
    }
}

#[tokio::test]
async fn each_thread_has_a_session_at_an_address() {
    let server = HttpServer::start(&["no-get", "tools=count,report,expire"]);
    let hub = connected(server.server().per_thread()).await;
    // The first session is the one that lists the tools.
    assert_eq!(text(&hub, "t__count", "t1").await, "session-2: 1");
    assert_eq!(text(&hub, "t__count", "t2").await, "session-3: 1");
    assert_eq!(text(&hub, "t__count", "t1").await, "session-2: 2");
    let stranger = hub.call("t__count", json!({})).thread("t1").tenant(Tenant::new("stranger").unwrap()).await;
    assert_eq!(text_of(&stranger), "session-4: 1");
    hub.delete_thread(&Tenant::default(), &ThreadId::new("t1").unwrap()).await.unwrap();
    let events = hub.call("t__report", json!({"until": "deleted session-2"})).thread("t2").await;
    assert!(text_of(&events).contains("deleted session-2"));
    // A session that the server has ended is replaced. It refuses the call before it runs, so the call is sent again.
    text(&hub, "t__expire", "t2").await;
    assert_eq!(text(&hub, "t__count", "t2").await, "session-5: 1");
    // A restart ends the sessions of all threads.
    let before = info(&hub).status.since;
    hub.source("t").unwrap().restart();
    let is_back =
        |info: &SourceInfo| info.status.connection == SourceConnection::Connected && info.status.since != before;
    wait_for("the restart", || Some(info(&hub)).filter(is_back)).await;
    let events = hub.call("t__report", json!({"until": "deleted session-5"})).thread("t3").await;
    assert!(text_of(&events).contains("deleted session-5"));
}

#[tokio::test]
async fn threads_of_a_tenant_share_a_session_and_other_tenants_do_not() {
    let server = HttpServer::start(&["no-get", "tools=count"]);
    let hub = ToolHub::builder().source(source(server.server())).build().await.unwrap();
    wait_connected(&hub).await;
    assert_eq!(text(&hub, "t__count", "t1").await, "session-1: 1");
    assert_eq!(text(&hub, "t__count", "t2").await, "session-1: 2");
    for (tenant, expected) in [("a", "session-2: 1"), ("b", "session-3: 1"), ("a", "session-2: 2")] {
        let outcome = hub.call("t__count", json!({})).thread("t1").tenant(Tenant::new(tenant).unwrap()).await;
        assert_eq!(text_of(&outcome), expected);
    }
}

#[tokio::test]
async fn the_processes_that_one_thread_loses_withhold_the_tool_from_this_thread_alone() {
    let server = TestServer::new(&tools(&["exit", "count"]));
    let hub = connected(server.server().per_thread()).await;
    for _ in 0..3 {
        let lost = hub.call("t__exit", json!({})).thread("t1").await;
        assert_eq!(lost.error_kind(), Some(ErrorKind::UpstreamUnreachable), "{lost:#?}");
    }
    let withheld = hub.call("t__exit", json!({})).thread("t1").await;
    assert_eq!(withheld.error_kind(), Some(ErrorKind::ToolFailedStatus), "{withheld:#?}");
    assert_eq!(shared_status(&hub, "t__exit").await, ToolStatus::Available);
    let stranger = Tenant::new("stranger").unwrap();
    let of_stranger = hub.call("t__exit", json!({})).thread("t1").tenant(stranger).await;
    assert_eq!(of_stranger.error_kind(), Some(ErrorKind::UpstreamUnreachable), "it is called");
}

#[tokio::test]
async fn calls_without_a_thread_that_lose_their_process_withhold_the_tool() {
    let server = TestServer::new(&tools(&["exit", "count"]));
    let hub = connected(server.server().per_thread()).await;
    for _ in 0..3 {
        let lost = hub.call("t__exit", json!({})).await;
        assert_eq!(lost.error_kind(), Some(ErrorKind::UpstreamUnreachable), "{lost:#?}");
    }
    assert_eq!(shared_status(&hub, "t__exit").await, ToolStatus::Failed);
    assert_eq!(shared_status(&hub, "t__count").await, ToolStatus::Available);
}

#[tokio::test]
async fn errors_on_the_connection_of_a_thread_or_a_tenant_concern_no_other() {
    let server = TestServer::new(&tools(&["fail"]));
    let failing = json!({"code": -32603});
    let hub = connected(server.server().per_thread()).await;
    for kind in
        [ErrorKind::UpstreamError, ErrorKind::UpstreamError, ErrorKind::UpstreamError, ErrorKind::ToolFailedStatus]
    {
        let failed = hub.call("t__fail", failing.clone()).thread("t1").await;
        assert_eq!(failed.error_kind(), Some(kind), "{failed:#?}");
    }
    assert_eq!(shared_status(&hub, "t__fail").await, ToolStatus::Available);
    let hub = connected(server.server()).await;
    for _ in 0..6 {
        let failed = hub.call("t__fail", failing.clone()).tenant(Tenant::new("a").unwrap()).await;
        assert_eq!(failed.error_kind(), Some(ErrorKind::UpstreamError), "{failed:#?}");
    }
    assert_eq!(shared_status(&hub, "t__fail").await, ToolStatus::Available);
}

#[tokio::test]
async fn a_process_of_a_thread_that_does_not_answer_after_a_timeout_is_replaced() {
    let server = TestServer::new(&tools(&["pid", "hang"]));
    let hub = connected(server.server().per_thread()).await;
    let pid = text(&hub, "t__pid", "t1").await;
    assert!(std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    let given_up = hub.call("t__hang", json!({})).thread("t1").timeout(Duration::from_millis(200)).await;
    assert_eq!(given_up.error_kind(), Some(ErrorKind::Timeout), "{given_up:#?}");
    // The time that it has to answer passes at once.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(20)).await;
    tokio::time::resume();
    assert_ne!(text(&hub, "t__pid", "t1").await, pid);
    wait_gone(&pid).await;
}
