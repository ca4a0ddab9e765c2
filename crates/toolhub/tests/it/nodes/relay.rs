//! Events of calls and runs, passed on to listeners on other nodes.

use std::sync::atomic::Ordering;

use toolhub::{
    backend::{Backend, Scan, Scope, Table},
    ids::RunId,
};

use super::*;

/// The events of a thread on other nodes that a listener received, as names with a detail.
fn relayed(listener: &mut Subscription) -> Vec<String> {
    let mut heard = Vec::new();
    while let Some(event) = listener.try_next() {
        let detail = match &event.kind {
            EventKind::CallProgress { message, .. } => message.clone(),
            EventKind::StreamReset => event.thread.as_ref().map_or("", ThreadId::as_str).into(),
            kind if kind.is_relayed() => String::new(),
            _ => continue,
        };
        heard.push(format!("{} {detail}", event.name()).trim_end().to_owned());
    }
    heard
}

/// A node with a tool that reports progress.
async fn reporting_node(memory: &Arc<SharedMemory>) -> (ToolHub, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
    let report = tool("report", async |_: NoArguments, cx: CallContext| {
        for part in ["one", "two", "three"] {
            cx.progress(part);
        }
        Ok::<_, ToolError>(())
    });
    (ToolHub::builder().shared_store(memory.record(store.clone())).tool(report).build().await.unwrap(), store)
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_follows_a_thread_hears_what_its_calls_do_on_other_nodes() {
    let memory = Arc::default();
    let (first, _) = reporting_node(&memory).await;
    let (second, connection) = reporting_node(&memory).await;
    tokio::time::sleep(SECOND).await;
    let tenant = Tenant::default();
    let (followed, other) = (ThreadId::new("followed").unwrap(), ThreadId::new("other").unwrap());
    let (mut listener, mut deaf) = (second.subscribe(), second.subscribe());
    second.follow_thread(&mut listener, &tenant, &followed);
    tokio::time::sleep(SECOND).await;
    let call = [
        "tool.execution.started",
        "call.progress one",
        "call.progress two",
        "call.progress three",
        "tool.execution.completed",
    ];
    for _ in 0..3 {
        first.call("report", json!({})).thread(followed.clone()).await.assert_success();
        first.call("report", json!({})).thread(other.clone()).await.assert_success();
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!(relayed(&mut listener), call.repeat(3), "only of the followed thread");
    assert_eq!(relayed(&mut deaf), call.repeat(3), "all listeners of a node share what it follows");

    // Its own events are heard once.
    second.call("report", json!({})).thread(followed.clone()).await.assert_success();
    tokio::time::sleep(SECOND).await;
    assert_eq!(relayed(&mut listener), call);

    // While the follower is cut off longer than the others remember, events are lost, and that is said.
    connection.unavailable.store(true, Ordering::Release);
    first.call("report", json!({})).thread(followed.clone()).await.assert_success();
    tokio::time::sleep(SECOND).await;
    let mut heard = relayed(&mut listener);
    heard.dedup();
    assert_eq!(heard, ["stream.reset followed"]);
    connection.unavailable.store(false, Ordering::Release);
    first.call("report", json!({})).thread(followed.clone()).await.assert_success();
    tokio::time::sleep(SECOND).await;
    assert_eq!(relayed(&mut listener), call);

    // There is no listener any more: nothing is written.
    drop((listener, deaf));
    tokio::time::sleep(SECOND).await;
    let rows = async || {
        let page = memory.memory.scan(Scan::new(Table::Relay, Scope::All), first.now()).await.unwrap();
        page.rows.into_iter().map(|(key, row)| (key.id, row.version)).collect::<Vec<_>>()
    };
    let before = rows().await;
    assert!(before.iter().all(|(id, _)| id.starts_with("events/")), "no thread is followed: {before:?}");
    first.call("report", json!({})).thread(followed.clone()).await.assert_success();
    tokio::time::sleep(SECOND).await;
    assert_eq!(rows().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_that_events_were_lost_which_their_node_could_not_write() {
    let memory = Arc::default();
    let (first, connection) = reporting_node(&memory).await;
    let (second, _) = reporting_node(&memory).await;
    tokio::time::sleep(SECOND).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
    let mut listener = second.subscribe();
    second.follow_thread(&mut listener, &tenant, &thread);
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, Ordering::Release);
    let delta =
        |text: &str| EventKind::MessageDelta { run_id: RunId::mint(first.now()), text: text.into(), again: false };
    first.publish(&tenant, &thread, delta("lost"));
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(false, Ordering::Release);
    first.publish(&tenant, &thread, delta("heard"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(relayed(&mut listener), ["stream.reset t", "message.delta"]);
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_followed_for_as_long_as_it_has_a_listener() {
    let memory = Arc::default();
    let ((first, _), (second, connection)) = (reporting_node(&memory).await, reporting_node(&memory).await);
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
    let mut listener = second.subscribe();
    second.follow_thread(&mut listener, &tenant, &thread);
    let delta =
        |text: &str| EventKind::MessageDelta { run_id: RunId::mint(first.now()), text: text.into(), again: false };
    tokio::time::sleep(300 * SECOND).await;
    first.publish(&tenant, &thread, delta("heard"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(relayed(&mut listener), ["message.delta"]);

    // A node that was cut off for long follows again as soon as it can.
    connection.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(100 * SECOND).await;
    connection.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(3 * SECOND).await;
    relayed(&mut listener);
    first.publish(&tenant, &thread, delta("heard"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(relayed(&mut listener), ["message.delta"]);

    // An event that is too large for a portion is reported as lost, although nothing comes after it.
    first.publish(&tenant, &thread, delta(&"x".repeat(1 << 20)));
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(relayed(&mut listener), ["stream.reset t"]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_what_begins_on_another_node_as_soon_as_its_thread_is_followed() {
    let memory = Arc::default();
    let ((first, _), (second, connection)) = (reporting_node(&memory).await, reporting_node(&memory).await);
    tokio::time::sleep(SECOND).await;
    let tenant = Tenant::default();
    for round in 0..50 {
        let thread = ThreadId::new(format!("t{}", round % 10)).unwrap();
        let mut listener = second.subscribe();
        second.follow_thread(&mut listener, &tenant, &thread);
        second.thread_followed(&tenant, &thread).await;
        first.call("report", json!({})).thread(thread).await.assert_success();
        tokio::time::sleep(SECOND).await;
        assert_eq!(relayed(&mut listener).len(), 5, "round {round}");
    }

    // While the store does not answer, the listener starts nevertheless, and hears later that it may have missed something.
    connection.unavailable.store(true, Ordering::Release);
    let thread = ThreadId::new("late").unwrap();
    let mut listener = second.subscribe();
    second.follow_thread(&mut listener, &tenant, &thread);
    let began = tokio::time::Instant::now();
    second.thread_followed(&tenant, &thread).await;
    assert!(began.elapsed() <= 2 * SECOND, "waited {:?}", began.elapsed());
    first.call("report", json!({})).thread(thread.clone()).await.assert_success();
    connection.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(10 * SECOND).await;
    let mut heard = relayed(&mut listener);
    heard.dedup();
    assert_eq!(heard, ["stream.reset late"]);
}
