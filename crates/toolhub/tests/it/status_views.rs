//! What somebody is told about the status of a tool: the same, whomever one asks.

use std::time::Duration;

use toolhub::{
    View,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{Language, ToolStatus},
    testing::{AssertOutcome, Step, TestClock, scripted},
};

const MINUTE: Duration = Duration::from_secs(60);

fn place() -> (Tenant, ThreadId) {
    (Tenant::default(), ThreadId::new("t1").unwrap())
}

async fn hub(tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap()
}

/// A hub in which `next` waits for `base`.
async fn pair(steps: Vec<Step>) -> ToolHub {
    hub([scripted("base", []).0, scripted("next", steps).0.after("base")]).await
}

/// The word and the reason, asked in every way there is; they must agree.
async fn told(hub: &ToolHub, tool: &str) -> (ToolStatus, String) {
    let (tenant, thread) = place();
    let view = View::Thread(&tenant, &thread);
    let info = hub.tool_status(tool, view).await.unwrap();
    let all = hub.tool_statuses(view).await.unwrap();
    assert_eq!(all.iter().find(|one| *one.tool_name == *tool), Some(&info));
    let why = hub.explain(tool, &tenant, &thread).await.unwrap();
    assert_eq!((why.status, &why.reason), (info.status, &info.reason));
    let offered = hub.available_tools(&tenant, &thread).await.unwrap().iter().any(|name| **name == *tool);
    assert_eq!((offered, why.offered), (info.status == ToolStatus::Available, offered));
    let pinned = hub.offer(&tenant, &thread).await.unwrap();
    assert_eq!(pinned.tools().get(tool).is_some(), offered);
    let line = hub.summary(&tenant, &thread, Language::English).await.unwrap();
    assert_eq!(line.split_once(']').unwrap().0.contains(tool), offered, "{line}");
    let saved: Value = serde_json::from_str(&hub.serialize_tool_states(&tenant, &thread).await.unwrap()).unwrap();
    let state = saved["states"].as_array().unwrap().iter().find(|state| state["toolName"] == tool).unwrap().clone();
    assert_eq!((&state["status"], &state["reason"]), (&json!(info.status), &json!(info.reason)));
    assert_eq!(state["lastSuccessTime"], json!(info.last_success_time));
    (info.status, info.reason)
}

#[track_caller]
fn check(told: (ToolStatus, String), status: ToolStatus, reason: &str) {
    assert_eq!((told.0, told.1.as_str()), (status, reason));
}

#[tokio::test(start_paused = true)]
async fn in_a_thread_a_tool_that_waits_is_unavailable_until_its_dependencies_are_met() {
    let hub = pair(vec![]).await;
    check(told(&hub, "next").await, ToolStatus::Unavailable, "waiting for base");
    let shared = hub.tool_status("next", View::Shared).await.unwrap();
    assert_eq!(shared.status, ToolStatus::Available, "evidence belongs to threads; for everybody no tool waits");
    hub.call("base", json!({})).thread("t1").await.assert_success();
    check(told(&hub, "next").await, ToolStatus::Available, "dependencies met");
    let unknown = hub.tool_status("nxt", View::Shared).await.unwrap_err();
    assert_eq!((unknown.kind, unknown.suggestions()), (ErrorKind::ToolNotFound, &["next".to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_waits_and_is_broken_or_held_says_the_worse_word() {
    let (tenant, thread) = place();
    let hub = pair(vec![]).await;
    let view = View::Thread(&tenant, &thread);
    hub.set_tool_status("next", ToolStatus::Failed, None, None, view).await.unwrap();
    check(told(&hub, "next").await, ToolStatus::Failed, "set to failed by an operator");
    hub.set_tool_status("next", ToolStatus::Maintenance, None, None, View::Shared).await.unwrap();
    check(told(&hub, "next").await, ToolStatus::Maintenance, "under maintenance");
    hub.set_tool_status("next", ToolStatus::Available, None, None, View::Shared).await.unwrap();
    tokio::time::sleep(5 * MINUTE).await;
    check(told(&hub, "next").await, ToolStatus::Unavailable, "waiting for base");
    hub.call("base", json!({})).thread("t1").await.assert_success();
    check(told(&hub, "next").await, ToolStatus::Available, "on probation");
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_bases_came_in_the_wrong_order_does_not_ask_for_a_call_that_would_not_help() {
    let tools = ["a", "b"].map(|name| scripted(name, []).0);
    let hub = hub(tools.into_iter().chain([scripted("last", []).0.after_sequence(["a", "b"])])).await;
    for base in ["b", "a"] {
        hub.call(base, json!({})).thread("t1").await.assert_success();
    }
    check(told(&hub, "last").await, ToolStatus::Unavailable, "others succeeded in the wrong order");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_only_waited_when_it_was_saved_is_not_locked_by_being_restored() {
    let (tenant, thread) = place();
    let first = pair(vec![]).await;
    let text = first.serialize_tool_states(&tenant, &thread).await.unwrap();
    assert!(text.contains("waiting for base"), "{text}");
    // Here the tool waits for nobody, so nothing but the text could hold it back.
    let second = hub([scripted("base", []).0, scripted("next", []).0]).await;
    let restored = second.deserialize_tool_states(&tenant, &thread, &text).await.unwrap();
    assert_eq!(restored.tools, [], "nothing is known against a tool that only waited");
    second.call("next", json!({})).thread("t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_tool_asks_to_be_bound_again_from_the_moment_a_held_list_differs() {
    let (tenant, thread) = place();
    let hub = pair(vec![]).await;
    let asks = async |tool| hub.tool_status(tool, View::Thread(&tenant, &thread)).await.unwrap().should_rebind;
    let offer = hub.offer(&tenant, &thread).await.unwrap();
    assert!(!asks("base").await && !asks("next").await);
    hub.call("base", json!({})).thread("t1").await.assert_success();
    // Asked at once: nobody has compared the lists in the meantime.
    assert!(asks("next").await && !asks("base").await);
    hub.set_tool_status("base", ToolStatus::Maintenance, None, None, View::Shared).await.unwrap();
    assert!(asks("base").await);
    let saved: Value = serde_json::from_str(&hub.serialize_tool_states(&tenant, &thread).await.unwrap()).unwrap();
    let marked = saved["states"].as_array().unwrap().iter().map(|state| state["shouldRebind"].clone());
    assert_eq!(marked.collect::<Vec<_>>(), [true, true]);
    assert!(!hub.tool_status("base", View::Shared).await.unwrap().should_rebind, "a list is bound for a thread");
    drop(offer);
    assert!(!asks("base").await && !asks("next").await, "nobody holds a list any more");
}
