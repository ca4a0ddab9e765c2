//! Stored events: in order, by tenant, and with ids that continue after a restart.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    StatusScope,
    backend::Memory,
    events::{EventPage, StoredEvent},
    prelude::*,
    status::ToolStatus,
    testing::{AssertOutcome, EventRecorder, TestClock, scripted},
};

use crate::{faulty_store::FaultyStore, journal::RestartableStore};

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn other_tenant() -> Tenant {
    Tenant::new("other").unwrap()
}

fn names(page: &EventPage) -> Vec<&str> {
    page.events.iter().map(|event| event.event.as_str()).collect()
}

/// Sets or clears the maintenance override of a tool.
async fn set_status(hub: &ToolHub, status: ToolStatus) {
    hub.set_tool_status("pay", status, None, None, StatusScope::Shared).await.unwrap();
}

async fn request_approval(hub: &ToolHub, tenant: &Tenant) {
    let outcome = hub.call("ask", json!({})).tenant(tenant.clone()).no_wait().await;
    outcome.assert_error(ErrorKind::ApprovalRequired);
}

#[tokio::test]
async fn status_and_approval_events_are_heard_later_by_whom_they_concern_also_after_a_restart() {
    for shelf in RestartableStore::all_kinds() {
        let build = async || {
            let tools = [scripted("pay", []).0, scripted("ask", []).0.confirm()];
            shelf.hub_builder().await.tools(tools).build().await.unwrap()
        };
        let hub = build().await;
        // There are no subscribers yet; the events are stored nevertheless.
        set_status(&hub, ToolStatus::Maintenance).await;
        let mut recorder = EventRecorder::new(&hub);
        set_status(&hub, ToolStatus::Available).await;
        request_approval(&hub, &default_tenant()).await;
        request_approval(&hub, &other_tenant()).await;
        hub.call("pay", json!({})).await.assert_success();
        let page = hub.events_since(&default_tenant(), 0).await.unwrap();
        assert_eq!(names(&page), ["tool.status.changed", "tool.status.changed", "approval.requested"]);
        assert_eq!(
            names(&hub.events_since(&other_tenant(), 0).await.unwrap()).len(),
            3,
            "its own approval, and events for all tenants"
        );
        let [first, second, third] = &page.events[..] else { panic!("three events") };
        assert_eq!((&first.data["toolName"], &first.data["newStatus"]), (&json!("pay"), &json!("maintenance")));
        assert_eq!((first.tenant.as_ref(), third.tenant.as_ref()), (None, Some(&default_tenant())));
        let published = recorder.events().iter().find(|event| event.name() == "tool.status.changed").unwrap().clone();
        let stored: Value = serde_json::to_value(second).unwrap();
        assert_eq!(stored, serde_json::to_value(&*published).unwrap(), "as it was published");
        let after = hub.events_since(&default_tenant(), second.id).await.unwrap();
        assert_eq!(after.events, std::slice::from_ref(third));
        let last = recorder.events().iter().filter_map(|event| event.id).max();
        assert!(last > Some(third.id), "the approval of the other tenant is the last one");
        hub.shutdown(Duration::ZERO).await;
        drop(hub);

        let hub = build().await;
        let mut recorder = EventRecorder::new(&hub);
        set_status(&hub, ToolStatus::Maintenance).await;
        assert!(recorder.events()[0].id > last);
        let since = hub.events_since(&default_tenant(), last.unwrap()).await.unwrap();
        assert_eq!((names(&since), since.next), (vec!["tool.status.changed"], None));
        assert_eq!(hub.events_since(&default_tenant(), 0).await.unwrap().events.len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn stored_events_come_in_pages_and_expire_after_their_retention() {
    let (store, clock): (Arc<Memory>, _) = (Arc::default(), TestClock::new());
    let hub = ToolHub::builder().shared_store(store).clock(clock.clone()).tool(scripted("pay", []).0);
    let hub = hub.event_retention(Duration::from_secs(3600)).build().await.unwrap();
    for _ in 0..250 {
        set_status(&hub, ToolStatus::Maintenance).await;
        set_status(&hub, ToolStatus::Available).await;
    }
    let (mut events, mut after): (Vec<StoredEvent>, _) = (Vec::new(), 0);
    let mut pages = 0;
    loop {
        let page = hub.events_since(&default_tenant(), after).await.unwrap();
        events.extend(page.events);
        pages += 1;
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    events.retain(|event| event.event != "node.joined");
    assert_eq!((events.len(), pages), (500, 3));
    assert!(events.is_sorted_by(|a, b| a.id < b.id));
    clock.advance(Duration::from_secs(3601)).await;
    assert_eq!(hub.events_since(&default_tenant(), 0).await.unwrap(), EventPage::default());
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_a_store_that_does_not_answer() {
    let store = Arc::new(FaultyStore::default());
    let hub = ToolHub::builder().shared_store(store.clone()).tool(scripted("pay", []).0).build().await.unwrap();
    set_status(&hub, ToolStatus::Maintenance).await;
    store.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(hub.events_since(&default_tenant(), 0).await.is_err());
    store.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stored = hub.events_since(&default_tenant(), 0).await.unwrap();
    assert_eq!(names(&stored), ["node.joined", "tool.status.changed"]);
}

#[tokio::test]
async fn without_a_store_no_events_are_stored() {
    let hub = ToolHub::builder().tool(scripted("pay", []).0).build().await.unwrap();
    set_status(&hub, ToolStatus::Maintenance).await;
    assert_eq!(hub.events_since(&default_tenant(), 0).await.unwrap(), EventPage::default());
}

#[tokio::test(start_paused = true)]
async fn whoever_heard_of_one_hub_misses_nothing_later_of_another_that_is_older() {
    let (store, clock): (Arc<Memory>, _) = (Arc::default(), TestClock::new());
    let build = async || {
        let tools = [scripted("pay", []).0, scripted("ask", []).0.confirm()];
        ToolHub::builder().shared_store(store.clone()).clock(clock.clone()).tools(tools).build().await.unwrap()
    };
    let older = build().await;
    clock.advance(Duration::from_secs(3600)).await;
    let younger = build().await;
    request_approval(&younger, &default_tenant()).await;
    let published = younger.events_since(&default_tenant(), 0).await.unwrap().events.last().unwrap().id;
    clock.advance(Duration::from_secs(1)).await;
    // Other arguments: a pending approval is not requested twice.
    let outcome = older.call("ask", json!({"n": 2})).no_wait().await;
    outcome.assert_error(ErrorKind::ApprovalRequired);
    let since = older.events_since(&default_tenant(), published).await.unwrap();
    assert_eq!(names(&since), ["approval.requested"]);
}
