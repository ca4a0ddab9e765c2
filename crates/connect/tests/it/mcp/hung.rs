//! A connection that does not answer any more: other tenants go on, and it is replaced.

use std::{fs, time::Duration};

use serde_json::json;
use tokio::sync::Notify;
use toolhub_connect::mcp::McpServer;
use toolhub_core::{ErrorKind, Outcome, Policy, SourceConnection, ToolHub, ids::Tenant, status::ToolStatus};

use super::{HttpServer, TestServer, connected, info, shared_status, text, tools, wait_connected, wait_for};

/// Short enough that the supervisor does not probe its own connection while time passes at once.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

async fn call(hub: &ToolHub, tenant: &str, tool: &str) -> Outcome {
    hub.call(tool, json!({})).tenant(Tenant::new(tenant).unwrap()).await
}

async fn text_of(hub: &ToolHub, tenant: &str, tool: &str) -> String {
    let outcome = call(hub, tenant, tool).await;
    outcome.output.as_str().unwrap_or_else(|| panic!("{outcome:#?}")).to_owned()
}

/// Stops a process, so that it answers nothing from now on.
async fn stop_process(pid: &str) {
    assert!(std::process::Command::new("kill").args(["-STOP", pid]).status().unwrap().success());
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())
    };
    wait_for("the stop", || (state() == Some('T')).then_some(())).await;
}

/// Calls a tool that says which connection it is called on, after the connection of tenant `b` has stopped answering.
async fn check_others_go_on(hub: &ToolHub, tool: &str, stop: impl AsyncFnOnce(&str)) {
    let own = text(hub, tool, json!({})).await;
    let (a, b) = (text_of(hub, "a", tool).await, text_of(hub, "b", tool).await);
    assert!(own != a && a != b && own != b, "three connections: {own} {a} {b}");
    stop(&b).await;

    // More at once than failures in a row withhold a tool.
    let tenant = Tenant::new("b").unwrap();
    let calls: Vec<_> = (0..6).map(|_| hub.call(tool, json!({})).tenant(tenant.clone()).start()).collect();
    for _ in 0..20 {
        assert_eq!((text(hub, tool, json!({})).await, text_of(hub, "a", tool).await), (own.clone(), a.clone()));
    }
    // The time that the calls have, and then the connection, passes at once.
    tokio::time::pause();
    for call in calls {
        let outcome = call.await;
        assert_eq!(outcome.error_kind(), Some(ErrorKind::Timeout), "{outcome:#?}");
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    tokio::time::resume();
    assert_eq!(shared_status(hub, tool).await, ToolStatus::Available);
    assert_eq!(info(hub).status.connection, SourceConnection::Connected, "the supervisor has a connection of its own");
    assert_ne!(text_of(hub, "b", tool).await, b, "a new connection");
    assert_eq!((text(hub, tool, json!({})).await, text_of(hub, "a", tool).await), (own, a));
}

fn with_timeout(server: McpServer) -> McpServer {
    server.policy(Policy { timeout: Some(CALL_TIMEOUT), ..Policy::default() })
}

#[tokio::test]
async fn a_program_of_a_tenant_that_hangs_harms_that_tenant_only() {
    let server = TestServer::new(&tools(&["pid"]));
    let hub = connected(with_timeout(server.server())).await;
    check_others_go_on(&hub, "t__pid", stop_process).await;
}

#[tokio::test]
async fn a_session_of_a_tenant_that_hangs_harms_that_tenant_only() {
    let server = HttpServer::start(&["no-get", "tools=session,hang_session"]);
    let hub = connected(with_timeout(server.server())).await;
    let stop = async |_: &str| {
        text_of(&hub, "b", "t__hang_session").await;
    };
    check_others_go_on(&hub, "t__session", stop).await;
}

/// Makes calls of a tenant, so that one is always in flight, until its connection has ended.
async fn call_until_lost(hub: &ToolHub, tenant: &Tenant) {
    let lost = Notify::new();
    let call_again_and_again = async |delay: Duration| {
        tokio::time::sleep(delay).await;
        // Many times as long as the connection has to answer.
        for _ in 0..100 {
            let outcome = hub.call("t__pid", json!({})).tenant(tenant.clone()).timeout(CALL_TIMEOUT).retries(0).await;
            match outcome.error_kind() {
                Some(ErrorKind::Timeout) => {}
                Some(ErrorKind::UpstreamUnreachable) => return lost.notify_one(),
                _ => panic!("{outcome:#?}"),
            }
        }
        panic!("the connection was kept");
    };
    // The time passes at once.
    tokio::time::pause();
    tokio::select! {
        () = lost.notified() => {}
        _ = futures_util::future::join(
            call_again_and_again(Duration::ZERO),
            call_again_and_again(CALL_TIMEOUT / 2),
        ) => {}
    }
    tokio::time::resume();
}

#[tokio::test]
async fn a_hung_connection_is_replaced_also_if_there_is_always_a_call_on_it() {
    for tenant in [Tenant::new("b").unwrap(), Tenant::default()] {
        let server = TestServer::new(&tools(&["pid"]));
        // The callers' timeouts are shorter than that of the tool, so that they say nothing about it.
        let hub = connected(server.server()).await;
        let hung = text_of(&hub, tenant.as_str(), "t__pid").await;
        stop_process(&hung).await;
        call_until_lost(&hub, &tenant).await;
        wait_connected(&hub).await;
        assert_ne!(text_of(&hub, tenant.as_str(), "t__pid").await, hung, "a new connection");
    }
}
