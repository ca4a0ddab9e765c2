//! Servers that are slow, end, change and come back.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use toolhub_connect::mcp::{McpServer, Protocol};
use toolhub_core::{
    ConnectionStateConfig, ErrorKind, SourceConnection, ToolHub,
    backend::Memory,
    clock::{Clock, SystemClock},
    ids::Tenant,
    status::ToolStatus,
};
use toolhub_testkit::soak;

use super::{
    HttpServer, TestServer, connected, connected_hub, info, names, shared_status, source, text, text_when_back, tools,
    wait_connected, wait_for,
};

#[tokio::test]
async fn a_server_that_ends_withholds_all_its_tools_until_it_is_back() {
    let server = TestServer::new(&tools(&["pid", "exit"]));
    let hub = connected(server.server()).await;
    let first = text(&hub, "t__pid", json!({})).await;
    let exit = hub.call("t__exit", json!({})).await;
    assert_eq!(exit.error_kind(), Some(ErrorKind::UpstreamUnreachable), "{exit:#?}");
    // It comes back by itself.
    let second = text_when_back(&hub, "t__pid").await;
    assert_ne!(first, second);
    wait_connected(&hub).await;
    // A restart at once, and a removal that ends the process.
    hub.source("t").unwrap().restart();
    wait_for("the new process", || (info(&hub).status.connection != SourceConnection::Connected).then_some(())).await;
    wait_connected(&hub).await;
    let third = text(&hub, "t__pid", json!({})).await;
    assert_ne!(second, third);
    hub.remove_source("t").await.unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{third}")).exists(), "its process is gone");
    assert_eq!(names(&hub), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why_and_harms_no_other() {
    let good = TestServer::new(&tools(&["pid"]));
    let bad = TestServer::new(&tools(&["pid"])).flags(&["exit"]);
    let missing = McpServer::stdio("missing", "no-such-program");
    let builder = ToolHub::builder().source(source(bad.named("bad"))).source(source(missing));
    let hub = builder.source(source(good.named("good"))).build().await.unwrap();
    let good = || hub.source("good").unwrap().info().status.connection;
    wait_for("the good server", || (good() == SourceConnection::Connected).then_some(())).await;
    text(&hub, "good__pid", json!({})).await;
    let error = wait_for("the reason", || hub.source("bad").unwrap().info().status.last_error).await;
    // What its program writes is for administrators: it may say something about the calls of others.
    assert!(error.contains("exited with code 7") && !error.contains("no licence"), "{error}");
    let info = hub.source("bad").unwrap().info();
    assert_eq!(info.admin_details["lastStderr"], "cannot start: no licence");
    assert!(!serde_json::to_string(&info).unwrap().contains("no licence"));
    let error = wait_for("the reason", || hub.source("missing").unwrap().info().status.last_error).await;
    assert!(error.contains("no-such-program"), "{error}");
    assert!(hub.source("bad").unwrap().log_lines().join("\n").contains("no licence"));
}

#[tokio::test]
async fn the_hub_is_ready_before_a_server_that_never_answers() {
    let silent = TestServer::new(&tools(&["pid"])).flags(&["silent"]);
    let server = silent.server().startup_timeout(Duration::from_millis(300));
    let hub = ToolHub::builder().source(source(server)).build().await.unwrap();
    assert_eq!(names(&hub), Vec::<String>::new());
    let error = wait_for("the reason", || info(&hub).status.last_error).await;
    assert!(error.contains("handshake"), "{error}");
}

#[tokio::test]
async fn a_server_of_either_era_is_understood_and_its_era_is_remembered() {
    for flags in [&["legacy"][..], &["exit-on-discover"]] {
        let server = TestServer::new(&tools(&["pid"])).flags(flags);
        let store = std::sync::Arc::new(Memory::new());
        let hub = connected_hub(ToolHub::builder().shared_store(store.clone()), server.server()).await;
        assert_eq!(info(&hub).details["protocolVersion"], "2025-11-25");
        hub.shutdown(Duration::ZERO).await;
        // The second time the server is asked in its own era at once: a refusal would be the last error.
        let hub = connected_hub(ToolHub::builder().shared_store(store), server.server()).await;
        text(&hub, "t__pid", json!({})).await;
    }
    let modern = TestServer::new(&tools(&["pid"])).flags(&["refuse-initialize"]);
    let hub = connected(modern.server()).await;
    assert_eq!(info(&hub).details["protocolVersion"], "2026-07-28");
    let forced = ToolHub::builder().source(source(modern.server().protocol(Protocol::Legacy))).build().await.unwrap();
    wait_for("the refusal", || info(&forced).status.last_error).await;
}

#[tokio::test]
async fn a_changed_list_changes_only_what_is_different() {
    let server = TestServer::new(&tools(&["pid", "flood"])).flags(&["legacy"]);
    let hub = connected(server.server().trust()).await;
    let before = hub.get("t__pid").unwrap();
    server.set_tools(&tools(&["pid", "flood", "echo"]));
    text(&hub, "t__flood", json!({"count": 50})).await;
    wait_for("the new tool", || hub.get("t__echo")).await;
    assert!(std::sync::Arc::ptr_eq(&before, &hub.get("t__pid").unwrap()));
    server.set_tools(&tools(&["pid", "flood"]));
    text(&hub, "t__flood", json!({"count": 50})).await;
    wait_for("the removal", || hub.get("t__echo").is_none().then_some(())).await;
    assert_eq!(shared_status(&hub, "t__pid").await, ToolStatus::Available);
}

#[tokio::test]
async fn a_burst_of_changes_is_read_once() {
    let server = TestServer::new(&tools(&["report", "flood"])).flags(&["legacy"]);
    let hub = connected(server.server().trust()).await;
    server.set_tools(&tools(&["report", "flood", "echo"]));
    text(&hub, "t__flood", json!({"count": 200})).await;
    wait_for("the new tool", || hub.get("t__echo")).await;
    let report: Value = serde_json::from_str(&text(&hub, "t__report", json!({})).await).unwrap();
    let lists = report["lists"].as_u64().unwrap();
    // The first list, and one after the burst; a few more if this machine is busy.
    assert!((2..=5).contains(&lists), "{lists} lists");
}

#[tokio::test]
async fn a_server_that_refuses_the_credentials_is_asked_again_in_five_minutes() {
    let server = HttpServer::start(&["auth"]);
    let hub = ToolHub::builder().source(source(server.server())).build().await.unwrap();
    let next = wait_for("the next attempt", || info(&hub).status.next_attempt).await;
    let error = info(&hub).status.last_error.unwrap();
    assert!(error.contains("needs a login, which is not supported yet; set `auth`"), "{error}");
    let wait = next.since(SystemClock.now());
    assert!(wait > Duration::from_secs(240) && wait <= Duration::from_secs(300), "{wait:?}");
}

#[tokio::test]
async fn a_server_at_an_address_that_is_restarted_is_back_with_a_new_session() {
    let mut server = HttpServer::start(&["no-get"]);
    let hub = connected(server.server()).await;
    text(&hub, "t__echo", json!({})).await;
    let port = format!("port={}", server.url.trim_end_matches("/mcp").rsplit_once(':').unwrap().1);
    server.stop();
    assert!(!hub.call("t__echo", json!({})).await.is_success());
    let _restarted = HttpServer::start(&["no-get", &port]);
    assert!(text_when_back(&hub, "t__echo").await.contains("session-1"));
}

#[tokio::test]
async fn a_call_that_is_forbidden_concerns_no_other() {
    let server = HttpServer::start(&["no-get", "tools=status,echo"]);
    let hub = connected(server.server()).await;
    for status in [401, 403] {
        let refused = hub.call("t__status", json!({"status": status})).await;
        assert_eq!((refused.error_kind(), refused.attempts), (Some(ErrorKind::ToolRefused), 1), "{refused:#?}");
    }
    assert_eq!(info(&hub).status.connection, SourceConnection::Connected);
    text(&hub, "t__echo", json!({})).await;
}

#[tokio::test]
async fn the_error_of_a_list_has_no_secrets() {
    let server = TestServer::new(&tools(&[])).flags(&["fail-list"]);
    let hub =
        ToolHub::builder().source(source(server.server().env("API_TOKEN", "canary-1234567"))).build().await.unwrap();
    let error = wait_for("the reason", || info(&hub).status.last_error).await;
    assert!(error.contains("no list for") && !error.contains("canary"), "{error}");
}

/// A server of which only the first process works; the others do what a flag says.
fn one_process(server: &TestServer, later: &str) -> McpServer {
    server.server().env("FIRST", server.folder.join("first").to_string_lossy()).env("LATER", later)
}

#[tokio::test]
async fn a_tenant_without_a_connection_withholds_the_tools_from_no_other() {
    let server = TestServer::new(&tools(&["pid"]));
    let hub = connected(one_process(&server, "exit")).await;
    let stranger = Tenant::new("stranger").unwrap();
    for _ in 0..4 {
        let outcome = hub.call("t__pid", json!({})).tenant(stranger.clone()).await;
        assert_eq!(outcome.error_kind(), Some(ErrorKind::UpstreamUnreachable), "{outcome:#?}");
    }
    text(&hub, "t__pid", json!({})).await;
}

#[tokio::test]
async fn a_restart_does_not_wait_for_a_tenant_that_connects() {
    let server = TestServer::new(&tools(&["pid"]));
    let hub = connected(one_process(&server, "silent").startup_timeout(Duration::from_secs(600))).await;
    let stranger = Tenant::new("stranger").unwrap();
    let call = hub.call("t__pid", json!({})).tenant(stranger).retries(0);
    let waiting = call.timeout(Duration::from_secs(600)).start();
    wait_for("its process", || server.folder.join("first-later").exists().then_some(())).await;
    fs::remove_dir(server.folder.join("first")).unwrap();
    hub.source("t").unwrap().restart();
    assert!(!waiting.await.is_success());
    text_when_back(&hub, "t__pid").await;
}

#[tokio::test]
async fn a_server_reads_connecting_while_an_attempt_is_under_way() {
    let server = TestServer::new(&tools(&["exit"]));
    let hub = connected(one_process(&server, "silent").startup_timeout(Duration::from_secs(600))).await;
    assert!(!hub.call("t__exit", json!({})).retries(0).await.is_success());
    wait_for("the second process", || server.folder.join("first-later").exists().then_some(())).await;
    let shown = info(&hub);
    assert_eq!((shown.status.connection, shown.status.next_attempt), (SourceConnection::Connecting, None));
    assert!(shown.status.last_error.is_some_and(|error| error.contains("exited")));
    assert!(!info(&hub).status.is_starting(), "it is not the first attempt");
}

#[tokio::test]
async fn a_server_that_stops_answering_is_replaced() {
    let server = TestServer::new(&tools(&["pid"]));
    let hub = connected(server.server()).await;
    let pid = text(&hub, "t__pid", json!({})).await;
    assert!(std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    // The time until it is asked, and the time that it has to answer, pass at once.
    tokio::time::pause();
    while info(&hub).status.connection == SourceConnection::Connected {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::resume();
    let error = info(&hub).status.last_error;
    assert!(error.is_none_or(|error| error.contains("does not answer")));
    assert_ne!(text_when_back(&hub, "t__pid").await, pid);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "its process is gone");
}

#[tokio::test]
async fn a_busy_address_is_tried_again_when_it_says() {
    let server = HttpServer::start(&["busy"]);
    let started = SystemClock.now();
    let hub = ToolHub::builder().source(source(server.server().protocol(Protocol::Auto))).build().await.unwrap();
    let next = wait_for("the next attempt", || info(&hub).status.next_attempt).await;
    assert!(next >= started + Duration::from_secs(7), "{next} after {started}");
}

#[tokio::test]
async fn a_server_that_is_too_busy_for_its_first_list_keeps_its_session() {
    let server = HttpServer::start(&["busy-list", "no-get", "tools=count,report"]);
    let hub = connected(server.server()).await;
    assert_eq!(text(&hub, "t__count", json!({})).await, "session-1: 1");
    assert!(text(&hub, "t__report", json!({})).await.contains("busy tools/list"));
}

#[tokio::test]
async fn a_late_answer_to_discover_harms_nothing() {
    let server = TestServer::new(&tools(&["pid"])).flags(&["late-discover"]);
    let hub = connected(server.server().startup_timeout(Duration::from_secs(3))).await;
    assert_eq!(info(&hub).details["protocolVersion"], "2025-11-25");
    text(&hub, "t__pid", json!({})).await;
    let log = hub.source("t").unwrap().log_lines().join("\n");
    assert!(log.contains("answered late"), "the first process answered while it was closed: {log}");
}

#[tokio::test]
async fn a_server_may_take_as_long_to_start_as_its_timeout_allows() {
    // Longer than the ten seconds that clients commonly allow, in the long run.
    let delay = soak("start=1", "start=12");
    for flags in [[delay, "modern"], [delay, "legacy"]] {
        let server = TestServer::new(&tools(&["pid"])).flags(&flags);
        let hub = connected(server.server()).await;
        text(&hub, "t__pid", json!({})).await;
    }
}

#[tokio::test]
async fn an_older_list_is_not_registered_after_a_newer_one() {
    let server = TestServer::new(&tools(&["flood", "first"])).flags(&["legacy", "late-list"]);
    let hub = connected(server.server().trust()).await;
    let logged = |line: &str| hub.source("t").unwrap().log_lines().iter().any(|logged| logged.contains(line));
    server.set_tools(&tools(&["flood", "old"]));
    text(&hub, "t__flood", json!({"count": 1})).await;
    wait_for("the request for the list", || logged("held the list back").then_some(())).await;
    server.set_tools(&tools(&["flood", "new"]));
    hub.source("t").unwrap().restart();
    wait_for("the new list", || hub.get("t__new")).await;
    wait_for("the old list", || logged("answered late").then_some(())).await;
    wait_connected(&hub).await;
    assert_eq!(names(&hub), ["t__flood", "t__new"]);
}

#[tokio::test]
async fn a_list_whose_pages_never_end_is_given_up_in_time() {
    let server = TestServer::new(&tools(&[])).flags(&["legacy", "endless-pages"]);
    let settings = server.server().protocol(Protocol::Legacy).startup_timeout(Duration::from_secs(2));
    let hub = ToolHub::builder().source(source(settings)).build().await.unwrap();
    let error = wait_for("the end", || info(&hub).status.last_error.filter(|error| error.contains("tools/list"))).await;
    assert_eq!(error, "the server does not answer `tools/list` in time");
}

#[tokio::test]
async fn the_connect_timeout_of_an_address_holds() {
    // It accepts connections, and never answers the TLS handshake.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/mcp", listener.local_addr().unwrap());
    let config = ConnectionStateConfig { connect_timeout: Duration::from_millis(100), ..Default::default() };
    let server = McpServer::http("t", url).allow_host("127.0.0.1").connection(config);
    let hub = ToolHub::builder().source(source(server)).build().await.unwrap();
    let error = wait_for("the reason", || info(&hub).status.last_error).await;
    assert!(error.contains("connect timeout: no connection within 100ms"), "{error}");
}
