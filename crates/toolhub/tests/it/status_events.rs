//! Status events: on time even if no timer ran, once, and in order.

use std::{collections::HashMap, time::Duration};

use toolhub::{
    StatusScope,
    events::EventKind,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::ToolStatus,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A hub whose tool was just withheld, for five minutes.
async fn hub_with_withheld_tool() -> (ToolHub, TestClock) {
    let (clock, fail) = (TestClock::new(), || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "500")));
    let (tool, _) = scripted("flaky", [fail(), fail(), fail()]);
    let hub = ToolHub::builder().clock(clock.clone()).tool(tool.read_only().no_retry()).build().await.unwrap();
    for _ in 0..3 {
        hub.call("flaky", json!({})).await.assert_error(ErrorKind::UpstreamError);
    }
    (hub, clock)
}

/// The published statuses, in order.
fn status_changes(recorder: &mut EventRecorder) -> Vec<ToolStatus> {
    let statuses = recorder.events().iter().filter_map(|event| match &event.kind {
        EventKind::StatusChanged { new_status, .. } => Some(*new_status),
        _ => None,
    });
    statuses.collect()
}

#[tokio::test(start_paused = true)]
async fn reading_a_status_that_is_due_emits_the_event_that_no_timer_emitted() {
    let (hub, clock) = hub_with_withheld_tool().await;
    let mut recorder = EventRecorder::new(&hub);
    clock.jump(299_999);
    assert_eq!(hub.tool_status("flaky", StatusScope::Shared).await.unwrap().status, ToolStatus::Failed);
    assert_eq!(status_changes(&mut recorder), []);
    clock.jump(1);
    for _ in 0..3 {
        assert_eq!(hub.tool_status("flaky", StatusScope::Shared).await.unwrap().status, ToolStatus::Available);
        assert_eq!(status_changes(&mut recorder), [ToolStatus::Available]);
    }
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(status_changes(&mut recorder), [ToolStatus::Available], "the timer publishes nothing more");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_clock_set_back_has_ended_is_told_by_whoever_sees_it_and_for_good() {
    for hours in [1, 365 * 24] {
        let (hub, clock) = hub_with_withheld_tool().await;
        let mut recorder = EventRecorder::new(&hub);
        clock.jump(-hours * 3_600_000);
        assert_eq!(hub.tool_status("flaky", StatusScope::Shared).await.unwrap().status, ToolStatus::Available);
        assert_eq!(status_changes(&mut recorder), [ToolStatus::Available]);
        tokio::time::sleep(MINUTE).await;
        clock.jump(hours * 3_600_000);
        assert_eq!(hub.tool_status("flaky", StatusScope::Shared).await.unwrap().status, ToolStatus::Available);
        assert_eq!(status_changes(&mut recorder), [ToolStatus::Available]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_gone_leaves_no_timers_behind() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..5 {
        let (hub, _) = hub_with_withheld_tool().await;
        let until = Some("2034-01-01T00:00:00Z".parse().unwrap());
        hub.set_tool_status("flaky", ToolStatus::Maintenance, None, until, StatusScope::Shared).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_the_wait_over_emits_the_event_too() {
    let (hub, clock) = hub_with_withheld_tool().await;
    let mut recorder = EventRecorder::new(&hub);
    clock.jump(300_000);
    hub.call("flaky", json!({})).await.assert_success();
    assert_eq!(status_changes(&mut recorder), [ToolStatus::Available]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_replaced_by_a_longer_one_is_told_at_the_end_of_the_longer_one() {
    let (hub, _) = hub_with_withheld_tool().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut recorder = EventRecorder::new(&hub);
    let before = tasks();
    for minute in 10..20 {
        let until = format!("2024-01-01T12:{minute}:00Z").parse().unwrap();
        hub.set_tool_status("flaky", ToolStatus::Failed, None, Some(until), StatusScope::Shared).await.unwrap();
    }
    tokio::time::sleep(18 * MINUTE + MINUTE / 2).await;
    assert_eq!(status_changes(&mut recorder), []);
    assert!(tasks() <= before, "idle timers end: {} more", tasks() - before);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(status_changes(&mut recorder), [ToolStatus::Available]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_several_threads_each_status_follows_on_the_one_before() {
    let hub = ToolHub::builder().tools(["flaky", "other"].map(|name| scripted(name, []).0)).build().await.unwrap();
    let mut events = hub.subscribe();
    let busy: Vec<_> = (0..8)
        .map(|task| {
            let hub = hub.clone();
            tokio::spawn(async move {
                let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
                // The shared record of one tool and a thread's of the other; each has its own sequence.
                let view = if task % 2 == 0 { StatusScope::Shared } else { StatusScope::Thread(&tenant, &thread) };
                let tool = if task % 2 == 0 { "flaky" } else { "other" };
                for turn in 0..200 {
                    let status =
                        [ToolStatus::Maintenance, ToolStatus::Available, ToolStatus::Unavailable][(task + turn) % 3];
                    hub.set_tool_status(tool, status, None, None, view).await.unwrap();
                }
            })
        })
        .collect();
    for task in busy {
        task.await.unwrap();
    }
    let (mut last, mut received) = (HashMap::new(), 0);
    while let Some(event) = events.try_next() {
        if let EventKind::StatusChanged { tool_name, old_status, new_status, .. } = &event.kind {
            let before = last.insert(tool_name.clone(), *new_status).unwrap_or(ToolStatus::Available);
            assert_eq!(*old_status, Some(before), "after {received} words, of {tool_name}");
            received += 1;
        }
    }
    assert!(received > 100, "{received}");
}
