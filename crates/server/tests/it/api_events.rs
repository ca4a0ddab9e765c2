//! Event streams over the API: live, and resumed.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolhub_core::{
    StatusScope,
    events::EventClass,
    export::Format,
    ids::{Tenant, ThreadId},
    status::ToolStatus,
};

use toolhub_server::Server;

use crate::support_api::{ApiFixture, TEST_TIMEOUT, api_fixture, settings};

async fn set_maintenance(api: &ApiFixture, tool: &str) {
    let body = json!({"status": "maintenance"});
    api.request("PUT", &format!("/api/v1/tools/{tool}/status"), Some(body), &[]).await.expect_status(200);
}

#[tokio::test]
async fn listeners_hear_the_sorts_they_asked_for() {
    let api = api_fixture().await;
    let mut statuses = api.stream("/api/v1/events?types=tool.status.*,hub.cleared", &[]).await;
    let mut all = api.stream("/api/v1/events", &[]).await;
    api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await.expect_status(200);
    set_maintenance(&api, "add").await;
    let (id, name, data) = statuses.next().await.unwrap();
    assert_eq!(name, "tool.status.changed");
    assert_eq!((&data["toolName"], &data["newStatus"]), (&json!("add"), &json!("maintenance")));
    assert_eq!(data["id"].to_string(), id);
    assert!(data["timestamp"].is_string());
    let (_, completed) = all.next_named("tool.execution.completed").await;
    assert_eq!(completed["toolName"], "add");
    all.next_named("tool.status.changed").await;
}

#[tokio::test]
async fn whoever_comes_back_hears_what_is_kept_since_then() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events?types=tool.status.changed", &[]).await;
    set_maintenance(&api, "add").await;
    let (id, _) = events.next_named("tool.status.changed").await;
    drop(events);
    set_maintenance(&api, "look").await;
    set_maintenance(&api, "slow").await;
    let mut resumed = api.stream("/api/v1/events?types=tool.status.changed", &[("last-event-id", &id)]).await;
    set_maintenance(&api, "rare").await;
    for tool in ["look", "slow", "rare"] {
        assert_eq!(resumed.next_named("tool.status.changed").await.1["toolName"], tool);
    }
    api.request("GET", "/api/v1/events", None, &[("last-event-id", "yesterday")])
        .await
        .expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_tenant_hears_its_own_and_what_concerns_everybody() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events", &[]).await;
    let foreign = api.hub.call("add", json!({"a": 1, "b": 2})).tenant(Tenant::new("other").unwrap()).await;
    let own = api.hub.call("add", json!({"a": 1, "b": 2})).await;
    let (_, received) = events.next_named("tool.execution.completed").await;
    assert_eq!(received["callId"], json!(own.id));
    assert_ne!(received["callId"], json!(foreign.id));
    api.hub.set_tool_status("add", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    events.next_named("tool.status.changed").await;
}

#[tokio::test]
async fn a_listener_to_one_thread_hears_of_no_other() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events?threadId=t1&types=tool.status.changed", &[]).await;
    let tenant = Tenant::default();
    for id in ["t2", "t1"] {
        let thread = ThreadId::new(id).unwrap();
        let view = StatusScope::Thread(&tenant, &thread);
        api.hub.set_tool_status("add", ToolStatus::Failed, None, None, view).await.unwrap();
    }
    let (_, received) = events.next_named("tool.status.changed").await;
    assert_eq!(received["threadId"], "t1");
    set_maintenance(&api, "look").await;
    assert_eq!(events.next_named("tool.status.changed").await.1["toolName"], "look");
}

#[tokio::test]
async fn a_listener_that_is_too_slow_is_told_so_and_hears_the_latest() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events?types=tool.executor.exported", &[]).await;
    for _ in 0..5_000 {
        drop(api.hub.export(Format::Mcp));
    }
    drop(api.hub.export(Format::OpenAi));
    assert_eq!(events.next().await.unwrap().1, "stream.reset");
    while events.next_named("tool.executor.exported").await.1["format"] != "openai" {}
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_shows_that_it_lives() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events", &[]).await;
    assert_eq!(events.next_chunk().await.unwrap(), "retry: 2000\n\n");
    let silent = tokio::time::Instant::now();
    assert_eq!(events.next_chunk().await.unwrap(), ": ka\n\n");
    assert_eq!(silent.elapsed().as_secs(), 15);
}

