//! The status of a tool is the same through every API.

use std::{sync::Arc, time::Duration};

use toolhub::{
    HubChange, StatusScope, ToolName,
    backend::Memory,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{Language, ToolStatus},
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};

const MINUTE: Duration = Duration::from_secs(60);

fn tenant_and_thread() -> (Tenant, ThreadId) {
    (Tenant::default(), ThreadId::new("t1").unwrap())
}

async fn hub(tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap()
}

/// A hub in which `next` waits for `base`.
async fn hub_with_dependency(steps: Vec<ScriptStep>) -> ToolHub {
    hub([scripted("base", []).0, scripted("next", steps).0.after("base")]).await
}

/// The status and the reason, through every API; they must agree.
async fn status_in_all_views(hub: &ToolHub, tool: &str) -> (ToolStatus, String) {
    let (tenant, thread) = tenant_and_thread();
    let view = StatusScope::Thread(&tenant, &thread);
    let info = hub.tool_status(tool, view).await.unwrap();
    let all = hub.tool_statuses(view).await.unwrap();
    assert_eq!(all.iter().find(|one| *one.tool_name == *tool), Some(&info));
    let why = hub.explain(tool, &tenant, &thread).await.unwrap();
    assert_eq!((why.status, &why.reason), (info.status, &info.reason));
    let offered = hub.available_tools(view).await.unwrap().iter().any(|name| **name == *tool);
    assert_eq!((offered, why.offered), (info.status == ToolStatus::Available, offered));
    let pinned = hub.offer(&tenant, &thread).await.unwrap();
    assert_eq!(pinned.tools().get(tool).is_some(), offered);
    let line = hub.status_summary(&tenant, &thread, &Language::English.into()).await.unwrap();
    assert_eq!(line.split_once(']').unwrap().0.contains(tool), offered, "{line}");
    let saved: Value = serde_json::from_str(&hub.serialize_tool_states(&tenant, &thread).await.unwrap()).unwrap();
    let state = saved["states"].as_array().unwrap().iter().find(|state| state["toolName"] == tool).unwrap().clone();
    assert_eq!((&state["status"], &state["reason"]), (&json!(info.status), &json!(info.reason)));
    assert_eq!(state["lastSuccessTime"], json!(info.last_success_time));
    (info.status, info.reason)
}

#[track_caller]
fn check(actual: (ToolStatus, String), status: ToolStatus, reason: &str) {
    assert_eq!((actual.0, actual.1.as_str()), (status, reason));
}

