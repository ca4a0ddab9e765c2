//! Messages arrive although targets fail, hang or go away, and in order.

use std::{collections::HashMap, sync::Arc};

use toolhub::{
    alerts::{AlertTarget, DeliveryState},
    backend::Memory,
    events::EventKind,
    prelude::*,
    status::ToolStatus,
    testing::{TestClock, scripted},
};

use super::{
    MINUTE, SECOND, hub,
    receiver::{Answer, Receiver},
    set,
};

#[tokio::test(start_paused = true)]
async fn a_target_that_was_down_for_an_hour_gets_everything_in_order_for_each_tool() {
    let receiver = Receiver::default();
    let names = ["a", "b", "c", "d"];
    let (hub, _) = hub(&names, AlertTarget::new("ops", receiver.clone())).await;
    receiver.answer(Answer::NoConnection);
    let mut expected: HashMap<&str, Vec<ToolStatus>> = HashMap::new();
    for status in [ToolStatus::Maintenance, ToolStatus::Unavailable, ToolStatus::Maintenance, ToolStatus::Available] {
        for name in names {
            set(&hub, name, status).await;
            expected.entry(name).or_default().push(status);
            tokio::time::sleep(10 * SECOND).await;
        }
        tokio::time::sleep(14 * MINUTE).await;
    }
    assert!(receiver.messages().is_empty());
    assert!(hub.alert_targets().await.unwrap()[0].waiting >= 16);
    receiver.answer(Answer::Ok);
    tokio::time::sleep(61 * MINUTE).await;
    let mut told: HashMap<String, Vec<String>> = HashMap::new();
    for message in receiver.messages() {
        for alert in message.alerts {
            told.entry(alert.thing.to_string())
                .or_default()
                .extend(alert.changes.iter().map(|it| it.state.to_string()));
        }
    }
    for (name, statuses) in expected {
        let statuses: Vec<_> = statuses.iter().map(|status| status.as_str().to_owned()).collect();
        assert_eq!(told[name], statuses, "{name}");
    }
    let attempts = receiver.attempts();
    let first = &attempts[0].0.id;
    let of_first: Vec<_> = attempts.iter().filter(|(message, _)| message.id == *first).map(|(_, at)| *at).collect();
    assert!(of_first.len() > 5, "the same id for every attempt");
    let delays: Vec<u64> = of_first.windows(2).map(|pair| pair[1].since(pair[0]).as_secs()).collect();
    assert!(delays[0] <= 2 && delays.is_sorted(), "{delays:?}");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_hangs_holds_up_no_other_and_no_call() {
    let (hanging, other) = (Receiver::default(), Receiver::default());
    hanging.answer(Answer::Hang);
    let builder = ToolHub::builder().clock(TestClock::new()).store(Memory::new()).tool(scripted("pay", []).0);
    let targets = [AlertTarget::new("hanging", hanging.clone()), AlertTarget::new("other", other.clone())];
    let hub = targets.into_iter().fold(builder, toolhub::HubBuilder::alert).build().await.unwrap();
    set(&hub, "pay", ToolStatus::Maintenance).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!((other.messages().len(), hanging.attempts().len()), (1, 1));
    set(&hub, "pay", ToolStatus::Available).await;
    assert!(hub.call("pay", json!({})).await.is_success());
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(other.messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_target_says_when_to_come_again_and_that_it_is_gone() {
    let receiver = Receiver::default();
    let (hub, _) = hub(&["pay"], AlertTarget::new("ops", receiver.clone())).await;
    let mut events = hub.subscribe();
    receiver.answer(Answer::Later(90 * SECOND));
    set(&hub, "pay", ToolStatus::Maintenance).await;
    tokio::time::sleep(80 * SECOND).await;
    assert_eq!(receiver.attempts().len(), 1);
    receiver.answer(Answer::Status(410));
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(receiver.attempts().len(), 2, "no attempt after that");
    let disabled = hub.alert_targets().await.unwrap()[0].disabled.clone().unwrap();
    assert!(disabled.contains("410"), "{disabled}");
    let mut failures = Vec::new();
    while let Some(event) = events.try_next() {
        if let EventKind::AlertFailed { alert_target, disabled, .. } = &event.kind {
            failures.push((alert_target.to_string(), *disabled));
        }
    }
    assert_eq!(failures, [("ops".to_owned(), true)]);

    receiver.answer(Answer::Ok);
    assert_eq!(hub.retry_alert_deliveries("ops").await.unwrap(), 1);
    tokio::time::sleep(SECOND).await;
    assert_eq!(receiver.messages().len(), 1);
    let page = hub.alert_deliveries("ops", None, 10).await.unwrap();
    let delivery = &page.deliveries[0];
    assert_eq!((delivery.state, delivery.attempts), (DeliveryState::Delivered, 3));
    assert_eq!(delivery.last.as_ref().map(|last| (last.status, last.answer.as_str())), Some((Some(200), "thank you")));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_for_a_day_is_given_up_and_holds_up_only_its_own_tool() {
    let receiver = Receiver::default();
    let (hub, _) = hub(&["pay", "weather"], AlertTarget::new("ops", receiver.clone())).await;
    let mut events = hub.subscribe();
    receiver.answer(Answer::RefuseAbout("pay"));
    set(&hub, "pay", ToolStatus::Maintenance).await;
    tokio::time::sleep(10 * SECOND).await;
    set(&hub, "weather", ToolStatus::Maintenance).await;
    tokio::time::sleep(10 * SECOND).await;
    let told: Vec<_> = receiver.messages().iter().map(|message| message.alerts[0].thing.to_string()).collect();
    assert_eq!(told, ["weather"]);
    // In steps of an hour: each timer of the hub fires once in each.
    for _ in 0..26 {
        tokio::time::advance(60 * MINUTE).await;
        tokio::time::sleep(MINUTE).await;
    }
    let has_failed = std::iter::from_fn(|| events.try_next())
        .any(|event| matches!(&event.kind, EventKind::AlertFailed { disabled: false, .. }));
    assert!(has_failed);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_delivered_is_delivered_by_the_next_hub_of_the_store() {
    let (store, receiver, clock) = (Arc::new(Memory::new()), Receiver::default(), TestClock::new());
    receiver.answer(Answer::NoConnection);
    let hub = async || {
        let builder = ToolHub::builder().clock(clock.clone()).store(store.clone()).tool(scripted("pay", []).0);
        builder.alert(AlertTarget::new("ops", receiver.clone())).build().await.unwrap()
    };
    let first = hub().await;
    set(&first, "pay", ToolStatus::Maintenance).await;
    // Before it was evaluated.
    drop(first);
    let second = hub().await;
    tokio::time::sleep(10 * SECOND).await;
    drop(second);
    receiver.answer(Answer::Ok);
    let _third = hub().await;
    tokio::time::sleep(2 * MINUTE).await;
    let messages = receiver.messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(receiver.attempts().iter().all(|(message, _)| message.id == messages[0].id));
}

#[tokio::test(start_paused = true)]
async fn a_test_message_is_sent_at_once_and_shows_the_answer() {
    let receiver = Receiver::default();
    let (hub, _) = hub(&[], AlertTarget::new("ops", receiver.clone())).await;
    let attempt = hub.test_alert_target("ops").await.unwrap();
    assert_eq!((attempt.status, attempt.answer.as_str(), attempt.is_success()), (Some(200), "thank you", true));
    assert_eq!(receiver.messages()[0].summary(), "test message of Toolhub: this target receives alerts");
    receiver.answer(Answer::Hang);
    let attempt = hub.test_alert_target("ops").await.unwrap();
    assert_eq!((attempt.status, attempt.answer.as_str()), (None, "no answer within 30 s"));
    let error = hub.test_alert_target("opss").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no alert target `opss`");
}
