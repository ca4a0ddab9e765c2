//! What happens in one thread, or happened before a thread was made, is not shown as its own in another.

use std::time::Duration;

use toolhub::{
    StatusScope, ToolStatusInfo,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{FailureWindow, StatusSettings, ToolStatus},
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};

const MINUTE: Duration = Duration::from_secs(60);

async fn hub(steps: Vec<ScriptStep>) -> ToolHub {
    hub_with(StatusSettings { failure_threshold: 2, ..StatusSettings::default() }, steps).await
}

async fn hub_with(settings: StatusSettings, steps: Vec<ScriptStep>) -> ToolHub {
    let (tool, _) = scripted("look", steps);
    ToolHub::builder().clock(TestClock::new()).status(settings).tool(tool.no_retry()).build().await.unwrap()
}

async fn status_in(hub: &ToolHub, tenant: &str, thread: &str) -> ToolStatusInfo {
    let (tenant, thread) = (Tenant::new(tenant).unwrap(), ThreadId::new(thread).unwrap());
    hub.tool_status("look", StatusScope::Thread(&tenant, &thread)).await.unwrap()
}

async fn report_success(hub: &ToolHub, thread: &str) -> ToolStatusInfo {
    let (tenant, thread) = (Tenant::default(), ThreadId::new(thread).unwrap());
    hub.report_result("look", StatusScope::Thread(&tenant, &thread), Ok(())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_success_reported_in_one_thread_is_not_shown_in_another() {
    let hub = hub(vec![]).await;
    for (tenant, thread) in [("main", "t2"), ("other", "t1")] {
        let (tenant, thread) = (Tenant::new(tenant).unwrap(), ThreadId::new(thread).unwrap());
        hub.create_thread(&tenant, Some(thread)).await.unwrap();
    }
    let before = [status_in(&hub, "main", "t2").await, status_in(&hub, "other", "t1").await];
    assert!(before.iter().all(|info| info.reason == "never run"));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(report_success(&hub, "t1").await.reason, "executed successfully");
    assert_eq!([status_in(&hub, "main", "t2").await, status_in(&hub, "other", "t1").await], before);

    hub.reset_tool_status("look", StatusScope::Shared).await.unwrap();
    let reset = status_in(&hub, "main", "t2").await;
    assert_eq!(reset.reason, "reset, not run since");
    tokio::time::sleep(MINUTE).await;
    report_success(&hub, "t1").await;
    assert_eq!(status_in(&hub, "main", "t2").await, reset);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_its_own_threads_failures_changes_nothing_in_another() {
    let hub = hub(vec![ScriptStep::Fail(ToolError::new("no"))]).await;
    hub.reset_tool_status("look", StatusScope::Shared).await.unwrap();
    hub.call("look", json!({})).thread("t1").await.assert_error(ErrorKind::ToolError);
    tokio::time::sleep(MINUTE).await;
    hub.call("look", json!({})).thread("t1").await.assert_success();
    let other = status_in(&hub, "main", "t2").await;
    assert_eq!((other.reason.as_str(), other.last_success_time), ("reset, not run since", None));
}

#[tokio::test(start_paused = true)]
async fn a_success_that_counts_for_the_failure_rate_is_not_shown_in_another_thread() {
    let window = FailureWindow { failure_rate: 0.5, window: 10 * MINUTE, minimum_calls: 10 };
    let hub = hub_with(StatusSettings { failure_window: Some(window), ..StatusSettings::default() }, vec![]).await;
    hub.call("look", json!({})).thread("t1").await.assert_success();
    report_success(&hub, "t1").await;
    let other = status_in(&hub, "other", "t1").await;
    assert_eq!((other.reason.as_str(), other.last_success_time), ("never run", None));
}

#[tokio::test(start_paused = true)]
async fn a_success_reported_in_a_thread_ends_a_row_of_shared_failures_but_no_shared_probation() {
    let down = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "502"));
    let hub = hub(vec![down(), down(), down()]).await;
    let shared = async || hub.tool_status("look", StatusScope::Shared).await.unwrap();
    hub.call("look", json!({})).thread("t1").await.assert_error(ErrorKind::UpstreamError);
    report_success(&hub, "t2").await;
    assert_eq!(shared().await.consecutive_failures, 0, "as a success of a call does");

    for _ in 0..2 {
        hub.call("look", json!({})).thread("t1").await.assert_error(ErrorKind::UpstreamError);
    }
    assert_eq!(shared().await.status, ToolStatus::Failed);
    tokio::time::sleep(5 * MINUTE).await;
    report_success(&hub, "t2").await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t2").unwrap());
    let uncounted = Err(ToolError::refused("not found"));
    hub.report_result("look", StatusScope::Thread(&tenant, &thread), uncounted).await.unwrap();
    assert_eq!(shared().await.reason, "on probation", "only a call, or a report without a thread, ends it");
    hub.report_result("look", StatusScope::Shared, Ok(())).await.unwrap();
    assert_eq!(shared().await.reason, "executed successfully");
}

#[tokio::test(start_paused = true)]
async fn a_thread_made_after_a_reset_of_a_tool_has_never_run_it() {
    let hub = hub(vec![]).await;
    hub.call("look", json!({})).thread("t1").await.assert_success();
    tokio::time::sleep(MINUTE).await;
    hub.reset_tool_status("look", StatusScope::Shared).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t2").unwrap());
    let made = hub.create_thread(&tenant, Some(thread.clone())).await.unwrap();
    let info = status_in(&hub, "main", "t2").await;
    assert_eq!((info.reason.as_str(), info.last_updated), ("never run", hub.now()), "{made:?}");
    assert_eq!(hub.explain("look", &tenant, &thread).await.unwrap().reason, "never run");
    assert_eq!(hub.status_details(&tenant, &thread, &Default::default()).await.unwrap().tools[0].info, info);
    let saved: Value = serde_json::from_str(&hub.serialize_tool_states(&tenant, &thread).await.unwrap()).unwrap();
    assert_eq!(saved["states"][0]["reason"], "never run");
}