/// Makes calls of `add`.
async fn add(api: &ApiFixture, calls: usize) {
    for _ in 0..calls {
        assert!(api.hub.call("add", json!({"a": 1, "b": 2})).await.error.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_its_rate_a_client_gets_the_numbers_of_events_about_calls_and_all_other_events() {
    let api = api_fixture().await;
    let mut events = api.stream("/api/v1/events?rate=3", &[]).await;
    add(&api, 4).await;
    set_maintenance(&api, "look").await;
    let began = tokio::time::Instant::now();
    let mut names = Vec::new();
    while names.len() < 5 {
        names.extend(events.next().await.filter(|(_, name, _)| name != "tool.availability.changed"));
    }
    // Two calls take six events.
    let calls = ["tool.execution.started", "tool.execution.completed", "tool.executed"];
    assert_eq!(names[..3].iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>(), calls);
    assert_eq!(names[3].1, "tool.status.changed");
    let (id, name, thinned) = &names[4];
    assert_eq!((id.as_str(), name.as_str(), began.elapsed().as_secs()), ("", "stream.thinned", 1));
    let counts = json!({"tool.execution.started": 3, "tool.execution.completed": 3, "tool.executed": 3});
    assert_eq!(thinned["counts"], counts);
    // The next second has its own numbers.
    add(&api, 2).await;
    for name in calls {
        assert_eq!(events.next().await.unwrap().1, name);
    }
    let next = events.next_named("stream.thinned").await.1;
    assert_eq!(next["counts"]["tool.executed"], 1);
    // Without a rate, all are sent, in any number.
    let mut all = api.stream("/api/v1/events?types=tool.executed", &[]).await;
    let mut none = api.stream("/api/v1/events?types=tool.executed&rate=0", &[]).await;
    add(&api, 300).await;
    for _ in 0..300 {
        assert_eq!(all.next().await.unwrap().1, "tool.executed");
    }
    assert_eq!(none.next_named("stream.thinned").await.1["counts"], json!({"tool.executed": 300}));
    for rate in ["-1", "x", "100001"] {
        api.get(&format!("/api/v1/events?rate={rate}")).await.expect_problem(422, "invalid_request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_it_gets_the_numbers_of_each_second() {
    let api = api_fixture().await;
    let mut plain = api.stream("/api/v1/events?types=tool.status.changed", &[]).await;
    let mut default = api.stream("/api/v1/events", &[]).await;
    let mut ticks = api.stream("/api/v1/events?types=metrics.tick", &[]).await;
    let first = ticks.next_named("metrics.tick").await.1;
    assert_eq!((&first["calls"], &first["refusals"], &first["inFlight"]), (&json!({}), &json!({}), &json!(0)));
    assert_eq!((&first["p95Ms"], &first["p95MinuteMs"], &first["seconds"]), (&json!(null), &json!(null), &json!(1.0)));
    add(&api, 5).await;
    for tool in ["broken", "nothing"] {
        assert!(api.hub.call(tool, json!({})).await.error.is_some());
    }
    let slow = api.hub.call("slow", json!({})).start();
    api.started.acquire().await.unwrap().forget();
    let tick = ticks.next_named("metrics.tick").await.1;
    assert_eq!(tick["calls"], json!({"success": 5, "tool_error": 1}), "{tick}");
    assert_eq!((&tick["refusals"], &tick["inFlight"]), (&json!({"tool_not_found": 1}), &json!(1)), "{tick}");
    assert!(tick["p95Ms"].is_number() && tick["p95MinuteMs"].is_number(), "{tick}");
    api.release.add_permits(1);
    assert!(slow.await.error.is_none());
    let next = ticks.next_named("metrics.tick").await.1;
    assert_eq!((&next["calls"], &next["inFlight"]), (&json!({"success": 1}), &json!(0)), "{next}");
    let next = ticks.next_named("metrics.tick").await.1;
    assert_eq!((&next["calls"], &next["p95Ms"]), (&json!({}), &json!(null)));
    assert!(next["p95MinuteMs"].is_number(), "the minute has not passed: {next}");
    for _ in 0..60 {
        ticks.next_named("metrics.tick").await;
    }
    assert_eq!(ticks.next_named("metrics.tick").await.1["p95MinuteMs"], json!(null));
    // Other clients do not get them.
    set_maintenance(&api, "look").await;
    assert_eq!(plain.next().await.unwrap().1, "tool.status.changed");
    while let Some((_, name, _)) = default.next().await.filter(|(_, name, _)| name != "tool.status.changed") {
        assert_ne!(name, "metrics.tick");
    }
}

#[tokio::test]
async fn events_of_calls_are_made_only_for_those_who_want_them() {
    let api = api_fixture().await;
    let wanted = |class| api.hub.has_subscribers(class);
    let statuses = api.stream("/api/v1/events?types=tool.status.changed,approval.*", &[]).await;
    assert!(!wanted(EventClass::Calls) && !wanted(EventClass::Messages) && wanted(EventClass::Other));
    let calls = api.stream("/api/v1/events?types=tool.*", &[]).await;
    assert!(wanted(EventClass::Calls) && !wanted(EventClass::Ticks));
    drop((statuses, calls));
    assert!(!wanted(EventClass::Calls) && !wanted(EventClass::Other));
}

#[tokio::test]
async fn streams_end_when_the_server_goes_away() {
    let api = api_fixture().await;
    let bound = Server::new(api.hub.clone(), api.store.clone(), settings()).bind().await.unwrap();
    let mut socket = tokio::net::TcpStream::connect(bound.address()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(bound.serve(async { drop(stopped.await) }));
    socket.write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut received = vec![0; 4096];
    assert!(tokio::time::timeout(TEST_TIMEOUT, socket.read(&mut received)).await.unwrap().unwrap() > 0);
    drop(stop);
    tokio::time::timeout(TEST_TIMEOUT, socket.read_to_end(&mut received)).await.expect("the stream ends").unwrap();
    tokio::time::timeout(TEST_TIMEOUT, served).await.expect("the server ends").unwrap().unwrap();
}
