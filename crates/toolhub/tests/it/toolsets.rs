//! Toolsets: offers of some of the tools, and the events and lists of their holders.

use std::time::Duration;

use toolhub::{
    HubChange, Offer, Policy, StatusScope, Toolset,
    events::EventKind,
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, EventRecorder, TestClock, scripted},
};

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn t1() -> ThreadId {
    ThreadId::new("t1").unwrap()
}

fn names(offer: &Offer) -> Vec<String> {
    offer.names().iter().map(ToString::to_string).collect()
}

async fn hub(status: StatusSettings) -> ToolHub {
    let tools = ["clock", "fs__read", "fs__write", "pay"].map(|name| scripted(name, []).0);
    let late = scripted("fs__late", []).0.after("fs__write");
    ToolHub::builder().clock(TestClock::new()).status(status).tools(tools).tool(late).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_offered_the_tools_of_its_toolset_that_may_be_used() {
    let hub = hub(StatusSettings::default()).await;
    let files = Toolset::from_patterns(["fs__*", "clock"]).unwrap();
    let offer = async |toolset: &Toolset| {
        names(&hub.offer_with(&default_tenant(), &t1(), &toolset.clone().into()).await.unwrap())
    };
    assert_eq!(offer(&files).await, ["clock", "fs__read", "fs__write"]);
    assert_eq!(offer(&Toolset::from_patterns(["f*d"]).unwrap()).await, ["fs__read"]);
    assert!(offer(&Toolset::from_patterns(Vec::<String>::new()).unwrap()).await.is_empty());
    assert_eq!(offer(&Toolset::all()).await, names(&hub.offer(&default_tenant(), &t1()).await.unwrap()));
    assert!(Toolset::from_patterns([""]).is_err());
    let line = hub.status_summary(&default_tenant(), &t1(), &files.clone().into()).await.unwrap();
    let expected =
        "tools 4 (available 3, failed 0, roots 3): [clock, fs__read, fs__write] [waiting: fs__late ← fs__write]";
    assert_eq!(line, expected);
    let (both, line) = hub.offer_and_summary(&default_tenant(), &t1(), &files.clone().into()).await.unwrap();
    assert_eq!((names(&both), line.as_str()), (offer(&files).await, expected));
    // A tool outside the offer cannot be called through it, and evidence counts nevertheless.
    let bound = hub.offer_with(&default_tenant(), &t1(), &files.clone().into()).await.unwrap();
    let call = |tool: &str| hub.call(tool, json!({})).thread("t1").from_offer(bound.tools());
    call("pay").await.assert_error(ErrorKind::ToolNotFound);
    call("fs__write").await.assert_success();
    assert_eq!(offer(&files).await, ["clock", "fs__late", "fs__read", "fs__write"]);
    let written = serde_json::to_value([&files, &Toolset::all()]).unwrap();
    assert_eq!(written, json!([["fs__*", "clock"], null]));
    assert_eq!(serde_json::from_value::<[Toolset; 2]>(written).unwrap(), [files, Toolset::all()]);
}

#[tokio::test(start_paused = true)]
async fn a_holder_hears_only_of_tools_that_are_meant_for_it() {
    let hub = hub(StatusSettings::default()).await;
    let toolset = Toolset::from_patterns(["fs__*"]).unwrap();
    let offer = hub.offer_with(&default_tenant(), &t1(), &toolset.clone().into()).await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let set = |tool, status| hub.set_tool_status(tool, status, None, None, StatusScope::Shared);
    set("pay", ToolStatus::Maintenance).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!recorder.names().contains(&"tool.rebind.required"));
    assert!(!hub.should_rebind(&offer).await.unwrap());
    let status =
        async |tool| hub.tool_status(tool, StatusScope::Thread(&default_tenant(), &t1())).await.unwrap().should_rebind;
    assert!(!status("pay").await && !status("clock").await, "no offer contains them");
    set("fs__read", ToolStatus::Maintenance).await.unwrap();
    assert!(hub.should_rebind(&offer).await.unwrap());
    assert!(status("fs__read").await);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let rebinds = recorder.events().iter().filter_map(|event| match &event.kind {
        EventKind::RebindRequired { added, removed, .. } => {
            Some((added.len(), removed.iter().map(ToString::to_string).collect()))
        }
        _ => None,
    });
    let rebinds: Vec<(usize, Vec<String>)> = rebinds.collect();
    assert_eq!(rebinds, [(0, vec!["fs__read".to_owned()])]);
}

#[tokio::test(start_paused = true)]
async fn without_auto_rebind_each_toolset_of_a_thread_keeps_its_own_list() {
    let hub = hub(StatusSettings { auto_rebind: false, ..StatusSettings::default() }).await;
    let (files, all) = (Toolset::from_patterns(["fs__*"]).unwrap(), Toolset::all());
    let of = async |toolset: &Toolset| hub.offer_with(&default_tenant(), &t1(), &toolset.clone().into()).await.unwrap();
    let (some, every) = (of(&files).await, of(&all).await);
    hub.set_tool_status("fs__read", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    assert_eq!(names(&of(&files).await), ["fs__read", "fs__write"]);
    assert_eq!(names(&of(&all).await), names(&every));
    assert_eq!(names(&hub.rebind_with(&default_tenant(), &t1(), &files.clone().into()).await.unwrap()), ["fs__write"]);
    assert_eq!(names(&of(&all).await), names(&every), "the other offer was not bound again");
    drop((some, every));
}

#[tokio::test(start_paused = true)]
async fn a_model_is_shown_another_list_only_where_something_has_changed() {
    let hub = hub(StatusSettings::default()).await;
    let files = Toolset::from_patterns(["fs__*"]).unwrap();
    let of = async || hub.offer_with(&default_tenant(), &t1(), &files.clone().into()).await.unwrap();
    let shown = |offer: &Offer| serde_json::to_string(&offer.export(Format::OpenAi)).unwrap();
    let first = of().await;
    // Changes of other tools do not affect the list.
    hub.set_tool_status("pay", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    hub.register(scripted("another", []).0).unwrap();
    hub.call("fs__read", json!({})).thread("t1").await.assert_success();
    let tighter = Policy { timeout: Some(Duration::from_secs(1)), ..Policy::default() };
    hub.apply(HubChange::replacing_policies().policy("fs__*", tighter)).await.unwrap();
    let second = of().await;
    assert!(first.has_same_definitions(&second) && second.has_same_definitions(&first));
    assert_eq!(shown(&first), shown(&second));
    // A tool is removed, one is added, and one gets another description.
    hub.set_tool_status("fs__read", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
    let less = of().await;
    assert!(!less.has_same_definitions(&second));
    hub.set_tool_status("fs__read", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    let back = of().await;
    assert!(back.has_same_definitions(&first) && shown(&back) == shown(&first));
    hub.apply(HubChange::replacing_policies().put(scripted("fs__read", []).0.description("In other words.")))
        .await
        .unwrap();
    assert!(!of().await.has_same_definitions(&first));
}
