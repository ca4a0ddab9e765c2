//! What a hub knows of successes before it started, or before other tools depended on them.

use std::{sync::Arc, time::Duration};

use toolhub::{
    HubChange, StatusScope,
    backend::{Backend, Memory},
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{Language, ToolStatus},
    testing::{AssertOutcome, TestClock, scripted},
};

fn tenant_and_thread() -> (Tenant, ThreadId) {
    (Tenant::default(), ThreadId::new("t1").unwrap())
}

fn scripted_tool(name: &str) -> ToolBuilder {
    scripted(name, []).0
}

/// A hub on a store; drop or shut down the previous one first.
async fn hub_on(store: &Arc<dyn Backend>, clock: &TestClock, tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().shared_store(store.clone()).clock(clock.clone()).tools(tools).build().await.unwrap()
}

fn new_store() -> (Arc<dyn Backend>, TestClock) {
    (Arc::new(Memory::new()), TestClock::new())
}

async fn stop(hub: ToolHub) {
    hub.shutdown(Duration::from_secs(60)).await;
}

async fn call(hub: &ToolHub, tool: &str) -> Outcome {
    hub.call(tool, json!({})).thread("t1").await
}

/// The saved state of a tool: status, reason, last success.
async fn saved_state(hub: &ToolHub, tool: &str) -> (String, String, Value) {
    let (tenant, thread) = tenant_and_thread();
    let saved: Value = serde_json::from_str(&hub.serialize_tool_states(&tenant, &thread).await.unwrap()).unwrap();
    let state = saved["states"].as_array().unwrap().iter().find(|state| state["toolName"] == tool).unwrap().clone();
    let text = |member: &str| state[member].as_str().unwrap().to_owned();
    (text("status"), text("reason"), state["lastSuccessTime"].clone())
}

const NOON: &str = "2024-01-01T12:00:00.000Z";

#[tokio::test(start_paused = true)]
async fn whatever_is_asked_first_after_a_restart_knows_the_successes_of_before() {
    let (tenant, thread) = tenant_and_thread();
    let (store, clock) = new_store();
    let tools = || [scripted_tool("look").read_only(), scripted_tool("pay")];
    let first = hub_on(&store, &clock, tools()).await;
    for tool in ["look", "pay"] {
        call(&first, tool).await.assert_success();
    }
    stop(first).await;
    tokio::time::sleep(Duration::from_secs(60)).await;

    let expected = ("available".to_owned(), "executed successfully".to_owned(), json!(NOON));
    for question in 0..4 {
        let hub = hub_on(&store, &clock, tools()).await;
        match question {
            0 => assert_eq!(saved_state(&hub, "look").await, expected),
            1 => {
                let info = hub.tool_status("pay", StatusScope::Thread(&tenant, &thread)).await.unwrap();
                assert_eq!(
                    (info.reason.as_str(), info.last_updated.to_string()),
                    ("executed successfully", NOON.into())
                );
            }
            2 => {
                let why = hub.explain("look", &tenant, &thread).await.unwrap().text(Language::English);
                assert!(why.contains("executed successfully"), "{why}");
            }
            _ => {
                let held = Some("repairs".to_owned());
                let shared = StatusScope::Shared;
                let info = hub.set_tool_status("pay", ToolStatus::Maintenance, held, None, shared).await.unwrap();
                assert_eq!(info.last_success_time.map(|at| at.to_string()), Some(NOON.into()));
                hub.set_tool_status("pay", ToolStatus::Available, None, None, shared).await.unwrap();
            }
        }
        stop(hub).await;
    }

    let hub = hub_on(&store, &clock, tools()).await;
    let text = hub.serialize_tool_states(&tenant, &thread).await.unwrap();
    let (elsewhere, clock) = new_store();
    let other = hub_on(&elsewhere, &clock, tools()).await;
    other.deserialize_tool_states(&tenant, &thread, &text).await.unwrap();
    assert_eq!(saved_state(&other, "pay").await, expected);
    stop(other).await;
    let restarted = hub_on(&elsewhere, &clock, tools()).await;
    assert_eq!(saved_state(&restarted, "pay").await, expected, "a restored success survives a restart");
}

#[tokio::test(start_paused = true)]
async fn a_success_is_known_after_a_restart_however_many_other_calls_came_after_it() {
    let (tenant, thread) = tenant_and_thread();
    let (store, clock) = new_store();
    let tools = || [scripted_tool("pay"), scripted_tool("look").read_only(), scripted_tool("never")];
    let first = hub_on(&store, &clock, tools()).await;
    call(&first, "pay").await.assert_success();
    for _ in 0..250 {
        call(&first, "look").await.assert_success();
    }
    stop(first).await;
    tokio::time::sleep(Duration::from_secs(60)).await;

    let hub = hub_on(&store, &clock, tools()).await;
    let status = async |tool, scope| {
        let info = hub.tool_status(tool, scope).await.unwrap();
        (info.reason, info.last_success_time.map(|at| at.to_string()))
    };
    for scope in [StatusScope::Thread(&tenant, &thread), StatusScope::Shared] {
        assert_eq!(status("pay", scope).await, ("executed successfully".into(), Some(NOON.into())));
        assert_eq!(status("never", scope).await, ("never run".into(), None));
    }
    assert_eq!(saved_state(&hub, "pay").await.2, json!(NOON));
}

