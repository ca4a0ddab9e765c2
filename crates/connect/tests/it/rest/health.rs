//! A failed service withholds its tools from all threads, and a successful health check restores them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use toolhub_connect::rest::{Auth, Rest, Secret};
use toolhub_core::{
    ConnectionStateConfig, ErrorKind, StatusScope, ToolHub, status::ToolStatus, testing::AssertOutcome,
};

use super::support::{Server, allow_local, any_object_schema, http_response, json_ok, wait_until};

fn no_retry_config() -> ConnectionStateConfig {
    ConnectionStateConfig { retry_attempts: 1, ..Default::default() }
}

async fn tool_status(hub: &ToolHub, view: StatusScope<'_>) -> ToolStatus {
    hub.tool_status("it", view).await.unwrap().status
}

#[tokio::test]
async fn a_service_that_dies_withholds_its_tool_from_all_threads_and_health_brings_it_back() {
    let healthy = Arc::new(AtomicBool::new(false));
    let is_healthy = healthy.clone();
    let server = Server::new(move |seen| match (seen.target.as_str(), is_healthy.load(Ordering::Relaxed)) {
        ("/health?deep=0", true) => http_response(204, "", ""),
        (_, true) => json_ok(json!("well")),
        _ => http_response(503, "text/plain", "down"),
    })
    .await;
    let rest = allow_local(Rest::post(server.url("/work")))
        .health_url(server.url("/health?deep=0"))
        .connection(no_retry_config());
    let hub = ToolHub::builder().tool(rest.tool_with("it", any_object_schema())).build().await.unwrap();
    for thread in ["t1", "t2", "t3"] {
        hub.call("it", json!({})).thread(thread).await.assert_error(ErrorKind::UpstreamError);
    }
    assert_eq!(tool_status(&hub, StatusScope::Shared).await, ToolStatus::Failed);
    hub.call("it", json!({})).thread("t4").await.assert_error(ErrorKind::ToolFailedStatus);
    let health_checks = || server.requests().iter().filter(|seen| seen.target.starts_with("/health")).count();
    assert_eq!(health_checks(), 0);
    advance_time(Duration::from_secs(11)).await;
    wait_until(|| health_checks() == 1).await;
    assert_eq!(tool_status(&hub, StatusScope::Shared).await, ToolStatus::Failed);
    healthy.store(true, Ordering::Relaxed);
    // The second health check comes twenty seconds after the first.
    while tool_status(&hub, StatusScope::Shared).await == ToolStatus::Failed {
        advance_time(Duration::from_secs(21)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(hub.call("it", json!({})).thread("t4").await.assert_success(), &json!("well"));
    let work = server.requests().iter().filter(|seen| seen.target == "/work").count();
    assert_eq!(work, 4, "no trial call was made");
}

/// Advances the clock. It is paused only for that moment, since network timeouts need it to run.
async fn advance_time(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn an_unreachable_service_fails_for_all_threads() {
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = super::support::raw_server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let slow = ConnectionStateConfig { connect_timeout: Duration::from_millis(50), ..no_retry_config() };
    let never = Rest::get(format!("https://{silent}/")).ca_file(&super::tls::test_ca().1);
    for (rest, kind) in
        [(Rest::get(format!("http://{closed_port}/")), ErrorKind::UpstreamUnreachable), (never, ErrorKind::Timeout)]
    {
        let tool = allow_local(rest).connection(slow.clone()).tool_with("it", any_object_schema());
        let hub = ToolHub::builder().tool(tool).build().await.unwrap();
        for _ in 0..3 {
            hub.call("it", json!({})).thread("t1").await.assert_error(kind);
        }
        assert_eq!(tool_status(&hub, StatusScope::Shared).await, ToolStatus::Failed, "{kind}");
        hub.call("it", json!({})).thread("t2").await.assert_error(ErrorKind::ToolFailedStatus);
    }
}

#[tokio::test]
async fn a_service_that_says_no_is_well() {
    let server = Server::new(|_| http_response(404, "text/plain", "no such city")).await;
    let hub = ToolHub::builder()
        .tool(allow_local(Rest::get(server.url("/"))).tool_with("it", any_object_schema()))
        .build()
        .await
        .unwrap();
    for _ in 0..10 {
        hub.call("it", json!({})).thread("t1").await.assert_error(ErrorKind::ToolRefused);
    }
    assert_eq!(tool_status(&hub, StatusScope::Shared).await, ToolStatus::Available);
}

#[tokio::test]
async fn the_question_for_health_shows_who_asks_to_its_own_service_only() {
    let new_server =
        || Server::new(|seen| if seen.target == "/health" { json_ok(json!(1)) } else { http_response(503, "", "") });
    let (own, other) = (new_server().await, new_server().await);
    for (server, keys) in [(&own, ("mine", "Bearer mine")), (&other, ("", ""))] {
        let rest =
            allow_local(Rest::post(own.url("/work"))).health_url(server.url("/health")).connection(no_retry_config());
        let rest = rest.secret_header("X-Key", Secret::literal("mine")).auth(Auth::bearer(Secret::literal("mine")));
        let hub = ToolHub::builder().tool(rest.tool_with("it", any_object_schema())).build().await.unwrap();
        for _ in 0..3 {
            hub.call("it", json!({})).await.assert_error(ErrorKind::UpstreamError);
        }
        let health = || server.requests().into_iter().find(|seen| seen.target == "/health");
        advance_time(Duration::from_secs(11)).await;
        wait_until(|| health().is_some()).await;
        let seen = health().unwrap();
        assert_eq!((seen.header("x-key"), seen.header("authorization")), keys);
    }
}
