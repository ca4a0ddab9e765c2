//! Offers that agents hold for a step, and the events their holders get.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    StatusScope,
    backend::{Backend, Memory},
    events::EventKind,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, EventRecorder, TestClock, scripted},
};

use crate::faulty_store::FaultyStore;

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

#[tokio::test]
async fn every_one_of_thousands_of_holders_hears_of_a_change() {
    const HOLDERS: usize = 4_000;
    let tenant = Tenant::default();
    let hub = ToolHub::builder().tools(["a", "b"].map(|name| scripted(name, []).0)).build().await.unwrap();
    hub.set_tool_status("a", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    let mut offers = Vec::new();
    for holder in 0..HOLDERS {
        offers.push(hub.offer(&tenant, &ThreadId::new(format!("t{holder}")).unwrap()).await.unwrap());
    }
    let mut events = hub.subscribe();
    hub.set_tool_status("a", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    let mut rebinds = 0;
    while rebinds < HOLDERS {
        rebinds += usize::from(matches!(events.next().await.kind, EventKind::RebindRequired { .. }));
    }
    assert_eq!(rebinds, HOLDERS);
}

#[tokio::test(start_paused = true)]
async fn without_auto_rebind_a_list_stays_until_somebody_binds_it_again() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let settings = StatusSettings { auto_rebind: false, ..StatusSettings::default() };
    let tools = ["a", "b"].map(|name| scripted(name, []).0);
    let hub = ToolHub::builder().clock(TestClock::new()).status(settings).tools(tools).build().await.unwrap();
    let names = |offer: &toolhub::Offer| offer.names().iter().map(ToString::to_string).collect::<Vec<_>>();
    let first = hub.offer(&tenant, &thread).await.unwrap();
    hub.set_tool_status("a", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    let next = hub.offer(&tenant, &thread).await.unwrap();
    assert_eq!(names(&next), ["a", "b"], "the next step is offered the same list");
    assert!(hub.should_rebind(&next).await.unwrap());
    // The offer is old, and the tool is withheld nevertheless.
    hub.call("a", json!({})).thread("t1").from_offer(next.tools()).await.assert_error(ErrorKind::ToolMaintenance);
    let other = hub.offer(&tenant, &ThreadId::new("t2").unwrap()).await.unwrap();
    assert_eq!(names(&other), ["b"], "another thread has its own");
    let bound = hub.rebind(&tenant, &thread).await.unwrap();
    assert_eq!(names(&bound), ["b"]);
    assert_eq!(names(&hub.offer(&tenant, &thread).await.unwrap()), ["b"]);
    drop((first, next, bound));
    hub.set_tool_status("a", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    assert_eq!(names(&hub.offer(&tenant, &thread).await.unwrap()), ["b"], "the next turn is offered the same list");
    assert!(hub.tool_status("a", StatusScope::Thread(&tenant, &thread)).await.unwrap().should_rebind);
    drop(hub.rebind(&tenant, &thread).await.unwrap());
    assert_eq!(names(&hub.offer(&tenant, &thread).await.unwrap()), ["a", "b"]);
    // A change of the setting takes effect with the next offer, and a deleted thread has no list.
    hub.set_tool_status("a", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    hub.create_thread(&tenant, Some(thread.clone())).await.unwrap();
    hub.delete_thread(&tenant, &thread).await.unwrap();
    assert_eq!(names(&hub.offer(&tenant, &thread).await.unwrap()), ["b"]);
    hub.set_tool_status("a", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    hub.apply(toolhub::HubChange::tools_only().status(StatusSettings::default())).await.unwrap();
    assert_eq!(names(&hub.offer(&tenant, &thread).await.unwrap()), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn each_removal_must_last_for_itself_before_it_is_told() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let tools = ["a", "b", "c"].map(|name| scripted(name, []).0);
    let hub = ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let _offer = hub.offer(&tenant, &thread).await.unwrap();
    let set = |tool, status| hub.set_tool_status(tool, status, None, None, StatusScope::Shared);
    set("a", ToolStatus::Maintenance).await.unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    set("b", ToolStatus::Maintenance).await.unwrap();
    set("c", ToolStatus::Maintenance).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Absent for three seconds, while another removal became due.
    set("b", ToolStatus::Available).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let rebinds = |second: &str, removed: &[&str]| {
        (format!("12:00:{second}"), vec![], removed.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(rebind_events(&mut recorder), [rebinds("10", &["a"]), rebinds("18", &["a", "c"])]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_lasts_is_told_although_the_store_was_gone_when_it_was_due() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let store = Arc::new(FaultyStore::default());
    let tools = [scripted("base", []).0, scripted("next", []).0.after("base")];
    let builder = ToolHub::builder().shared_store(store.clone()).clock(TestClock::new());
    let hub = builder.tools(tools).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let _offer = hub.offer(&tenant, &thread).await.unwrap();
    hub.set_tool_status("base", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    store.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rebind_events(&mut recorder), []);
    store.unavailable.store(false, Ordering::Release);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rebind_events(&mut recorder).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_of_evidence_that_another_hub_has_written() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let (store, clock): (Arc<dyn Backend>, _) = (Arc::new(Memory::new()), TestClock::new());
    let hub = async || {
        let tools = [scripted("base", []).0, scripted("next", []).0.after("base")];
        ToolHub::builder().shared_store(store.clone()).clock(clock.clone()).tools(tools).build().await.unwrap()
    };
    let (one, two) = (hub().await, hub().await);
    let _offer = two.offer(&tenant, &thread).await.unwrap();
    let mut recorder = EventRecorder::new(&two);
    one.call("base", json!({})).thread("t1").await.assert_success();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rebind_events(&mut recorder), [("12:00:00".to_owned(), vec!["next".to_owned()], vec![])]);
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_that_evidence_has_grown_old() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let minute = Duration::from_secs(60);
    let tools = [
        scripted("price", []).0,
        scripted("rate", []).0,
        scripted("buy", []).0.after("price").within(minute),
        scripted("guess", []).0.after_any(["price", "rate"]).within(2 * minute),
    ];
    let hub = ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    hub.call("price", json!({})).thread("t1").await.assert_success();
    tokio::time::sleep(minute / 2).await;
    hub.call("rate", json!({})).thread("t1").await.assert_success();
    let changes = async |tool| hub.explain(tool, &tenant, &thread).await.unwrap().changes_in;
    let moment = Duration::from_millis(1);
    assert_eq!((changes("buy").await, changes("guess").await), (Some(minute / 2 + moment), Some(2 * minute + moment)));
    assert_eq!(changes("price").await, None);
    let _offer = hub.offer(&tenant, &thread).await.unwrap();
    tokio::time::sleep(10 * minute).await;
    let rebinds = |time: &str, removed: &[&str]| {
        (time.to_owned(), vec![], removed.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    // Each ten seconds after it was removed, like every removal.
    assert_eq!(rebind_events(&mut recorder), [rebinds("12:01:10", &["buy"]), rebinds("12:02:40", &["buy", "guess"])]);
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_of_a_burst_of_new_tools_at_most_once_a_second() {
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let hub = ToolHub::builder().clock(TestClock::new()).tool(scripted("base", []).0).build().await.unwrap();
    let _offer = hub.offer(&tenant, &thread).await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    for number in 0..20 {
        hub.register(scripted(&format!("new{number}"), []).0).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let added: Vec<usize> = rebind_events(&mut recorder).iter().map(|(_, added, _)| added.len()).collect();
    assert_eq!(added, [1, 20]);
}
