//! Conditions that begin and end: runs, queues, keys, and what the program around the hub reports.

use toolhub::{
    HubBuilder,
    alerts::{AlertPhase, AlertTarget, Condition},
    prelude::*,
    testing::{ScriptStep, scripted},
};
use toolhub_agent::AgentBuilder;

use super::{MINUTE, Memory, SECOND, TestClock, receiver::Receiver};
use crate::agents::{ScriptedModel, calls_reply};

fn builder(receiver: &Receiver, on: impl IntoIterator<Item = Condition>) -> HubBuilder {
    let target = AlertTarget::new("ops", receiver.clone()).on(on).hold(10 * SECOND);
    ToolHub::builder().clock(TestClock::new()).store(Memory::new()).alert(target)
}

/// The conditions and phases of the messages so far.
fn reported(receiver: &Receiver) -> Vec<(Condition, AlertPhase)> {
    receiver.messages().iter().map(|message| (message.condition.unwrap(), message.phase)).collect()
}

#[tokio::test(start_paused = true)]
async fn runs_that_fail_and_runs_that_reach_a_limit_are_different_conditions() {
    let receiver = Receiver::default();
    let hub = builder(&receiver, [Condition::RunFailed, Condition::RunBudget])
        .tool(scripted("look", []).0.read_only())
        .build()
        .await
        .unwrap();
    let failing = AgentBuilder::new(ScriptedModel::new([])).build(&hub).await.unwrap();
    assert!(failing.invoke("CANARY").await.unwrap().error.is_some());
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(reported(&receiver), [(Condition::RunFailed, AlertPhase::Happened)]);
    let endless = ScriptedModel::new([0, 1].map(|step| calls_reply([("look", json!({"step": step}))])));
    let endless = AgentBuilder::new(endless).max_steps(1).build(&hub).await.unwrap();
    assert_eq!(endless.invoke("CANARY").await.unwrap().error.unwrap().code.as_str(), "max_steps");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(reported(&receiver)[1..], [(Condition::RunBudget, AlertPhase::Happened)]);
    let messages = receiver.messages();
    assert!(messages[1].alerts[0].reason.contains("`max_steps`"), "{messages:?}");
    assert!(!serde_json::to_string(&messages).unwrap().contains("CANARY"));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_stays_full_is_reported_and_when_it_has_room_again() {
    let receiver = Receiver::default();
    let (slow, _) = scripted("slow", std::iter::repeat_with(|| ScriptStep::Hang).take(20));
    let hub = builder(&receiver, [Condition::QueueFull])
        .max_queued(5)
        .tool(slow.max_concurrency(1).timeout(60 * MINUTE))
        .build()
        .await
        .unwrap();
    let calls: Vec<_> = (0..6).map(|number| hub.call("slow", json!({"n": number})).start()).collect();
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(reported(&receiver), [], "it must hold for 10 seconds");
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(hub.queued_calls(), 5);
    assert_eq!(reported(&receiver), [(Condition::QueueFull, AlertPhase::Firing)]);
    assert!(receiver.messages()[0].alerts[0].reason.contains("5 calls wait; at most 5 may"));
    for call in calls {
        call.cancel();
        call.await;
    }
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(reported(&receiver)[1..], [(Condition::QueueFull, AlertPhase::Resolved)]);
}

#[tokio::test(start_paused = true)]
async fn keys_backups_and_reloads_are_reported_from_begin_to_end() {
    let receiver = Receiver::default();
    let on = [Condition::KeyExpiring, Condition::BackupOld, Condition::ReloadRefused];
    let hub = builder(&receiver, on).build().await.unwrap();
    let keys = |days: u32| vec![("ci".to_owned(), Tenant::default(), hub.now() + days * 24 * 60 * MINUTE)];
    hub.report_key_expiries(&keys(15));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(reported(&receiver), [], "keys are reported two weeks before they expire");
    hub.report_key_expiries(&keys(3));
    for condition in [Condition::BackupOld, Condition::ReloadRefused] {
        hub.report_condition(condition, "n1", Some("for a test"));
    }
    tokio::time::sleep(MINUTE).await;
    let mut begun = reported(&receiver);
    begun.sort_unstable_by_key(|(condition, _)| *condition);
    assert_eq!(begun, on.map(|condition| (condition, AlertPhase::Firing)));
    hub.report_key_expiries(&[]);
    for condition in [Condition::BackupOld, Condition::ReloadRefused] {
        hub.report_condition(condition, "n1", None);
    }
    tokio::time::sleep(MINUTE).await;
    let ended = reported(&receiver)[3..].iter().filter(|(_, phase)| *phase == AlertPhase::Resolved).count();
    assert_eq!(ended, 3, "{:?}", reported(&receiver));
}
