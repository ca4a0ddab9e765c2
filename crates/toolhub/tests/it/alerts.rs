//! Alerts: what targets are told, and that they are told it.

mod conditions;
mod delivery;
mod nodes;
mod receiver;
mod sources;
mod texts;

use std::time::Duration;

use receiver::Receiver;
use toolhub::{
    StatusScope,
    alerts::{AlertPhase, AlertTarget, Condition, ErrorRate},
    backend::Memory,
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{ScriptStep, TestClock, scripted},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A hub with these tools on a store that survives it, and a target.
async fn hub(tools: &[&str], target: AlertTarget) -> (ToolHub, TestClock) {
    let clock = TestClock::new();
    let tools = tools.iter().map(|name| scripted(name, []).0);
    let builder = ToolHub::builder().clock(clock.clone()).store(Memory::new()).tools(tools).alert(target);
    (builder.build().await.unwrap(), clock)
}

async fn set(hub: &ToolHub, tool: &str, status: ToolStatus) {
    hub.set_tool_status(tool, status, Some("key rotation".into()), None, StatusScope::Shared).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_target_without_conditions_is_told_of_every_change_of_a_shared_status() {
    let receiver = Receiver::default();
    let (hub, _) = hub(&["pay", "weather"], AlertTarget::new("ops", receiver.clone())).await;
    hub.set_alert_links("https://toolhub.example/ui/");
    set(&hub, "pay", ToolStatus::Maintenance).await;
    tokio::time::sleep(5 * SECOND).await;
    set(&hub, "pay", ToolStatus::Unavailable).await;
    tokio::time::sleep(20 * MINUTE).await;
    set(&hub, "pay", ToolStatus::Available).await;
    tokio::time::sleep(20 * MINUTE).await;

    let messages = receiver.messages();
    let phases: Vec<_> = messages.iter().map(|message| message.phase).collect();
    assert_eq!(phases, [AlertPhase::Firing, AlertPhase::Changed, AlertPhase::Resolved]);
    let alert = &messages[0].alerts[0];
    assert_eq!(alert.tool.as_ref().map(toolhub::ToolName::as_str), Some("pay"));
    assert_eq!((alert.state.as_str(), alert.reason.as_str()), ("maintenance", "in maintenance: key rotation"));
    assert_eq!(alert.link.as_deref(), Some("https://toolhub.example/ui/tools/pay"));
    assert_eq!(messages[0].summary(), "tool `pay` is maintenance: in maintenance: key rotation");
    assert!(messages[0].advice().contains("last failed calls"));
    assert!(messages.iter().all(|message| message.alerts[0].id == alert.id), "one alert from begin to end");
    let ids: std::collections::HashSet<_> = messages.iter().map(|message| message.id.clone()).collect();
    assert_eq!(ids.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn more_than_twenty_of_a_kind_are_one_message_and_none_is_missing() {
    let names: Vec<String> = (0..100).map(|number| format!("tool{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let receiver = Receiver::default();
    let (hub, _) = hub(&names, AlertTarget::new("ops", receiver.clone())).await;
    for name in &names {
        set(&hub, name, ToolStatus::Maintenance).await;
    }
    tokio::time::sleep(2 * MINUTE).await;
    let messages = receiver.messages();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].alerts.len(), 100);
    assert!(messages[0].summary().starts_with("100 tools: is maintenance"), "{}", messages[0].summary());
}

#[tokio::test(start_paused = true)]
async fn fifty_flaps_are_at_most_three_messages() {
    let receiver = Receiver::default();
    let (hub, _) = hub(&["pay"], AlertTarget::new("ops", receiver.clone())).await;
    for _ in 0..50 {
        set(&hub, "pay", ToolStatus::Maintenance).await;
        tokio::time::sleep(30 * SECOND).await;
        set(&hub, "pay", ToolStatus::Available).await;
        tokio::time::sleep(30 * SECOND).await;
    }
    tokio::time::sleep(120 * MINUTE).await;
    let phases: Vec<_> = receiver.messages().iter().map(|message| message.phase).collect();
    assert!(phases.len() <= 3 && phases.contains(&AlertPhase::Flapping), "{phases:?}");
}

#[tokio::test(start_paused = true)]
async fn a_target_is_told_only_of_its_tools() {
    let receiver = Receiver::default();
    let target = AlertTarget::new("ops", receiver.clone())
        .on([Condition::ToolWithheld])
        .tools([toolhub::Glob::new("pay*").unwrap()])
        .resolved(false);
    let (hub, _) = hub(&["pay", "weather"], target).await;
    for status in [ToolStatus::Maintenance, ToolStatus::Available] {
        set(&hub, "pay", status).await;
        set(&hub, "weather", status).await;
        tokio::time::sleep(MINUTE).await;
    }
    let messages = receiver.messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0].summary(), "tool `pay` is withheld from all threads: in maintenance: key rotation");
}

#[tokio::test(start_paused = true)]
async fn a_hub_without_targets_stores_nothing_and_new_targets_are_told_what_holds() {
    let (store, receiver) = (std::sync::Arc::new(Memory::new()), Receiver::default());
    let builder = ToolHub::builder().clock(TestClock::new()).store(store.clone()).tool(scripted("pay", []).0);
    let hub = builder.build().await.unwrap();
    set(&hub, "pay", ToolStatus::Maintenance).await;
    tokio::time::sleep(MINUTE).await;
    let scan = toolhub::backend::Scan::new(toolhub::backend::Table::Alerts, toolhub::backend::Scope::All);
    let page = toolhub::backend::Backend::scan(&store, scan, hub.now()).await.unwrap();
    assert!(page.rows.is_empty());
    hub.set_alert_targets(vec![AlertTarget::new("ops", receiver.clone())]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(receiver.messages().len(), 1);
    let targets = hub.alert_targets().await.unwrap();
    assert_eq!((targets[0].alerts.len(), targets[0].waiting), (1, 0));
    assert_eq!(targets[0].alerts[0].thing, "pay");
}

#[tokio::test(start_paused = true)]
async fn a_withheld_tool_is_back_when_a_call_succeeds_and_not_when_it_may_be_tried_again() {
    let receiver = Receiver::default();
    let fail = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "500"));
    let status = StatusSettings { failure_threshold: 1, failure_duration: 10 * SECOND, ..StatusSettings::default() };
    let builder = ToolHub::builder().clock(TestClock::new()).store(Memory::new()).status(status);
    let target = AlertTarget::new("ops", receiver.clone()).on([Condition::ToolWithheld]);
    let hub = builder.tool(scripted("pay", [fail()]).0).alert(target).build().await.unwrap();
    assert!(!hub.call("pay", json!({})).await.is_success());
    tokio::time::sleep(MINUTE).await;
    let phases = || receiver.messages().iter().map(|message| message.phase).collect::<Vec<_>>();
    assert_eq!(phases(), [AlertPhase::Firing], "it is on probation, and may be as broken as before");
    assert!(hub.call("pay", json!({})).await.is_success());
    tokio::time::sleep(MINUTE).await;
    assert_eq!(phases(), [AlertPhase::Firing, AlertPhase::Resolved]);

    // A further begin must last first, and is listed meanwhile.
    set(&hub, "pay", ToolStatus::Maintenance).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(phases().len(), 2);
    let targets = hub.alert_targets().await.unwrap();
    assert_eq!(targets[0].alerts.iter().map(|alert| alert.pending).collect::<Vec<_>>(), [true]);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(phases(), [AlertPhase::Firing, AlertPhase::Resolved, AlertPhase::Firing]);
    assert!(!hub.alert_targets().await.unwrap()[0].alerts[0].pending);
}

#[tokio::test(start_paused = true)]
async fn errors_are_reported_when_the_rate_stays_too_high_and_not_for_a_moment() {
    let receiver = Receiver::default();
    let fail = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::ToolError, "no such row").uncounted());
    let (tool, script) = scripted("pay", []);
    let target = AlertTarget::new("ops", receiver.clone())
        .on([Condition::ErrorsHigh])
        .hold(40 * SECOND)
        .error_rate(ErrorRate { rate: 0.5, window: 30 * SECOND, minimum: 5 });
    let builder = ToolHub::builder().clock(TestClock::new()).store(Memory::new());
    let hub = builder.tool(tool).alert(target).build().await.unwrap();
    tokio::time::sleep(MINUTE).await;
    let call = async |step: Option<ScriptStep>| {
        step.into_iter().for_each(|step| script.push_step(step));
        hub.call("pay", json!({})).await;
        tokio::time::sleep(SECOND).await;
    };
    for _ in 0..8 {
        call(Some(fail())).await;
    }
    for _ in 0..120 {
        call(None).await;
    }
    assert_eq!(receiver.messages(), []);
    for _ in 0..120 {
        call(Some(fail())).await;
    }
    let messages = receiver.messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    for _ in 0..120 {
        call(None).await;
    }
    assert_eq!(receiver.messages().last().map(|message| message.phase), Some(AlertPhase::Resolved));
}
