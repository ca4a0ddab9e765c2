//! What stands in messages, and what must not.

use toolhub::{
    alerts::{AlertPhase, AlertTarget, Condition},
    prelude::*,
    testing::{ScriptStep, scripted},
};

use super::{MINUTE, Memory, SECOND, TestClock, receiver::Receiver};

#[tokio::test(start_paused = true)]
async fn arguments_and_results_stand_in_no_message() {
    let receiver = Receiver::default();
    let fail =
        || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "CANARY-RESULT at http://CANARY-HOST/"));
    let (tool, _) = scripted("pay", [fail(), fail(), fail()]);
    let target = AlertTarget::new("ops", receiver.clone()).on(Condition::ALL);
    let builder = ToolHub::builder().clock(TestClock::new()).store(Memory::new()).alert(target);
    let hub = builder.tool(tool.no_retry()).build().await.unwrap();
    for _ in 0..3 {
        hub.call("pay", json!({"text": "CANARY-ARGUMENT"})).await;
    }
    tokio::time::sleep(10 * MINUTE).await;
    assert!(hub.call("pay", json!({"text": "CANARY-ARGUMENT"})).await.is_success());
    tokio::time::sleep(MINUTE).await;
    let messages = receiver.messages();
    assert!(messages.len() >= 4, "status and withheld, begin and end: {messages:?}");
    assert!(messages.iter().any(|message| message.alerts[0].reason == "failed 3 times in a row"));
    let text = serde_json::to_string(&messages).unwrap();
    assert!(!text.contains("CANARY"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_waits_is_told_after_its_hold_and_one_that_expires_too() {
    let receiver = Receiver::default();
    let target = AlertTarget::new("ops", receiver.clone()).on([Condition::ApprovalWaiting, Condition::ApprovalExpired]);
    let builder = ToolHub::builder().clock(TestClock::new()).store(Memory::new()).alert(target);
    let tool = scripted("pay", []).0.confirm().approval_timeout(10 * MINUTE);
    let hub = builder.tool(tool).build().await.unwrap();
    let caller = hub.clone();
    let waiting = tokio::spawn(async move { caller.call("pay", json!({"text": "CANARY"})).await });
    tokio::time::sleep(MINUTE).await;
    assert!(receiver.messages().is_empty(), "most are answered at once");
    tokio::time::sleep(2 * MINUTE).await;
    let messages = receiver.messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].summary().contains("waits for an answer: a call of `pay`"), "{}", messages[0].summary());
    waiting.await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    let messages = receiver.messages();
    let phases: Vec<_> = messages.iter().map(|message| (message.condition.unwrap(), message.phase)).collect();
    assert!(phases.contains(&(Condition::ApprovalExpired, AlertPhase::Happened)), "{phases:?}");
    assert!(phases.contains(&(Condition::ApprovalWaiting, AlertPhase::Resolved)), "{phases:?}");
    assert!(!serde_json::to_string(&messages).unwrap().contains("CANARY"));
}

#[test]
fn every_condition_has_a_section_that_says_what_to_do() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/alerts.md");
    let page = std::fs::read_to_string(page).unwrap();
    for condition in Condition::ALL {
        assert!(page.contains(&format!("\n### {condition}\n\n")), "{condition} has no section");
        let row = page.lines().find(|line| line.starts_with(&format!("| [`{condition}`]"))).unwrap_or_default();
        let hold = match condition.default_hold().as_secs() {
            0 => "0".into(),
            seconds => format!("{}m", seconds / 60),
        };
        assert!(row.ends_with(&format!("| {hold} |")), "{condition}: {row}");
    }
}