#[tokio::test(start_paused = true)]
async fn a_reset_with_evidence_survives_a_restart() {
    let (tenant, thread) = tenant_and_thread();
    let (store, clock) = new_store();
    let tools = || [scripted_tool("base"), scripted_tool("next").after("base")];
    let first = hub_on(&store, &clock, tools()).await;
    call(&first, "base").await.assert_success();
    first.reset_tool_status("base", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert!(first.reset_tool_evidence("base", &tenant, &thread).await.unwrap());
    first.reset_tool_status("base", StatusScope::Shared).await.unwrap();
    let reset = ("available".to_owned(), "reset, not run since".to_owned(), Value::Null);
    assert_eq!(saved_state(&first, "base").await, reset);
    stop(first).await;

    let second = hub_on(&store, &clock, tools()).await;
    assert_eq!(saved_state(&second, "base").await, reset);
    let shared = second.tool_status("base", StatusScope::Shared).await.unwrap();
    assert_eq!((shared.reason.as_str(), shared.last_success_time), ("reset, not run since", None));
    assert_eq!(saved_state(&second, "next").await.1, "waiting for base");
    call(&second, "next").await.assert_error(ErrorKind::DependencyNotMet);
    tokio::time::sleep(Duration::from_secs(60)).await;
    call(&second, "base").await.assert_success();
    stop(second).await;

    let third = hub_on(&store, &clock, tools()).await;
    assert_eq!(saved_state(&third, "base").await.1, "executed successfully");
    call(&third, "next").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_is_added_later_sees_the_earlier_successes_of_its_base() {
    let (tenant, thread) = tenant_and_thread();
    let (store, clock) = new_store();
    let bases = || ["a", "b", "busy"].map(scripted_tool);
    let first = hub_on(&store, &clock, bases()).await;
    for tool in ["a", "b"] {
        call(&first, tool).await.assert_success();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    first.register(scripted_tool("registered").after("a")).unwrap();
    assert_eq!(saved_state(&first, "registered").await.1, "dependencies met");
    first.apply(HubChange::tools_only().put(scripted_tool("reloaded").after_sequence(["a", "b"]))).await.unwrap();
    call(&first, "reloaded").await.assert_success();
    first.apply(HubChange::tools_only().put(scripted_tool("reversed").after_sequence(["b", "a"]))).await.unwrap();
    let text = call(&first, "reversed").await.assert_error(ErrorKind::DependencyNotMet).to_owned();
    assert!(text.contains("Call a again: it must succeed after b."), "{text}");
    for _ in 0..150 {
        call(&first, "busy").await.assert_success();
    }
    stop(first).await;

    // In this process nothing depends on `b`, and its success is older than those that are read at first.
    let second = hub_on(&store, &clock, bases()).await;
    assert_eq!(saved_state(&second, "busy").await.1, "executed successfully");
    second.register(scripted_tool("late").after("b")).unwrap();
    call(&second, "late").await.assert_success();
    stop(second).await;

    // What was found is evidence like any other; a reset takes it away, also for tools that are added later.
    let third = hub_on(&store, &clock, bases()).await;
    assert!(third.reset_tool_evidence("b", &tenant, &thread).await.unwrap());
    assert!(!third.reset_tool_evidence("b", &tenant, &thread).await.unwrap());
    third.reset_tool_evidence("busy", &tenant, &thread).await.unwrap();
    stop(third).await;
    let fourth = hub_on(&store, &clock, bases()).await;
    fourth.register_all([scripted_tool("after_b").after("b"), scripted_tool("after_busy").after("busy")]).unwrap();
    for tool in ["after_b", "after_busy"] {
        call(&fourth, tool).await.assert_error(ErrorKind::DependencyNotMet);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reported_success_is_evidence_and_survives_a_restart() {
    let (tenant, thread) = tenant_and_thread();
    let (store, clock) = new_store();
    let scope = StatusScope::Thread(&tenant, &thread);
    let first = hub_on(&store, &clock, [scripted_tool("base"), scripted_tool("next").after("base")]).await;
    first.report_result("base", scope, Err(ToolError::new("no"))).await.unwrap();
    call(&first, "next").await.assert_error(ErrorKind::DependencyNotMet);
    first.report_result("base", scope, Ok(())).await.unwrap();
    first.report_result("next", scope, Ok(())).await.unwrap();
    call(&first, "next").await.assert_success();
    assert!(first.thread(&tenant, &thread).await.unwrap().is_some());
    stop(first).await;

    let tools = [scripted_tool("base"), scripted_tool("next").after("base"), scripted_tool("last").after("next")];
    let second = hub_on(&store, &clock, tools).await;
    assert_eq!(saved_state(&second, "base").await.1, "executed successfully");
    for tool in ["next", "last"] {
        call(&second, tool).await.assert_success();
    }
}
