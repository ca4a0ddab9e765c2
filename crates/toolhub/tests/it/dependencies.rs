//! Dependencies between tools, per thread.

use std::{sync::Arc, time::Duration};

use toolhub::{
    StatusScope,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::Timestamp,
    events::EventKind,
    ids::{Tenant, ThreadId},
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

fn scripted_tool(name: &str) -> ToolBuilder {
    scripted(name, []).0
}

async fn hub(tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap()
}

async fn call(hub: &ToolHub, tool: &str, thread: &str) -> Outcome {
    hub.call(tool, json!({})).thread(thread).await
}

#[tokio::test(start_paused = true)]
async fn a_tool_waits_until_its_base_has_succeeded_in_this_thread() {
    let hub = hub([
        scripted_tool("show").read_only(),
        scripted_tool("cart").after("show"),
        scripted_tool("order").after("cart"),
    ])
    .await;
    let early = call(&hub, "cart", "t1").await;
    let text = early.assert_effect(Effect::None).assert_error(ErrorKind::DependencyNotMet);
    assert_eq!(text, "`cart` cannot be used yet. Call show successfully first.");
    assert_eq!(early.error.unwrap().missing_dependencies(), ["show"]);

    call(&hub, "show", "t1").await.assert_success();
    call(&hub, "cart", "t1").await.assert_success();
    call(&hub, "order", "t1").await.assert_success();
    call(&hub, "cart", "t2").await.assert_error(ErrorKind::DependencyNotMet);
    let foreign = hub.call("cart", json!({})).thread("t1").tenant(Tenant::new("other").unwrap());
    foreign.await.assert_error(ErrorKind::DependencyNotMet);
    let alone = hub.call("cart", json!({})).await;
    alone.assert_error(ErrorKind::DependencyNotMet);
    assert!(alone.thread.is_some(), "a dependent call gets a minted thread if none is named");
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_refused_base_is_no_evidence_and_a_later_failure_takes_none_away() {
    let steps =
        [ScriptStep::Fail(ToolError::new("no")), ScriptStep::Return(json!(1)), ScriptStep::Fail(ToolError::new("no"))];
    let hub = hub([scripted("base", steps).0, scripted_tool("next").after("base")]).await;
    call(&hub, "base", "t1").await.assert_error(ErrorKind::ToolError);
    hub.call("base", json!("nonsense")).thread("t1").await.assert_error(ErrorKind::ArgumentsInvalid);
    call(&hub, "next", "t1").await.assert_error(ErrorKind::DependencyNotMet);
    call(&hub, "base", "t1").await.assert_success();
    call(&hub, "base", "t1").await.assert_error(ErrorKind::ToolError);
    call(&hub, "next", "t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn any_of_several_is_enough_and_a_sequence_must_come_in_order() {
    let tools = || {
        [
            scripted_tool("a"),
            scripted_tool("b"),
            scripted_tool("any").after_any(["a", "b"]),
            scripted_tool("both").after_sequence(["a", "b"]),
        ]
    };
    let hub = hub(tools()).await;
    let text = call(&hub, "any", "t1").await.assert_error(ErrorKind::DependencyNotMet);
    assert!(text.contains("Call one of a, b successfully first."), "{text}");
    call(&hub, "b", "t1").await.assert_success();
    call(&hub, "any", "t1").await.assert_success();
    call(&hub, "a", "t1").await.assert_success();
    let early = call(&hub, "both", "t1").await;
    let text = early.assert_error(ErrorKind::DependencyNotMet);
    assert_eq!(text, "`both` cannot be used yet. Call b again: it must succeed after a.");
    assert_eq!(early.error.unwrap().missing_dependencies(), ["b"]);
    // Calling again in the right order mends a wrong first order, for good.
    for tool in ["b", "both", "a", "both"] {
        call(&hub, tool, "t1").await.assert_success();
    }
    for tool in ["a", "b", "both"] {
        call(&hub, tool, "t2").await.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_may_have_to_be_fresh() {
    let hub = hub([scripted_tool("price"), scripted_tool("buy").after("price").within(Duration::from_secs(60))]).await;
    call(&hub, "price", "t1").await.assert_success();
    call(&hub, "buy", "t1").await.assert_success();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let text = call(&hub, "buy", "t1").await.assert_error(ErrorKind::DependencyNotMet);
    assert!(text.contains("Call price again"), "{text}");
    call(&hub, "price", "t1").await.assert_success();
    call(&hub, "buy", "t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn evidence_outlives_the_hub() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let tools = || [scripted_tool("base").read_only(), scripted_tool("next").after("base")];
    let first = ToolHub::builder().shared_store(store.clone()).tools(tools()).build().await.unwrap();
    call(&first, "base", "t1").await.assert_success();
    drop(first);
    let second = ToolHub::builder().shared_store(store).tools(tools()).build().await.unwrap();
    call(&second, "next", "t1").await.assert_success();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_left_at_the_same_moment_is_all_kept() {
    let names: Vec<String> = (0..20).map(|n| format!("base_{n}")).collect();
    let bases = names
        .iter()
        .enumerate()
        .map(|(n, name)| if n % 2 == 0 { scripted_tool(name).read_only() } else { scripted_tool(name) });
    let hub = hub(bases.chain([scripted_tool("last").after_all(names.clone())])).await;
    for round in 0..20 {
        let thread = format!("t{round}");
        let calls: Vec<_> =
            names.iter().map(|name| hub.call(name.as_str(), json!({})).thread(&thread).start()).collect();
        for call in calls {
            call.await.assert_success();
        }
        call(&hub, "last", &thread).await.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn only_successes_somebody_waits_for_are_written_and_only_once() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let tools = [
        scripted_tool("base").read_only(),
        scripted_tool("other").read_only(),
        scripted_tool("next").after("base").read_only(),
    ];
    let hub = ToolHub::builder().shared_store(store.clone()).tools(tools).build().await.unwrap();
    for tool in ["other", "base", "base", "next", "base"] {
        call(&hub, tool, "t1").await.assert_success();
    }
    hub.call("base", json!({})).await.assert_success();
    let page = store.scan(Scan::new(Table::Evidence, Scope::All), Timestamp::default()).await.unwrap();
    let versions: Vec<u64> = page.rows.iter().map(|(_, row)| row.version.number).collect();
    assert_eq!(versions, [1]);
}

#[tokio::test(start_paused = true)]
async fn restored_evidence_takes_its_place_in_the_order_by_its_time() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let tools = || {
        let waits = [
            scripted_tool("last").after_sequence(["a", "b"]),
            scripted_tool("other").after("x"),
            scripted_tool("wrong").after_sequence(["b", "a"]),
        ];
        ["x", "a", "b"].map(scripted_tool).into_iter().chain(waits)
    };
    let clock = TestClock::new();
    let hub = async || ToolHub::builder().clock(clock.clone()).tools(tools()).build().await.unwrap();
    let first = hub().await;
    for tool in ["x", "a"] {
        call(&first, tool, "t1").await.assert_success();
    }
    let text = first.serialize_tool_states(&tenant, &thread).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let second = hub().await;
    // The thread continues before its snapshot is restored; that must not change the order of its evidence.
    call(&second, "b", "t1").await.assert_success();
    second.deserialize_tool_states(&tenant, &thread, &text).await.unwrap();
    for tool in ["last", "other"] {
        call(&second, tool, "t1").await.assert_success();
    }
    call(&second, "wrong", "t1").await.assert_error(ErrorKind::DependencyNotMet);
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_time_has_come_is_told_to_its_thread_once_and_evidence_can_be_forgotten() {
    let (base, next) = (scripted("base", []).0, scripted("next", []).0.after("base"));
    let hub = ToolHub::builder().clock(TestClock::new()).tools([base, next]).build().await.unwrap();
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let mut events = EventRecorder::new(&hub);
    for _ in 0..2 {
        hub.call("base", json!({})).thread("t1").await.assert_success();
    }
    assert_eq!(
        availability_changes(&mut events),
        [("12:00:00".into(), "next".into(), true, "dependencies met".into())]
    );

    hub.reset_tool_status("base", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    hub.call("next", json!({})).thread("t1").await.assert_success();
    assert!(hub.reset_tool_evidence("base", &tenant, &thread).await.unwrap());
    assert!(!hub.reset_tool_evidence("base", &tenant, &thread).await.unwrap());
    hub.call("next", json!({})).thread("t1").await.assert_error(ErrorKind::DependencyNotMet);
    let changes = availability_changes(&mut events);
    assert_eq!(changes[1..], [("12:00:00".into(), "next".into(), false, "waiting for base".into())]);
}

/// The `tool.availability.changed` events so far, all of the thread `t1`: time, tool, available, reason.
fn availability_changes(recorder: &mut EventRecorder) -> Vec<(String, String, bool, String)> {
    let changes = recorder.events().iter().filter_map(|event| match &event.kind {
        EventKind::AvailabilityChanged { tool_name, available, reason } => {
            assert_eq!(event.thread.as_ref().map(ThreadId::as_str), Some("t1"));
            Some((event.timestamp.to_string()[11..19].to_owned(), tool_name.to_string(), *available, reason.clone()))
        }
        _ => None,
    });
    changes.collect()
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_evidence_grows_old_is_told_to_its_thread_on_time() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let clock = TestClock::new();
    let minute = Duration::from_secs(60);
    let tools = || [scripted_tool("price"), scripted_tool("buy").after("price").within(minute)];
    let hub = async || {
        ToolHub::builder().shared_store(store.clone()).clock(clock.clone()).tools(tools()).build().await.unwrap()
    };
    let first = hub().await;
    let mut events = EventRecorder::new(&first);
    call(&first, "price", "t1").await.assert_success();
    tokio::time::sleep(minute / 2).await;
    call(&first, "price", "t1").await.assert_success();
    tokio::time::sleep(2 * minute).await;
    let expected = [
        ("12:00:00".to_owned(), "buy".to_owned(), true, "dependencies met".to_owned()),
        ("12:01:30".to_owned(), "buy".to_owned(), false, "waiting for price".to_owned()),
    ];
    assert_eq!(availability_changes(&mut events), expected);
    // A withheld tool does not become unavailable a second time.
    call(&first, "price", "t1").await.assert_success();
    first.disable_tool("buy", None).await.unwrap();
    let mut events = EventRecorder::new(&first);
    tokio::time::sleep(2 * minute).await;
    assert_eq!(availability_changes(&mut events), []);
    first.enable_tool("buy").await.unwrap();
    call(&first, "price", "t1").await.assert_success();
    first.shutdown(minute).await;

    // After a restart the first question about the thread is enough.
    let second = hub().await;
    let mut events = EventRecorder::new(&second);
    call(&second, "buy", "t1").await.assert_success();
    tokio::time::sleep(2 * minute).await;
    assert_eq!(
        availability_changes(&mut events),
        [("12:05:30".into(), "buy".into(), false, "waiting for price".into())]
    );
}