#[tokio::test(start_paused = true)]
async fn in_a_thread_a_tool_that_waits_is_unavailable_until_its_dependencies_are_met() {
    let hub = hub_with_dependency(vec![]).await;
    check(status_in_all_views(&hub, "next").await, ToolStatus::Unavailable, "waiting for base");
    let shared = hub.tool_status("next", StatusScope::Shared).await.unwrap();
    assert_eq!(shared.status, ToolStatus::Available, "evidence belongs to threads; in the shared view no tool waits");
    hub.call("base", json!({})).thread("t1").await.assert_success();
    check(status_in_all_views(&hub, "next").await, ToolStatus::Available, "dependencies met");
    let unknown = hub.tool_status("nxt", StatusScope::Shared).await.unwrap_err();
    assert_eq!((unknown.kind, unknown.suggestions()), (ErrorKind::ToolNotFound, &["next".to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn without_a_thread_a_tool_is_explained_by_its_shared_status() {
    let hub = hub_with_dependency(vec![]).await;
    let tenant = Tenant::default();
    let explain = async |tool: &str| {
        let why = hub.explain(tool, &tenant, None).await.unwrap();
        (why.offered, why.reason)
    };
    assert_eq!(explain("base").await, (true, "never run".into()));
    hub.call("base", json!({})).thread("t1").await.assert_success();
    assert_eq!(explain("base").await, (true, "executed successfully".into()));
    assert_eq!(explain("next").await, (false, "waiting for base".into()), "a new thread has no evidence");
    hub.reset_tool_status("base", StatusScope::Shared).await.unwrap();
    assert_eq!(explain("base").await, (true, "reset, not run since".into()));
    hub.call("base", json!({})).thread("t1").await.assert_success();
    let shared = hub.tool_status("base", StatusScope::Shared).await.unwrap().reason;
    assert_eq!((shared.as_str(), explain("base").await), ("executed successfully", (true, shared.clone())));
}

#[tokio::test(start_paused = true)]
async fn the_threads_that_withhold_a_tool_are_counted_per_tenant() {
    let hub = hub_with_dependency(vec![]).await;
    let (tenant, thread) = tenant_and_thread();
    assert!(hub.withheld_threads(&tenant).is_empty());
    let view = StatusScope::Thread(&tenant, &thread);
    hub.set_tool_status("base", ToolStatus::Maintenance, None, None, view).await.unwrap();
    let counts: Vec<(String, usize)> =
        hub.withheld_threads(&tenant).into_iter().map(|(tool, count)| (tool.to_string(), count)).collect();
    assert_eq!(counts, [("base".to_owned(), 1)]);
    let base = ToolName::new("base").unwrap();
    assert_eq!(hub.threads_withholding(&base, &tenant, 5), std::slice::from_ref(&thread));
    assert!(hub.threads_withholding(&base, &tenant, 0).is_empty());
    assert!(hub.threads_withholding(&ToolName::new("next").unwrap(), &tenant, 5).is_empty());
    let other = Tenant::new("other").unwrap();
    assert!(hub.withheld_threads(&other).is_empty() && hub.threads_withholding(&base, &other, 5).is_empty());
    hub.reset_tool_status("base", view).await.unwrap();
    assert!(hub.withheld_threads(&tenant).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_waits_and_is_broken_or_held_shows_the_worse_status() {
    let (tenant, thread) = tenant_and_thread();
    let hub = hub_with_dependency(vec![]).await;
    let view = StatusScope::Thread(&tenant, &thread);
    hub.set_tool_status("next", ToolStatus::Failed, None, None, view).await.unwrap();
    check(status_in_all_views(&hub, "next").await, ToolStatus::Failed, "set to failed by an operator");
    hub.set_tool_status("next", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    check(status_in_all_views(&hub, "next").await, ToolStatus::Maintenance, "in maintenance");
    hub.set_tool_status("next", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    tokio::time::sleep(5 * MINUTE).await;
    check(status_in_all_views(&hub, "next").await, ToolStatus::Unavailable, "waiting for base");
    hub.call("base", json!({})).thread("t1").await.assert_success();
    check(status_in_all_views(&hub, "next").await, ToolStatus::Available, "on probation");
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_bases_came_in_the_wrong_order_asks_for_the_calls_that_mend_it() {
    let tools = ["a", "b"].map(|name| scripted(name, []).0);
    let hub = hub(tools.into_iter().chain([scripted("last", []).0.after_sequence(["a", "b"])])).await;
    for base in ["b", "a"] {
        hub.call(base, json!({})).thread("t1").await.assert_success();
    }
    check(status_in_all_views(&hub, "last").await, ToolStatus::Unavailable, "waiting for b");
    let (tenant, thread) = tenant_and_thread();
    let line = async |language: Language| hub.status_summary(&tenant, &thread, &language.into()).await.unwrap();
    assert!(line(Language::English).await.ends_with(" [waiting: last ← b]"), "{}", line(Language::English).await);
    assert!(line(Language::Chinese).await.ends_with(" [等待依赖: last ← b]"), "{}", line(Language::Chinese).await);
    let why = hub.explain("last", &tenant, &thread).await.unwrap().text(Language::English);
    assert!(why.contains("\nCall b again: it must succeed after a.\n"), "{why}");
    hub.call("b", json!({})).thread("t1").await.assert_success();
    check(status_in_all_views(&hub, "last").await, ToolStatus::Available, "dependencies met");
}

#[tokio::test(start_paused = true)]
async fn the_last_moment_of_a_wait_is_told_in_whole_seconds() {
    let (tenant, thread) = tenant_and_thread();
    let hub = hub([scripted("sick", []).0]).await;
    hub.set_tool_status("sick", ToolStatus::Failed, None, None, StatusScope::Shared).await.unwrap();
    for (left, shown) in [(299_500, "300s"), (1_000, "1s"), (300, "1s")] {
        let waited = hub.explain("sick", &tenant, &thread).await.unwrap().changes_in.unwrap();
        tokio::time::sleep(waited - Duration::from_millis(left)).await;
        let why = hub.explain("sick", &tenant, &thread).await.unwrap();
        let text = why.text(Language::English);
        assert!(text.contains(&format!("It can be called again in {shown}.")), "{text}");
        let text = why.text(Language::Chinese);
        assert!(text.contains(&format!("{shown} 后可再次调用。")), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_only_waited_when_it_was_saved_is_not_locked_by_being_restored() {
    let (tenant, thread) = tenant_and_thread();
    let first = hub_with_dependency(vec![]).await;
    let text = first.serialize_tool_states(&tenant, &thread).await.unwrap();
    assert!(text.contains("waiting for base"), "{text}");
    // Here the tool has no dependency, so only the snapshot could withhold it.
    let second = hub([scripted("base", []).0, scripted("next", []).0]).await;
    let restored = second.deserialize_tool_states(&tenant, &thread, &text).await.unwrap();
    assert_eq!(restored.tools, [], "a tool that only waited has no record");
    second.call("next", json!({})).thread("t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_tool_asks_to_be_bound_again_from_the_moment_a_held_list_differs() {
    let (tenant, thread) = tenant_and_thread();
    let hub = hub_with_dependency(vec![]).await;
    let asks = async |tool| hub.tool_status(tool, StatusScope::Thread(&tenant, &thread)).await.unwrap().should_rebind;
    let offer = hub.offer(&tenant, &thread).await.unwrap();
    assert!(!asks("base").await && !asks("next").await);
    hub.call("base", json!({})).thread("t1").await.assert_success();
    // Checked immediately: the offers have not been compared in the meantime.
    assert!(asks("next").await && !asks("base").await);
    hub.set_tool_status("base", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    assert!(asks("base").await);
    let saved: Value = serde_json::from_str(&hub.serialize_tool_states(&tenant, &thread).await.unwrap()).unwrap();
    let marked = saved["states"].as_array().unwrap().iter().map(|state| state["shouldRebind"].clone());
    assert_eq!(marked.collect::<Vec<_>>(), [true, true]);
    assert!(!hub.tool_status("base", StatusScope::Shared).await.unwrap().should_rebind, "a list is bound for a thread");
    drop(offer);
    assert!(!asks("base").await && !asks("next").await, "there are no offers any more");
}

#[tokio::test(start_paused = true)]
async fn what_succeeded_before_a_restart_is_known_after_it() {
    let store = Arc::new(Memory::new());
    let hub = async || {
        let tools = [scripted("look", []).0.read_only(), scripted("pay", []).0, scripted("never", []).0];
        ToolHub::builder().shared_store(store.clone()).clock(TestClock::new()).tools(tools).build().await.unwrap()
    };
    let (tenant, thread) = tenant_and_thread();
    let other = ThreadId::new("t2").unwrap();
    let first = hub().await;
    for tool in ["look", "pay"] {
        first.call(tool, json!({})).thread("t1").await.assert_success();
    }
    first.shutdown(MINUTE).await;
    drop(first);
    let next = hub().await;
    let view_of = async |tool: &str, thread: &ThreadId| {
        let info = next.tool_status(tool, StatusScope::Thread(&tenant, thread)).await.unwrap();
        (info.reason, info.last_success_time.map(|at| at.to_string()))
    };
    let noon = Some("2024-01-01T12:00:00.000Z".to_owned());
    for tool in ["look", "pay"] {
        assert_eq!(view_of(tool, &thread).await, ("executed successfully".into(), noon.clone()), "{tool}");
        assert_eq!(view_of(tool, &other).await, ("never run".into(), None), "{tool}");
    }
    assert_eq!(view_of("never", &thread).await, ("never run".into(), None));
    let shared = next.tool_statuses(StatusScope::Shared).await.unwrap();
    let reasons: Vec<&str> = shared.iter().map(|info| info.reason.as_str()).collect();
    assert_eq!(reasons, ["executed successfully", "never run", "executed successfully"]);
    let why = next.explain("pay", &tenant, &thread).await.unwrap();
    assert_eq!(why.last_success_time.map(|at| at.to_string()), noon);
    // A reset is not undone by another read.
    next.reset_tool_status("pay", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert_eq!(view_of("pay", &thread).await, ("reset, not run since".into(), None));
    let reset = next.reset_tool_status("pay", StatusScope::Shared).await.unwrap();
    assert_eq!((reset.reason.as_str(), reset.last_success_time), ("reset, not run since", None));
}

#[tokio::test(start_paused = true)]
async fn a_plain_success_is_remembered_in_its_thread_and_for_everybody() {
    let (tenant, other) = (Tenant::default(), ThreadId::new("t2").unwrap());
    let hub = hub_with_dependency(vec![]).await;
    check(status_in_all_views(&hub, "base").await, ToolStatus::Available, "never run");
    hub.call("base", json!({})).thread("t1").await.assert_success();
    check(status_in_all_views(&hub, "base").await, ToolStatus::Available, "executed successfully");
    let (_, thread) = tenant_and_thread();
    let at = async |view| hub.tool_status("base", view).await.unwrap().last_success_time.map(|at| at.to_string());
    let noon = Some("2024-01-01T12:00:00.000Z".to_owned());
    assert_eq!(at(StatusScope::Thread(&tenant, &thread)).await, noon);
    assert_eq!(at(StatusScope::Thread(&tenant, &other)).await, None, "it was never called there");
    tokio::time::sleep(MINUTE).await;
    hub.call("base", json!({})).await.assert_success();
    assert_eq!(at(StatusScope::Thread(&tenant, &thread)).await, noon);
    assert_eq!(at(StatusScope::Shared).await, Some("2024-01-01T12:01:00.000Z".to_owned()));
    assert_eq!(hub.tool_status("base", StatusScope::Shared).await.unwrap().reason, "executed successfully");
    hub.call("next", json!({})).thread("t1").await.assert_success();
    check(status_in_all_views(&hub, "next").await, ToolStatus::Available, "executed successfully");

    hub.apply(HubChange::tools_only().put(scripted("base", []).0)).await.unwrap();
    assert!(at(StatusScope::Shared).await.is_some(), "a reload keeps the statuses");
    hub.reset_tool_status("base", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    check(status_in_all_views(&hub, "base").await, ToolStatus::Available, "reset, not run since");
    hub.reset_tool_status("base", StatusScope::Shared).await.unwrap();
    assert_eq!(at(StatusScope::Shared).await, None);
    hub.report_result("base", StatusScope::Thread(&tenant, &thread), Ok(())).await.unwrap();
    assert!(at(StatusScope::Shared).await.is_some());
    check(status_in_all_views(&hub, "base").await, ToolStatus::Available, "executed successfully");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_no_success_and_a_later_success_replaces_its_reason() {
    let fail = ScriptStep::Fail(ToolError::new("my fault"));
    let hub = hub([scripted("sick", [ScriptStep::Return(json!(1)), fail]).0]).await;
    for (minute, reason) in [(0, "executed successfully"), (1, "the last call failed"), (2, "executed successfully")] {
        hub.call("sick", json!({})).thread("t1").await;
        check(status_in_all_views(&hub, "sick").await, ToolStatus::Available, reason);
        let (tenant, thread) = tenant_and_thread();
        let info = hub.tool_status("sick", StatusScope::Thread(&tenant, &thread)).await.unwrap();
        let good = if minute == 1 { 0 } else { minute };
        assert_eq!(info.last_success_time.unwrap().to_string(), format!("2024-01-01T12:0{good}:00.000Z"));
        tokio::time::sleep(MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_saved_success_is_restored_in_its_thread_alone() {
    let (tenant, thread) = tenant_and_thread();
    let first = hub([scripted("base", []).0]).await;
    first.call("base", json!({})).thread("t1").await.assert_success();
    let text = first.serialize_tool_states(&tenant, &thread).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    let second = hub([scripted("base", []).0]).await;
    let restored = second.deserialize_tool_states(&tenant, &thread, &text).await.unwrap();
    assert_eq!(restored.tools.len(), 1);
    check(status_in_all_views(&second, "base").await, ToolStatus::Available, "executed successfully");
    assert_eq!(second.tool_status("base", StatusScope::Shared).await.unwrap().last_success_time, None);

    let older = r#"{"states": [{"toolName": "base", "status": "available", "consecutiveFailures": 0,
        "lastSuccessTime": "2024-01-01T11:00:00.000Z"}]}"#;
    let third = hub([scripted("base", []).0]).await;
    third.deserialize_tool_states(&tenant, &thread, older).await.unwrap();
    let info = third.tool_status("base", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert_eq!(info.last_success_time.unwrap().to_string(), "2024-01-01T11:00:00.000Z");
}

#[tokio::test(start_paused = true)]
async fn a_tool_registered_again_under_its_old_name_keeps_its_status() {
    let fail = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "500"));
    let hub = hub([scripted("sick", [fail(), fail(), fail()]).0]).await;
    for _ in 0..3 {
        hub.call("sick", json!({})).thread("t1").await.assert_error(ErrorKind::UpstreamError);
    }
    hub.unregister("sick").await.unwrap();
    hub.register(scripted("sick", []).0).unwrap();
    check(status_in_all_views(&hub, "sick").await, ToolStatus::Failed, "failed 3 times in a row");
    hub.apply(HubChange::tools_only().put(scripted("sick", []).0)).await.unwrap();
    hub.call("sick", json!({})).thread("t1").await.assert_error(ErrorKind::ToolFailedStatus);
}

#[tokio::test(start_paused = true)]
async fn the_reason_agrees_with_the_counters_and_the_time_moves_with_the_word() {
    let down = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "500"));
    let tools = [
        scripted("sick", [down(), down(), down()]).0.no_retry(),
        scripted("base", []).0,
        scripted("next", []).0.after("base").within(10 * MINUTE),
    ];
    let (tenant, thread) = tenant_and_thread();
    let hub = hub(tools).await;
    let seen = async |tool: &str| {
        let info = hub.tool_status(tool, StatusScope::Thread(&tenant, &thread)).await.unwrap();
        let time = info.last_updated.to_string()[11..19].to_owned();
        format!("{} {time} {} {}", json!(info.status).as_str().unwrap(), info.consecutive_failures, info.reason)
    };
    hub.create_thread(&tenant, Some(thread.clone())).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    // The failures of another thread count for all.
    for _ in 0..2 {
        hub.call("sick", json!({})).thread("t2").await.assert_error(ErrorKind::UpstreamError);
    }
    assert_eq!(seen("sick").await, "available 12:01:00 2 the last 2 calls failed");
    assert_eq!(seen("next").await, "unavailable 12:00:00 0 waiting for base");
    tokio::time::sleep(MINUTE).await;
    hub.call("sick", json!({})).thread("t2").await.assert_error(ErrorKind::UpstreamError);
    hub.call("base", json!({})).thread("t1").await.assert_success();
    assert_eq!(seen("sick").await, "failed 12:02:00 3 failed 3 times in a row");
    assert_eq!(seen("next").await, "available 12:02:00 0 dependencies met");
    tokio::time::sleep(6 * MINUTE).await;
    assert_eq!(seen("sick").await, "available 12:07:00 3 on probation");
    hub.set_tool_status(
        "next",
        ToolStatus::Maintenance,
        None,
        Some("2024-01-01T12:09:00Z".parse().unwrap()),
        StatusScope::Shared,
    )
    .await
    .unwrap();
    assert_eq!(seen("next").await, "maintenance 12:08:00 0 in maintenance");
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(seen("next").await, "available 12:09:00 0 dependencies met");
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(seen("next").await, "unavailable 12:12:00 0 waiting for base");
    hub.call("base", json!({})).thread("t1").await.assert_success();
    assert_eq!(seen("next").await, "available 12:15:00 0 dependencies met");
    tokio::time::sleep(MINUTE).await;
    hub.reset_tool_evidence("base", &tenant, &thread).await.unwrap();
    assert_eq!(seen("next").await, "unavailable 12:16:00 0 waiting for base");
    hub.reset_tool_status("sick", StatusScope::Shared).await.unwrap();
    assert_eq!(seen("sick").await, "available 12:16:00 0 reset, not run since");
    tokio::time::sleep(MINUTE).await;
    hub.apply(HubChange::tools_only().put(scripted("sick", []).0.after("base"))).await.unwrap();
    assert_eq!(seen("sick").await, "unavailable 12:17:00 0 waiting for base");
    let shared = hub.tool_status("base", StatusScope::Shared).await.unwrap();
    assert_eq!(shared.last_updated.to_string(), "2024-01-01T12:15:00.000Z");
}

#[tokio::test(start_paused = true)]
async fn a_text_of_the_older_system_brings_its_successes_and_failures_along() {
    let (tenant, thread) = tenant_and_thread();
    let tools = ["base_tool", "other"].map(|name| scripted(name, []).0);
    let dependents = [
        scripted("dependent_tool", []).0.after("base_tool"),
        scripted("waiting_tool", []).0.after("other"),
        scripted("ordered_tool", []).0.after_sequence(["failing_tool", "base_tool"]),
    ];
    let hub = hub(tools.into_iter().chain([scripted("failing_tool", []).0]).chain(dependents)).await;
    let older = json!({
        "states": [
            {"toolName": "base_tool", "status": "available", "reason": "执行成功",
             "lastUpdated": "2024-01-01T11:50:00.000Z", "consecutiveFailures": 0,
             "lastSuccessTime": "2024-01-01T11:50:00.000Z", "shouldRebind": false},
            {"toolName": "dependent_tool", "status": "unavailable", "reason": "依赖未满足",
             "lastUpdated": "2024-01-01T11:51:00.000Z", "consecutiveFailures": 1,
             "lastFailureTime": "2024-01-01T11:40:00.000Z", "shouldRebind": false},
            {"toolName": "failing_tool", "status": "failed", "reason": "连续失败超过阈值",
             "lastUpdated": "2024-01-01T11:58:00.000Z", "consecutiveFailures": 3,
             "lastSuccessTime": "2024-01-01T11:30:00.000Z", "lastFailureTime": "2024-01-01T11:58:00.000Z",
             "shouldRebind": true},
        ],
        "config": {"enabled": true, "failureThreshold": 3, "failureDuration": 300_000, "autoRebind": true, "rebindDelay": 10_000},
        "timestamp": "2024-01-01T11:59:00.000Z",
    });
    let restored = hub.deserialize_tool_states(&tenant, &thread, &older.to_string()).await.unwrap();
    assert_eq!((restored.tools.len(), restored.warning), (3, None));
    let failing = hub.tool_status("failing_tool", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert_eq!((failing.status, failing.consecutive_failures), (ToolStatus::Failed, 3));
    let times = [failing.last_success_time, failing.last_failure_time].map(|at| at.unwrap().to_string());
    assert_eq!(times, ["2024-01-01T11:30:00.000Z", "2024-01-01T11:58:00.000Z"]);
    let dependent = hub.tool_status("dependent_tool", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert_eq!((dependent.status, dependent.reason.as_str()), (ToolStatus::Available, "the last call failed"));
    for tool in ["dependent_tool", "ordered_tool"] {
        hub.call(tool, json!({})).thread("t1").await.assert_success();
    }
    hub.call("waiting_tool", json!({})).thread("t1").await.assert_error(ErrorKind::DependencyNotMet);
}
