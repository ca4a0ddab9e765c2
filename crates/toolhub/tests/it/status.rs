//! Failing tools are withheld, probed, and recover.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    StatusScope,
    backend::{Backend, Durability, Memory, Table},
    events::EventKind,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{FailureWindow, Language, StatusSettings, ToolStatus},
    testing::{AssertOutcome, EventRecorder, ScriptStep, ScriptedTool, TestClock, scripted},
};
use toolhub_testkit::soak;

use crate::{
    faulty_store::FaultyStore,
    intercepted_store::{CommitAction, InterceptedStore},
};

const MINUTE: Duration = Duration::from_secs(60);

fn fail() -> ScriptStep {
    ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "500"))
}

async fn hub_on(store: Arc<dyn Backend>, clock: TestClock, steps: Vec<ScriptStep>) -> (ToolHub, ScriptedTool) {
    let (tool, script) = scripted("flaky", steps);
    let hub = ToolHub::builder().store(store).clock(clock).tool(tool.read_only().no_retry()).build().await.unwrap();
    (hub, script)
}

async fn flaky_hub(steps: Vec<ScriptStep>) -> (ToolHub, ScriptedTool) {
    hub_on(Arc::new(Memory::new()), TestClock::new(), steps).await
}

async fn call(hub: &ToolHub, thread: &str) -> Outcome {
    hub.call("flaky", json!({})).thread(thread).await
}

