//! A service that dies takes its tools with it, for all threads, and brings them back when it returns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use toolhub_connect::rest::{Auth, Rest, Secret};
use toolhub_core::{ConnectionStateConfig, ErrorKind, ToolHub, View, status::ToolStatus, testing::AssertOutcome};

use super::support::{Server, answer, anything, local, ok, until};

fn once() -> ConnectionStateConfig {
    ConnectionStateConfig { retry_attempts: 1, ..Default::default() }
}

async fn word(hub: &ToolHub, view: View<'_>) -> ToolStatus {
    hub.tool_status("it", view).await.unwrap().status
}

#[tokio::test]
async fn a_service_that_dies_withholds_its_tool_from_all_threads_and_health_brings_it_back() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = well.clone();
    let server = Server::new(move |seen| match (seen.target.as_str(), is_well.load(Ordering::Relaxed)) {
        ("/health?deep=0", true) => answer(204, "", ""),
        (_, true) => ok(json!("well")),
        _ => answer(503, "text/plain", "down"),
    })
    .await;
    let rest = local(Rest::post(server.url("/work"))).health_url(server.url("/health?deep=0")).connection(once());
    let hub = ToolHub::builder().tool(rest.tool_with("it", anything())).build().await.unwrap();
    for thread in ["t1", "t2", "t3"] {
        hub.call("it", json!({})).thread(thread).await.assert_error(ErrorKind::UpstreamError);
    }
    assert_eq!(word(&hub, View::Shared).await, ToolStatus::Failed);
    hub.call("it", json!({})).thread("t4").await.assert_error(ErrorKind::ToolFailedStatus);
    let health = || server.seen().iter().filter(|seen| seen.target.starts_with("/health")).count();
    assert_eq!(health(), 0);
    skip(Duration::from_secs(11)).await;
    until(|| health() == 1).await;
    assert_eq!(word(&hub, View::Shared).await, ToolStatus::Failed);
    well.store(true, Ordering::Relaxed);
    // The second question comes twenty seconds after the first was answered.
    while word(&hub, View::Shared).await == ToolStatus::Failed {
        skip(Duration::from_secs(21)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(hub.call("it", json!({})).thread("t4").await.assert_success(), &json!("well"));
    let work = server.seen().iter().filter(|seen| seen.target == "/work").count();
    assert_eq!(work, 4, "no call was risked");
}

/// Moves time on. It stands still only for that moment: what goes over the network needs it to run.
async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_service_that_nobody_answers_at_is_everybodys_trouble() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = super::support::raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let slow = ConnectionStateConfig { connect_timeout: Duration::from_millis(50), ..once() };
    let never = Rest::get(format!("https://{silent}/")).ca_file(&super::tls::authority().1);
    for (rest, kind) in
        [(Rest::get(format!("http://{nobody}/")), ErrorKind::UpstreamUnreachable), (never, ErrorKind::Timeout)]
    {
        let tool = local(rest).connection(slow.clone()).tool_with("it", anything());
        let hub = ToolHub::builder().tool(tool).build().await.unwrap();
        for _ in 0..3 {
            hub.call("it", json!({})).thread("t1").await.assert_error(kind);
        }
        assert_eq!(word(&hub, View::Shared).await, ToolStatus::Failed, "{kind}");
        hub.call("it", json!({})).thread("t2").await.assert_error(ErrorKind::ToolFailedStatus);
    }
}

#[tokio::test]
async fn a_service_that_says_no_is_well() {
    let server = Server::new(|_| answer(404, "text/plain", "no such city")).await;
    let hub =
        ToolHub::builder().tool(local(Rest::get(server.url("/"))).tool_with("it", anything())).build().await.unwrap();
    for _ in 0..10 {
        hub.call("it", json!({})).thread("t1").await.assert_error(ErrorKind::ToolRefused);
    }
    assert_eq!(word(&hub, View::Shared).await, ToolStatus::Available);
}

#[tokio::test]
async fn the_question_for_health_shows_who_asks_to_its_own_service_only() {
    let well = || Server::new(|seen| if seen.target == "/health" { ok(json!(1)) } else { answer(503, "", "") });
    let (home, elsewhere) = (well().await, well().await);
    for (server, keys) in [(&home, ("mine", "Bearer mine")), (&elsewhere, ("", ""))] {
        let rest = local(Rest::post(home.url("/work"))).health_url(server.url("/health")).connection(once());
        let rest = rest.secret_header("X-Key", Secret::plain("mine")).auth(Auth::bearer(Secret::plain("mine")));
        let hub = ToolHub::builder().tool(rest.tool_with("it", anything())).build().await.unwrap();
        for _ in 0..3 {
            hub.call("it", json!({})).await.assert_error(ErrorKind::UpstreamError);
        }
        let health = || server.seen().into_iter().find(|seen| seen.target == "/health");
        skip(Duration::from_secs(11)).await;
        until(|| health().is_some()).await;
        let seen = health().unwrap();
        assert_eq!((seen.header("x-key"), seen.header("authorization")), keys);
    }
}
