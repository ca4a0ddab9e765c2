//! Many MCP clients that listen while a tool fails and returns.
//!
//! With `TOOLHUB_SOAK` set, they are 1,000 and then 10,000, and the times until the last one has heard are checked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use toolhub_core::{
    CallContext, StatusScope, ToolError, ToolHub,
    backend::Memory,
    dynamic,
    status::{StatusSettings, ToolStatus},
};
use toolhub_server::Server;
use toolhub_testkit::{is_soak, soak};

use crate::{
    support_api::{ApiFixture, EventReader, TEST_TIMEOUT, api_fixture, settings},
    support_mcp::{McpClient, next},
};

/// Short, or the default.
fn rebind_delay() -> Duration {
    soak(Duration::from_millis(500), StatusSettings::default().rebind_delay)
}

/// A hub with many tools, one of which fails while the switch is on.
async fn failing_fixture(tools: usize, is_failing: &Arc<AtomicBool>) -> ApiFixture {
    let fixture = api_fixture().await;
    let is_failing = is_failing.clone();
    let flaky = dynamic("flaky", json!({"type": "object"}), move |_: Value, _: CallContext| {
        let fails = is_failing.load(SeqCst);
        async move { if fails { Err(ToolError::new("the wire is cut")) } else { Ok(json!("done")) } }
    });
    let more = (0..tools).map(|number| {
        dynamic(&format!("tool_{number:03}"), json!({"type": "object"}), |_: Value, _: CallContext| async {
            Err::<Value, _>(ToolError::new("the wire is cut"))
        })
        .read_only()
    });
    // Reading the lists of all takes a while, in which the tool must not be tried again.
    let failure_duration = Duration::from_secs(3_600);
    let status = StatusSettings { rebind_delay: rebind_delay(), failure_duration, ..StatusSettings::default() };
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).status(status).build().await.unwrap();
    hub.register_all(more.chain([flaky.read_only()])).unwrap();
    // Records of other threads must not slow down those who listen.
    for number in 0..tools {
        hub.call(format!("tool_{number:03}"), json!({})).thread("another").await;
    }
    let mut settings = settings();
    settings.mcp.max_sessions_per_caller = 10_000;
    let router = Server::new(hub.clone(), store.clone(), settings).router();
    ApiFixture { hub, store, router, ..fixture }
}

/// Waits until each stream has brought the news, then checks whether up to a thousand clients have the tool in their list. Returns when
/// the last one had heard.
async fn all_hear(
    listeners: Vec<(McpClient, EventReader)>,
    is_listed: bool,
) -> (Vec<(McpClient, EventReader)>, Instant) {
    let mut waiting = JoinSet::new();
    for (client, mut stream) in listeners {
        waiting.spawn(async move {
            let event = tokio::time::timeout(4 * TEST_TIMEOUT, next(&mut stream)).await.expect("a notification");
            assert_eq!(event["method"], "notifications/tools/list_changed", "{event}");
            (client, stream, Instant::now())
        });
    }
    let heard = waiting.join_all().await;
    let last = heard.iter().map(|(_, _, at)| *at).max().unwrap();
    if is_soak() {
        // What comes later must not count as the next news.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let (mut listeners, step) = (Vec::new(), heard.len().div_ceil(1_000));
    for (number, (client, mut stream, _)) in heard.into_iter().enumerate() {
        while let Some(Some(_)) = stream.next_chunk().now_or_never() {}
        if number % step == 0 {
            assert_eq!(client.names().await.contains(&"flaky".to_owned()), is_listed);
        }
        listeners.push((client, stream));
    }
    (listeners, last)
}

/// Half of the listeners have the stream of a session, half listen without one.
async fn check(listeners: usize, tools: usize, most: Duration) {
    let is_failing = Arc::new(AtomicBool::new(true));
    let fixture = failing_fixture(tools, &is_failing).await;
    let mut all = Vec::new();
    for number in 0..listeners {
        let client = match number % 2 {
            0 => McpClient::legacy(&fixture.router, "/mcp").await,
            _ => McpClient::modern(&fixture.router, "/mcp"),
        };
        let stream = client.listen(&fixture, json!({"toolsListChanged": true})).await;
        all.push((client, stream));
    }
    let caller = McpClient::modern(&fixture.router, "/mcp");
    for _ in 0..3 {
        assert!(caller.names().await.contains(&"flaky".to_owned()));
        assert_eq!(caller.call("flaky", json!({})).await["isError"], true);
    }
    let failed = Instant::now();
    let (all, heard) = all_hear(all, false).await;
    let gone_after = heard - failed;
    is_failing.store(false, SeqCst);
    let returned = Instant::now();
    fixture.hub.set_tool_status("flaky", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    let (_all, heard) = all_hear(all, true).await;
    let back_after = heard - returned;
    println!(
        "{listeners} listeners, {} tools: the failed tool was gone from the lists of all after {gone_after:.2?} \
         (rebind_delay is {:.1?}), back after {back_after:.2?}",
        tools + 1,
        rebind_delay(),
    );
    if is_soak() {
        assert!(gone_after <= rebind_delay() + most && back_after <= most);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_tool_leaves_the_lists_of_all_who_listen_and_returns() {
    check(soak(20, 1_000), 5, Duration::from_secs(1)).await;
    if is_soak() {
        check(10_000, 500, Duration::from_secs(5)).await;
    }
}