async fn current_status(hub: &ToolHub) -> ToolStatus {
    hub.tool_status("flaky", StatusScope::Shared).await.unwrap().status
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_three_times_is_withheld_for_five_minutes_and_comes_back() {
    let (hub, script) = flaky_hub(vec![fail(), fail(), fail(), ScriptStep::Return(json!("well"))]).await;
    for _ in 0..3 {
        call(&hub, "t1").await.assert_error(ErrorKind::UpstreamError);
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Failed);
    let refused = call(&hub, "t2").await;
    refused.assert_effect(Effect::None).assert_error(ErrorKind::ToolFailedStatus);
    let error = refused.error.unwrap();
    assert_eq!(error.retry_after, Some(5 * MINUTE));
    assert!(error.operator.contains("failed 3 times in a row"), "{}", error.operator);
    assert_eq!(script.recorded_arguments().len(), 3, "a withheld tool is not called");

    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(current_status(&hub).await, ToolStatus::Available);
    assert_eq!(call(&hub, "t1").await.assert_success(), &json!("well"));
    let info = hub.tool_status("flaky", StatusScope::Shared).await.unwrap();
    assert_eq!((info.status, info.consecutive_failures), (ToolStatus::Available, 0));
    assert!(info.last_success_time > info.last_failure_time && info.last_failure_time.is_some());
}

#[tokio::test(start_paused = true)]
async fn without_any_traffic_a_listener_sees_the_tool_go_and_come_back_on_time() {
    let (hub, _) = flaky_hub(vec![fail(), fail(), fail()]).await;
    let mut events = hub.subscribe();
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let event = events.next().await;
        match &event.kind {
            EventKind::StatusChanged { old_status, new_status, .. } => {
                seen.push((event.timestamp.to_string(), format!("{old_status:?} {new_status:?}")));
            }
            EventKind::AvailabilityChanged { available, .. } => {
                seen.push((event.timestamp.to_string(), available.to_string()));
            }
            _ => {}
        }
        assert_eq!(
            event.thread.is_none(),
            matches!(
                event.kind,
                EventKind::StatusChanged { .. }
                    | EventKind::AvailabilityChanged { .. }
                    | EventKind::ToolRegistered { .. }
            ),
            "{event:?}"
        );
    }
    let at = |minute: &str, what: &str| (format!("2024-01-01T12:{minute}:00.000Z"), what.to_owned());
    let expected =
        [at("00", "Some(Available) Failed"), at("00", "false"), at("05", "Some(Failed) Available"), at("05", "true")];
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_doubles_the_wait_and_others_wait_for_its_answer() {
    let (hub, script) = flaky_hub(vec![fail(), fail(), fail(), ScriptStep::Wait(Duration::from_secs(1)), fail()]).await;
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    tokio::time::sleep(5 * MINUTE).await;
    let calls: Vec<_> = (0..10).map(|n| hub.call("flaky", json!({})).thread(format!("t{n}")).start()).collect();
    let mut probes = 0;
    for call in calls {
        match call.await.error_kind() {
            Some(ErrorKind::UpstreamError) => probes += 1,
            other => assert_eq!(other, Some(ErrorKind::ToolFailedStatus)),
        }
    }
    assert_eq!((probes, script.recorded_arguments().len()), (1, 4));
    let wait = call(&hub, "t1").await.error.unwrap().retry_after.unwrap();
    assert!((8 * MINUTE..=10 * MINUTE).contains(&wait), "{wait:?}");
}

/// A tool that always fails, counts its executions, and detects concurrent ones.
fn failing_tool(ran: &Arc<AtomicUsize>, crowded: &Arc<AtomicBool>) -> ToolBuilder {
    let (ran, crowded, busy) = (ran.clone(), crowded.clone(), Arc::new(AtomicBool::new(false)));
    let patient = move |_: NoArguments| {
        let (ran, crowded, busy) = (ran.clone(), crowded.clone(), busy.clone());
        async move {
            ran.fetch_add(1, Ordering::AcqRel);
            crowded.fetch_or(busy.swap(true, Ordering::AcqRel), Ordering::AcqRel);
            tokio::task::yield_now().await;
            busy.store(false, Ordering::Release);
            Err::<(), _>(ToolError::with_kind(ErrorKind::UpstreamError, "500"))
        }
    };
    tool("patient", patient).read_only().no_retry()
}

#[tokio::test(start_paused = true)]
async fn of_five_hundred_callers_at_the_end_of_a_wait_exactly_one_probes() {
    let rounds = soak(20, 200);
    let (ran, crowded) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let settings =
        StatusSettings { failure_duration: MINUTE, max_failure_duration: MINUTE, ..StatusSettings::default() };
    let (store, clock): (Arc<dyn Backend>, _) = (Arc::new(Memory::new()), TestClock::new());
    let hub = async || {
        let builder = ToolHub::builder().store(store.clone()).clock(clock.clone()).status(settings.clone());
        builder.tool(failing_tool(&ran, &crowded)).build().await.unwrap()
    };
    let (one, two) = (hub().await, hub().await);
    for _ in 0..3 {
        one.call("patient", json!({})).await.assert_error(ErrorKind::UpstreamError);
    }
    for round in 1..=rounds {
        tokio::time::sleep(MINUTE).await;
        let calls: Vec<_> =
            (0..250).flat_map(|_| [&one, &two]).map(|hub| hub.call("patient", json!({})).start()).collect();
        let mut probes = 0;
        for call in calls {
            match call.await.error_kind() {
                Some(ErrorKind::UpstreamError) => probes += 1,
                other => assert_eq!(other, Some(ErrorKind::ToolFailedStatus)),
            }
        }
        assert_eq!((probes, ran.load(Ordering::Acquire)), (1, 3 + round), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_several_threads_a_probe_is_always_alone() {
    let (ran, crowded) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    // No wait at all: as soon as one probe has failed, the next call may probe.
    let settings = StatusSettings {
        failure_duration: Duration::ZERO,
        max_failure_duration: Duration::ZERO,
        ..StatusSettings::default()
    };
    let hub = ToolHub::builder().status(settings).tool(failing_tool(&ran, &crowded)).build().await.unwrap();
    for _ in 0..3 {
        hub.call("patient", json!({})).await.assert_error(ErrorKind::UpstreamError);
    }
    let calls: Vec<_> = (0..500).map(|_| hub.call("patient", json!({})).start()).collect();
    for call in calls {
        call.await;
    }
    assert!(ran.load(Ordering::Acquire) > 3);
    assert!(!crowded.load(Ordering::Acquire), "two probes ran concurrently");
}

#[tokio::test(start_paused = true)]
async fn refusals_of_any_sort_never_speak_against_a_tool() {
    let no = || ScriptStep::Fail(ToolError::refused("no"));
    let uncounted = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "429").uncounted());
    let (hub, script) = flaky_hub(vec![no(), no(), no(), no(), uncounted(), uncounted(), uncounted()]).await;
    for _ in 0..7 {
        call(&hub, "t1").await;
        hub.call("flaky", json!("nonsense")).thread("t1").await.assert_error(ErrorKind::ArgumentsInvalid);
    }
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let info = hub.tool_status("flaky", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert_eq!((info.status, info.consecutive_failures), (ToolStatus::Available, 0));
    assert_eq!(script.recorded_arguments().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_success_in_between_begins_the_count_anew() {
    let (hub, _) = flaky_hub(vec![fail(), fail(), ScriptStep::Return(json!(1)), fail(), fail()]).await;
    for _ in 0..5 {
        call(&hub, "t1").await;
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Available);
    assert_eq!(hub.tool_status("flaky", StatusScope::Shared).await.unwrap().consecutive_failures, 2);
}

#[tokio::test(start_paused = true)]
async fn one_threads_trouble_is_its_own_until_two_threads_have_it() {
    let own = || ScriptStep::Fail(ToolError::new("my fault"));
    let (hub, _) = flaky_hub(vec![own(), own(), own()]).await;
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    call(&hub, "t1").await.assert_error(ErrorKind::ToolFailedStatus);
    call(&hub, "t2").await.assert_success();
    assert_eq!(current_status(&hub).await, ToolStatus::Available);
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let info = hub.tool_status("flaky", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert_eq!(info.status, ToolStatus::Failed);

    let slow = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::Timeout, "slow"));
    let (hub, _) = flaky_hub((0..7).map(|_| slow()).collect()).await;
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Available, "one slow thread does not affect the others");
    for thread in ["t2", "t3", "t4"] {
        call(&hub, thread).await;
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn an_operators_override_holds_whatever_the_tool_does() {
    let (hub, script) = flaky_hub(vec![]).await;
    let set = |status, reason: Option<&str>, until| {
        hub.set_tool_status("flaky", status, reason.map(String::from), until, StatusScope::Shared)
    };
    let info = set(ToolStatus::Maintenance, Some("key rotation"), None).await.unwrap();
    assert_eq!(info.status, ToolStatus::Maintenance);
    assert!(info.reason.contains("key rotation"), "{}", info.reason);
    call(&hub, "t1").await.assert_error(ErrorKind::ToolMaintenance);
    hub.report_result("flaky", StatusScope::Shared, Ok(())).await.unwrap();
    assert_eq!(current_status(&hub).await, ToolStatus::Maintenance, "a success clears no override");
    assert!(script.recorded_arguments().is_empty());
    assert_eq!(set(ToolStatus::Available, None, None).await.unwrap().status, ToolStatus::Available);
    call(&hub, "t1").await.assert_success();

    let until = "2024-01-01T12:30:00Z".parse().unwrap();
    set(ToolStatus::Unavailable, None, Some(until)).await.unwrap();
    call(&hub, "t1").await.assert_error(ErrorKind::ToolUnavailable);
    tokio::time::sleep(30 * MINUTE).await;
    call(&hub, "t1").await.assert_success();

    set(ToolStatus::Failed, Some("I know better"), None).await.unwrap();
    call(&hub, "t1").await.assert_error(ErrorKind::ToolFailedStatus);
    hub.reset_tool_status("flaky", StatusScope::Shared).await.unwrap();
    call(&hub, "t1").await.assert_success();
    let unknown = hub.set_tool_status("flacky", ToolStatus::Failed, None, None, StatusScope::Shared).await.unwrap_err();
    assert_eq!((unknown.kind, unknown.suggestions()), (ErrorKind::ToolNotFound, &["flaky".to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn a_threads_reset_lets_a_shared_breaker_be_tried_but_lifts_no_shared_override() {
    let (hub, _) = flaky_hub(vec![fail(), fail(), fail()]).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    call(&hub, "t1").await.assert_error(ErrorKind::ToolFailedStatus);
    hub.reset_tool_status("flaky", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    call(&hub, "t1").await.assert_success();
    hub.set_tool_status("flaky", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    let info = hub.reset_tool_status("flaky", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert_eq!(info.status, ToolStatus::Maintenance);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_until_when_the_tool_is_withheld() {
    let (hub, _) = flaky_hub(vec![fail(), fail(), fail()]).await;
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    let refused = call(&hub, "t1").await.error.unwrap();
    assert_eq!(refused.operator, "`flaky` is withheld until 2024-01-01T12:05:00.000Z: failed 3 times in a row");
}

#[tokio::test(start_paused = true)]
async fn failures_reported_from_elsewhere_count_the_same() {
    let (hub, _) = flaky_hub(vec![]).await;
    let mut recorder = EventRecorder::new(&hub);
    for _ in 0..3 {
        let failed = Err(ToolError::with_kind(ErrorKind::UpstreamUnreachable, "no route"));
        hub.report_result("flaky", StatusScope::Shared, failed).await.unwrap();
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Failed);
    let names = recorder.names();
    assert_eq!(names.iter().filter(|name| **name == "tool.failed").count(), 3);
    assert_eq!(names.iter().filter(|name| **name == "tool.status.changed").count(), 1, "only on change");
}

#[tokio::test(start_paused = true)]
async fn what_one_hub_learns_the_other_knows_and_a_restart_forgets_nothing() {
    let (store, clock): (Arc<dyn Backend>, _) = (Arc::new(Memory::new()), TestClock::new());
    let (one, _) = hub_on(store.clone(), clock.clone(), vec![fail(), fail(), fail()]).await;
    let (two, script) = hub_on(store.clone(), clock.clone(), vec![]).await;
    for _ in 0..3 {
        call(&one, "t1").await;
    }
    tokio::task::yield_now().await;
    call(&two, "t9").await.assert_error(ErrorKind::ToolFailedStatus);
    drop((one, two));
    let (rebound, _) = hub_on(store, clock, vec![]).await;
    call(&rebound, "t1").await.assert_error(ErrorKind::ToolFailedStatus);
    assert!(script.recorded_arguments().is_empty());
    tokio::time::sleep(5 * MINUTE).await;
    call(&rebound, "t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_never_reached_the_tool_gives_its_permit_back() {
    let (hub, script) = flaky_hub(vec![fail(), fail(), fail(), ScriptStep::Hang]).await;
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    tokio::time::sleep(5 * MINUTE).await;
    let probe = hub.call("flaky", json!({})).thread("t1").start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    probe.cancel();
    probe.await.assert_error(ErrorKind::Cancelled);
    tokio::time::sleep(Duration::from_millis(1)).await;
    call(&hub, "t2").await.assert_success();
    assert_eq!(script.recorded_arguments().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn switched_off_nothing_is_counted_but_an_operators_override_still_holds() {
    let (tool, _) = scripted("flaky", (0..5).map(|_| fail()));
    let settings = StatusSettings { enabled: false, ..StatusSettings::default() };
    let hub = ToolHub::builder().status(settings).tool(tool.read_only().no_retry()).build().await.unwrap();
    for _ in 0..5 {
        call(&hub, "t1").await.assert_error(ErrorKind::UpstreamError);
    }
    hub.set_tool_status("flaky", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    call(&hub, "t1").await.assert_error(ErrorKind::ToolMaintenance);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_does_not_keep_a_tool_away() {
    for hours in [-1, 1, -24 * 365, 24 * 365] {
        let clock = TestClock::new();
        let (hub, _) = hub_on(Arc::new(Memory::new()), clock.clone(), vec![fail(), fail(), fail()]).await;
        for _ in 0..3 {
            call(&hub, "t1").await;
        }
        clock.jump(hours * 3_600_000);
        tokio::time::sleep(5 * MINUTE + Duration::from_secs(5)).await;
        call(&hub, "t1").await.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn a_thread_may_use_what_is_not_withheld_and_has_nothing_to_wait_for() {
    let (hub, tenant, thread) = hub_with_broken_tool().await;
    let names = async || -> Vec<String> {
        hub.available_tools(StatusScope::Thread(&tenant, &thread))
            .await
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(names().await, ["base"]);
    hub.call("base", json!({})).thread("t1").await.assert_success();
    assert_eq!(names().await, ["base", "next"]);
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(names().await, ["base", "broken", "next"]);
}

async fn hub_with_broken_tool() -> (ToolHub, Tenant, ThreadId) {
    let (broken, _) = scripted("broken", (0..3).map(|_| fail()));
    let hub = ToolHub::builder()
        .clock(TestClock::new())
        .tools([broken, scripted("base", []).0, scripted("next", []).0.after("base")])
        .build()
        .await
        .unwrap();
    for _ in 0..3 {
        hub.call("broken", json!({})).await;
    }
    (hub, Tenant::default(), ThreadId::new("t1").unwrap())
}

#[tokio::test(start_paused = true)]
async fn one_answer_explains_why_a_tool_is_not_offered_and_what_would_change_that() {
    let (hub, tenant, thread) = hub_with_broken_tool().await;
    tokio::time::sleep(MINUTE).await;
    let broken = hub.explain("broken", &tenant, &thread).await.unwrap();
    assert_eq!((broken.offered, broken.status, broken.changes_in), (false, ToolStatus::Failed, Some(4 * MINUTE)));
    assert_eq!((broken.consecutive_failures, broken.failure_threshold), (3, 3));
    let text = broken.text(Language::English);
    let expected = "`broken` is not offered: failed 3 times in a row.\nIt can be called again in 240s.\n\
                    Last failure: 2024-01-01T12:00:00.000Z, upstream_error: 500\n\
                    Rules: allow by default.\nLimits: timeout 30s, up to 3 attempts if safe to repeat.";
    assert_eq!(text, expected);
    let chinese = broken.text(Language::Chinese);
    assert!(chinese.starts_with("`broken` 暂不可用："), "{chinese}");
    assert!(chinese.ends_with("规则：其余情况允许\n限制：超时 30s，可安全重复时最多尝试 3 次"), "{chinese}");

    let next = hub.explain("next", &tenant, &thread).await.unwrap();
    assert!(!next.offered);
    let text = next.text(Language::English);
    assert!(text.starts_with("`next` is not offered: waiting for base.\nCall base successfully first.\n"), "{text}");
    assert_eq!(serde_json::to_value(&next).unwrap()["missing"], json!(["base"]));
    hub.call("base", json!({})).thread("t1").await.assert_success();
    assert!(hub.explain("next", &tenant, &thread).await.unwrap().offered);
    assert_eq!(hub.explain("nxt", &tenant, &thread).await.unwrap_err().suggestions(), ["next"]);
}

#[tokio::test(start_paused = true)]
async fn one_line_tells_of_all_tools_in_two_languages() {
    let (hub, tenant, thread) = hub_with_broken_tool().await;
    assert_eq!(
        hub.status_summary(&tenant, &thread, &Language::English.into()).await.unwrap(),
        "tools 3 (available 1, failed 1, roots 2): [base] [failed: broken] [waiting: next ← base]"
    );
    assert_eq!(
        hub.status_summary(&tenant, &thread, &Language::Chinese.into()).await.unwrap(),
        "🔧 可用工具 (3个) (可用: 1, 失败: 1, 根节点: 2): [base] [失败工具: broken] [等待依赖: next ← base]"
    );
}

/// The `tool.rebind.required` events so far: time, added, removed.
fn rebind_events(recorder: &mut EventRecorder) -> Vec<(String, Vec<String>, Vec<String>)> {
    let names = |tools: &[toolhub::ToolName]| tools.iter().map(ToString::to_string).collect();
    let rebinds = recorder.events().iter().filter_map(|event| match &event.kind {
        EventKind::RebindRequired { added, removed, .. } => {
            Some((event.timestamp.to_string()[11..19].to_owned(), names(added), names(removed)))
        }
        _ => None,
    });
    rebinds.collect()
}

#[tokio::test(start_paused = true)]
async fn an_offer_is_pinned_and_its_holder_hears_of_additions_at_once_and_of_removals_that_last() {
    let hub = ToolHub::builder()
        .clock(TestClock::new())
        .tools([scripted("base", []).0, scripted("other", []).0, scripted("next", []).0.after("base")])
        .build()
        .await
        .unwrap();
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let mut recorder = EventRecorder::new(&hub);
    let offer = hub.offer(&tenant, &thread).await.unwrap();
    let names = |offer: &toolhub::Offer| offer.names().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&offer), ["base", "other"]);
    assert_eq!(offer.export(Format::OpenAi).len(), 2);
    assert!(!hub.should_rebind(&offer).await.unwrap());

    hub.call("base", json!({})).thread("t1").from_offer(offer.tools()).await.assert_success();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(hub.should_rebind(&offer).await.unwrap());
    let rebind = async |tool| hub.tool_status(tool, StatusScope::Thread(&tenant, &thread)).await.unwrap().should_rebind;
    assert_eq!((rebind("next").await, rebind("base").await), (true, false));
    assert_eq!(rebind_events(&mut recorder), [("12:00:00".to_owned(), vec!["next".to_owned()], vec![])]);
    hub.call("next", json!({})).thread("t1").from_offer(offer.tools()).await.assert_error(ErrorKind::ToolNotFound);

    let set = |status| hub.set_tool_status("other", status, None, None, StatusScope::Shared);
    set(ToolStatus::Maintenance).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    set(ToolStatus::Available).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rebind_events(&mut recorder).len(), 1, "a short absence is not reported");
    set(ToolStatus::Maintenance).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let rebinds = rebind_events(&mut recorder);
    assert_eq!(rebinds[1..], [("12:01:16".to_owned(), vec!["next".to_owned()], vec!["other".to_owned()])]);

    let rebound = hub.offer(&tenant, &thread).await.unwrap();
    assert_eq!(names(&rebound), ["base", "next"]);
    assert!(!hub.should_rebind(&rebound).await.unwrap());
    drop((offer, rebound));
    set(ToolStatus::Available).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rebind_events(&mut recorder).len(), 2, "there are no offers any more");
}

#[tokio::test(start_paused = true)]
async fn a_threads_statuses_and_evidence_are_saved_as_one_text_and_restored() {
    let own = || ScriptStep::Fail(ToolError::new("my fault"));
    let tools = |steps: Vec<ScriptStep>| {
        [
            scripted("sick", steps).0,
            scripted("base", []).0,
            scripted("next", []).0.after("base"),
            scripted("held", []).0,
        ]
    };
    let hub = async |steps, settings: StatusSettings| {
        ToolHub::builder().clock(TestClock::new()).status(settings).tools(tools(steps)).build().await.unwrap()
    };
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let first = hub(vec![own(), own(), own()], StatusSettings::default()).await;
    let offer = first.offer(&tenant, &thread).await.unwrap();
    for tool in ["sick", "sick", "sick", "base"] {
        first.call(tool, json!({})).thread("t1").await;
    }
    let view = StatusScope::Thread(&tenant, &thread);
    first.set_tool_status("held", ToolStatus::Maintenance, Some("repairs".into()), None, view).await.unwrap();
    let text = first.serialize_tool_states(&tenant, &thread).await.unwrap();
    let saved: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(saved["states"].as_array().unwrap().len(), 4);
    let sick = saved["states"].as_array().unwrap().iter().find(|state| state["toolName"] == "sick").unwrap();
    assert_eq!(
        (&sick["status"], &sick["consecutiveFailures"], &sick["shouldRebind"]),
        (&json!("failed"), &json!(3), &json!(true))
    );
    assert_eq!(sick["reason"], "failed 3 times in a row");
    assert_eq!(saved["config"]["failureThreshold"], 3);
    assert_eq!(saved["timestamp"], "2024-01-01T12:00:00.000Z");
    drop(offer);

    let second = hub(vec![], StatusSettings { failure_threshold: 9, ..StatusSettings::default() }).await;
    let restored = second.deserialize_tool_states(&tenant, &thread, &text).await.unwrap();
    assert_eq!((restored.unknown.len(), restored.warning), (0, None));
    second.call("sick", json!({})).thread("t1").await.assert_error(ErrorKind::ToolFailedStatus);
    second.call("held", json!({})).thread("t1").await.assert_error(ErrorKind::ToolMaintenance);
    second.call("next", json!({})).thread("t1").await.assert_success();
    second.call("sick", json!({})).thread("t2").await.assert_success();
    assert_eq!(
        second.explain("sick", &tenant, &thread).await.unwrap().failure_threshold,
        9,
        "the running config stays"
    );
    tokio::time::sleep(5 * MINUTE).await;
    second.call("sick", json!({})).thread("t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_damaged_text_changes_nothing_and_is_kept_and_an_older_one_is_understood() {
    let (hub, _) = flaky_hub(vec![]).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    for text in ["", "{", "[]", r#"{"states": 7}"#, r#"{"states":[{"toolName":"no name","status":"failed"}]}"#] {
        let restored = hub.deserialize_tool_states(&tenant, &thread, text).await.unwrap();
        assert!(restored.warning.is_some() && restored.tools.is_empty(), "{text}");
        let quarantined = hub.artifact(&tenant, &restored.kept.unwrap()).await.unwrap().unwrap();
        assert_eq!(quarantined.bytes, text.as_bytes());
    }
    let restored = hub.deserialize_tool_states(&tenant, &thread, &"ü".repeat(1_000_001)).await.unwrap();
    let quarantined = hub.artifact(&tenant, &restored.kept.unwrap()).await.unwrap().unwrap();
    assert_eq!(quarantined.bytes, "ü".repeat(32 * 1024).into_bytes(), "of a long text the beginning");
    call(&hub, "t1").await.assert_success();

    let older = json!({
        "states": [
            {"toolName": "flaky", "status": "failed", "reason": "broke", "lastUpdated": "2024-01-01T11:58:00.000Z",
             "consecutiveFailures": 3, "shouldRebind": true},
            {"toolName": "stranger", "status": "available", "consecutiveFailures": 0},
        ],
        "config": {"failureThreshold": 1},
        "timestamp": "2024-01-01T11:59:00.000Z",
    });
    let restored = hub.deserialize_tool_states(&tenant, &thread, &older.to_string()).await.unwrap();
    assert_eq!(restored.unknown.iter().map(ToString::to_string).collect::<Vec<_>>(), ["stranger"]);
    let refused = call(&hub, "t1").await;
    refused.assert_error(ErrorKind::ToolFailedStatus);
    assert_eq!(refused.error.unwrap().retry_after, Some(3 * MINUTE), "the remaining wait continues");
}

#[tokio::test(start_paused = true)]
async fn a_shared_change_is_told_once_however_many_threads_have_records() {
    let own = |_| ScriptStep::Fail(ToolError::new("my fault"));
    let (hub, _) = flaky_hub((0..2_000).map(own).collect()).await;
    for n in 0..2_000 {
        call(&hub, &format!("t{n}")).await.assert_error(ErrorKind::ToolError);
    }
    let mut recorder = EventRecorder::new(&hub);
    hub.set_tool_status("flaky", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(recorder.names(), ["tool.status.changed", "tool.availability.changed"]);
    assert!(recorder.events().iter().all(|event| event.thread.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_another_hub_could_not_read_at_first_is_learnt_later() {
    let (store, clock) = (Arc::new(FaultyStore::default()), TestClock::new());
    let (one, _) = hub_on(store.clone(), clock.clone(), vec![fail(), fail(), fail()]).await;
    let (two, _) = hub_on(store.clone(), clock, vec![]).await;
    for _ in 0..3 {
        call(&one, "t1").await;
    }
    tokio::time::sleep(5 * MINUTE).await;
    call(&one, "t1").await.assert_success();
    // Hub two could not see that: the store was unavailable when it read.
    store.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(Duration::from_secs(5)).await;
    store.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(Duration::from_secs(5)).await;
    for _ in 0..5 {
        call(&two, "t2").await.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_at_any_await_point_of_a_probe_leaves_the_permit_to_the_next() {
    for (polls, writes_late) in (1..25).flat_map(|polls| [(polls, false), (polls, true)]) {
        let (tool, _) = scripted("flaky", [fail(), fail(), fail(), ScriptStep::Wait(Duration::from_millis(1))]);
        let store = FaultyStore::default();
        store.writes_late.store(writes_late, Ordering::Release);
        let builder = ToolHub::builder().store(store).clock(TestClock::new());
        let hub = builder.tool(tool.read_only().no_retry()).build().await.unwrap();
        for _ in 0..3 {
            hub.call("flaky", json!({})).await;
        }
        tokio::time::sleep(5 * MINUTE).await;
        let mut probe = std::future::IntoFuture::into_future(hub.call("flaky", json!({})));
        for _ in 0..polls {
            if futures_util::poll!(&mut probe).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
            if writes_late {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        drop(probe);
        tokio::time::sleep(Duration::from_secs(1)).await;
        hub.call("flaky", json!({})).await.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_reported_from_elsewhere_never_brings_a_tool_back() {
    for kind in [ErrorKind::Timeout, ErrorKind::ToolError, ErrorKind::Crashed] {
        let (hub, _) = flaky_hub(vec![fail(), fail(), fail()]).await;
        for _ in 0..3 {
            call(&hub, "t1").await;
        }
        tokio::time::sleep(5 * MINUTE).await;
        let (tenant, thread) = (Tenant::default(), ThreadId::new("t9").unwrap());
        hub.report_result("flaky", StatusScope::Thread(&tenant, &thread), Err(ToolError::with_kind(kind, "no")))
            .await
            .unwrap();
        assert_eq!(current_status(&hub).await, ToolStatus::Failed, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_of_failures_weighs_every_call_and_a_row_ends_with_any_success() {
    let window = FailureWindow { failure_rate: 0.5, window: Duration::from_secs(3_600), minimum_calls: 10 };
    let settings = StatusSettings { failure_threshold: 99, failure_window: Some(window), ..StatusSettings::default() };
    let steps = (0..100).map(|_| ScriptStep::Return(json!(1))).chain((0..6).map(|_| fail()));
    let (tool, _) = scripted("flaky", steps);
    let hub = ToolHub::builder()
        .clock(TestClock::new())
        .status(settings)
        .tool(tool.read_only().no_retry())
        .build()
        .await
        .unwrap();
    for _ in 0..106 {
        call(&hub, "t1").await;
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Available, "6 of 106 is below the failure rate");
}

#[tokio::test(start_paused = true)]
async fn a_restart_tells_nothing_that_was_told_and_timers_do_not_pile_up() {
    let (store, clock): (Arc<dyn Backend>, _) = (Arc::new(Memory::new()), TestClock::new());
    let (hub, _) = hub_on(store.clone(), clock.clone(), vec![]).await;
    let until = "2024-01-02T00:00:00Z".parse().unwrap();
    hub.set_tool_status("flaky", ToolStatus::Maintenance, None, Some(until), StatusScope::Shared).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..100 {
        hub.report_result("flaky", StatusScope::Shared, Ok(())).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(tasks() <= before + 1, "{} tasks more", tasks() - before);
    drop(hub);
    let builder = ToolHub::builder().store(store).clock(clock).tool(scripted("flaky", []).0);
    let mut recorder = EventRecorder::from(builder.subscribe());
    let _again = builder.build().await.unwrap();
    assert_eq!(recorder.names(), ["tool.registered", "hub.initialized"]);
    tokio::time::sleep(Duration::from_secs(13 * 3_600)).await;
    assert_eq!(
        recorder.names()[2..],
        ["tool.status.changed", "tool.availability.changed"],
        "but later changes are reported"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_thread_reports_is_told_to_its_tenant_alone() {
    let (hub, _) = flaky_hub(vec![]).await;
    let mut recorder = EventRecorder::new(&hub);
    let (tenant, thread) = (Tenant::new("acme").unwrap(), ThreadId::new("t1").unwrap());
    let failed = Err(ToolError::new("customer 42 has not paid"));
    hub.report_result("flaky", StatusScope::Thread(&tenant, &thread), failed).await.unwrap();
    assert!(recorder.events().iter().all(|event| event.tenant.as_ref() == Some(&tenant)));
    hub.set_tool_status("flaky", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    let mut later = EventRecorder::new(&hub);
    hub.reset_tool_status("flaky", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    assert!(later.names().is_empty(), "a thread's reset does not make it available: {:?}", later.names());
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_fires_early_by_the_clock_looks_again() {
    let clock = TestClock::new();
    let (hub, _) = hub_on(Arc::new(Memory::new()), clock.clone(), vec![fail(), fail(), fail()]).await;
    for _ in 0..3 {
        call(&hub, "t1").await;
    }
    clock.jump(-2_000);
    let mut events = hub.subscribe();
    let recovered_at = loop {
        let event = events.next().await;
        if let EventKind::StatusChanged { new_status: ToolStatus::Available, .. } = event.kind {
            break event.timestamp.to_string();
        }
    };
    assert_eq!(recovered_at, "2024-01-01T12:05:00.000Z");
}

#[tokio::test(start_paused = true)]
async fn an_older_text_does_not_lock_a_tool_that_only_waited_for_another() {
    let (hub, tenant, thread) = hub_with_broken_tool().await;
    let state =
        |tool: &str| json!({"toolName": tool, "status": "unavailable", "reason": "waiting", "consecutiveFailures": 0});
    let older =
        json!({"states": [state("next"), state("base")], "config": {}, "timestamp": "2024-01-01T11:59:00.000Z"});
    hub.deserialize_tool_states(&tenant, &thread, &older.to_string()).await.unwrap();
    hub.call("base", json!({})).thread("t1").await.assert_error(ErrorKind::ToolUnavailable);
    hub.reset_tool_status("base", StatusScope::Thread(&tenant, &thread)).await.unwrap();
    hub.call("base", json!({})).thread("t1").await.assert_success();
    hub.call("next", json!({})).thread("t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn callers_in_a_hurry_do_not_speak_against_a_tool_nor_bring_it_back() {
    let (hub, script) = flaky_hub(vec![ScriptStep::Hang; 8]).await;
    for thread in ["t1", "t2", "t3", "t4", "t5"] {
        let hurried = hub.call("flaky", json!({})).thread(thread).timeout(Duration::from_millis(1)).await;
        hurried.assert_error(ErrorKind::Timeout);
        assert!(!hurried.error.unwrap().counts);
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Available);
    hub.set_tool_status("flaky", ToolStatus::Failed, None, None, StatusScope::Shared).await.unwrap();
    tokio::time::sleep(5 * MINUTE).await;
    let probe = hub.call("flaky", json!({})).thread("t1").timeout(Duration::from_millis(1)).await;
    probe.assert_error(ErrorKind::Timeout);
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    assert!(hub.explain("flaky", &tenant, &thread).await.unwrap().probation, "no probe has succeeded yet");
    // The operator's `until` still applies.
    call(&hub, "t1").await.assert_error(ErrorKind::Timeout);
    call(&hub, "t1").await.assert_error(ErrorKind::ToolFailedStatus);
    assert_eq!(script.recorded_arguments().len(), 7, "after the failed probe the tool is withheld");
}

#[tokio::test(start_paused = true)]
async fn a_disabled_tool_is_never_offered_and_refuses_until_it_is_enabled() {
    let store = Arc::new(toolhub::backend::Memory::new());
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let build = async |why: Option<&str>| {
        let (tool, _) = scripted("it", []);
        let tool = match why {
            None => tool.read_only(),
            Some(why) => tool.read_only().disabled(why),
        };
        ToolHub::builder().store(store.clone()).tool(tool).build().await.unwrap()
    };
    let check = async |hub: &ToolHub, reason: Option<&str>| {
        let outcome = hub.call("it", json!({})).thread("t1").await;
        assert_eq!(outcome.error_kind(), reason.map(|_| ErrorKind::ToolUnavailable));
        assert_eq!(
            hub.available_tools(StatusScope::Thread(&tenant, &thread)).await.unwrap().len(),
            usize::from(reason.is_none())
        );
        let info = hub.tool_status("it", StatusScope::Shared).await.unwrap();
        assert_eq!(info.status == ToolStatus::Unavailable, reason.is_some());
        if let Some(reason) = reason {
            assert_eq!(info.reason, reason);
            assert!(outcome.error.unwrap().operator.contains(reason));
        }
    };
    let hub = build(None).await;
    check(&hub, None).await;
    let mut events = EventRecorder::new(&hub);
    hub.disable_tool("it", Some("too dear".into())).await.unwrap();
    check(&hub, Some("disabled: too dear")).await;
    assert!(events.names().contains(&"tool.status.changed"));
    // Neither a reset nor an operator's override changes `enabled`, and it survives the hub.
    hub.reset_tool_status("it", StatusScope::Shared).await.unwrap();
    let info = hub.set_tool_status("it", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    assert_eq!(info.status, ToolStatus::Maintenance);
    hub.set_tool_status("it", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    drop(hub);
    let hub = build(None).await;
    check(&hub, Some("disabled: too dear")).await;
    hub.enable_tool("it").await.unwrap();
    check(&hub, None).await;

    let hub = build(Some("not in this house")).await;
    check(&hub, Some("disabled: not in this house")).await;
    let info = hub.enable_tool("it").await.unwrap();
    assert_eq!(info.status, ToolStatus::Unavailable, "the operator's override still holds");
    let mut events = EventRecorder::new(&hub);
    hub.apply(toolhub::HubChange::tools_only().put(scripted("it", []).0.read_only())).await.unwrap();
    check(&hub, None).await;
    assert!(events.names().contains(&"tool.status.changed"));
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_says_and_takes_back_survives_the_loss_of_power() {
    let (store, safe) = (Arc::new(InterceptedStore::default()), Arc::new(Mutex::new(Vec::new())));
    let seen = safe.clone();
    store.before_commits(move |batch| {
        let statuses = batch.writes.iter().filter(|write| write.table == Table::Statuses);
        seen.lock().unwrap().extend(statuses.map(|write| write.durability));
        Box::pin(async { CommitAction::Apply })
    });
    let hub = ToolHub::builder().store(store).tool(scripted("it", []).0).build().await.unwrap();
    hub.disable_tool("it", None).await.unwrap();
    hub.enable_tool("it").await.unwrap();
    for status in [ToolStatus::Maintenance, ToolStatus::Available] {
        hub.set_tool_status("it", status, None, None, StatusScope::Shared).await.unwrap();
    }
    assert_eq!(*safe.lock().unwrap(), [Durability::PowerSafe; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_while_connecting_is_everybodys_at_once() {
    let late = |connecting: bool| {
        let error = ToolError::with_kind(ErrorKind::Timeout, "it is slow");
        ScriptStep::Fail(if connecting { error.connecting() } else { error })
    };
    for (connecting, expected) in [(false, ToolStatus::Available), (true, ToolStatus::Failed)] {
        let (hub, _) = flaky_hub((0..3).map(|_| late(connecting)).collect()).await;
        for _ in 0..3 {
            call(&hub, "t1").await.assert_error(ErrorKind::Timeout);
        }
        assert_eq!(current_status(&hub).await, expected, "connecting: {connecting}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_the_status_watch_notices_what_changed_meanwhile() {
    let store = Arc::new(FaultyStore::default());
    let (hub, _) = hub_on(store.clone(), TestClock::new(), Vec::new()).await;
    let (other_node, _) = hub_on(store.memory.clone(), TestClock::new(), Vec::new()).await;
    // Shorter than the delay of a restart.
    let settle = || tokio::time::sleep(Duration::from_millis(100));
    *store.panics_in_watch.lock().unwrap() = Some(Table::Statuses);
    other_node.disable_tool("flaky", None).await.unwrap();
    settle().await;
    assert_eq!(*store.panics_in_watch.lock().unwrap(), None, "the watch has panicked");
    other_node.enable_tool("flaky").await.unwrap();
    other_node.disable_tool("flaky", Some("meanwhile".into())).await.unwrap();
    settle().await;
    call(&hub, "t").await.assert_success();

    tokio::time::sleep(Duration::from_secs(1)).await;
    call(&hub, "t").await.assert_error(ErrorKind::ToolUnavailable);
    other_node.enable_tool("flaky").await.unwrap();
    settle().await;
    call(&hub, "t").await.assert_success();
}
