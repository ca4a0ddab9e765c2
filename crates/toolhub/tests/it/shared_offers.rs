//! Lists for callers without a thread, and when they hear of changes.

use std::time::Duration;

use toolhub::{
    HubBuilder, HubChange, OfferWatch, SharedOffer, StatusScope, Toolset,
    ids::Caller,
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, TestClock, scripted},
};

fn names(offer: &SharedOffer) -> Vec<&str> {
    offer.tools().iter().map(|tool| tool.definition.name.as_str()).collect()
}

fn plain(name: &str) -> ToolBuilder {
    scripted(name, []).0
}

async fn hub(tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap()
}

async fn set(hub: &ToolHub, tool: &str, status: ToolStatus) {
    hub.set_tool_status(tool, status, None, None, StatusScope::Shared).await.unwrap();
}

/// Whether a change is announced within this many seconds.
async fn hears_within(watch: &mut OfferWatch, seconds: u64) -> bool {
    tokio::time::timeout(Duration::from_secs(seconds), watch.changed()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn withheld_tools_are_not_listed_and_those_that_wait_for_others_are() {
    let tools = [
        plain("base"),
        plain("next").after("base"),
        plain("off").disabled("not now"),
        plain("new").pending_approval("look at it"),
        plain("denied"),
        plain("private"),
    ];
    let rules = [Rule::deny("denied"), Rule::deny("private").caller("guest*")];
    let builder = rules.into_iter().fold(ToolHub::builder().tools(tools), HubBuilder::rule);
    let hub = builder.build().await.unwrap();
    let all = Toolset::all();
    assert_eq!(names(&hub.shared_offer(&all)), ["base", "next", "private"]);
    hub.call("next", json!({})).thread("t1").await.assert_error(ErrorKind::DependencyNotMet);
    let private = hub.get("private").unwrap();
    let denied_to = |caller: &str| private.denied_to(&Caller::new(caller).unwrap()).is_some();
    assert!(denied_to("guest1") && !denied_to("ops"));
    set(&hub, "base", ToolStatus::Maintenance).await;
    assert_eq!(names(&hub.shared_offer(&all)), ["next", "private"], "a list is never out of date");
    let some = Toolset::from_patterns(["p*", "b*"]).unwrap();
    assert_eq!(names(&hub.shared_offer(&some)), ["private"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_has_the_same_revision_until_a_definition_or_a_status_changes() {
    let hub = hub([plain("a"), plain("b")]).await;
    let all = Toolset::all();
    let first = hub.shared_offer(&all).revision();
    hub.call("a", json!({})).await.assert_success();
    hub.apply(HubChange::replacing_policies().policy("*", Policy { confirm: Some(false), ..Policy::default() }))
        .await
        .unwrap();
    assert_eq!(hub.shared_offer(&all).revision(), first);
    assert!(hub.shared_offer(&all).get("a").is_some() && hub.shared_offer(&all).get("c").is_none());
    hub.apply(HubChange::tools_only().put(plain("a").description("another one"))).await.unwrap();
    let second = hub.shared_offer(&all).revision();
    assert_ne!(second, first);
    assert_ne!(hub.shared_offer(&Toolset::from_patterns(["a"]).unwrap()).revision(), second);
}

#[tokio::test(start_paused = true)]
async fn additions_are_heard_at_once_and_removals_if_they_last() {
    let hub = hub([plain("a"), plain("b")]).await;
    let all = Toolset::all();
    let mut watch = hub.watch_shared_offer(&all);
    assert!(!hears_within(&mut watch, 60).await, "nothing has changed");
    hub.register(plain("c")).unwrap();
    assert!(hears_within(&mut watch, 1).await);
    // A tool that is away for a short time is not heard of.
    set(&hub, "a", ToolStatus::Maintenance).await;
    assert!(!hears_within(&mut watch, 5).await);
    set(&hub, "a", ToolStatus::Available).await;
    assert!(!hears_within(&mut watch, 60).await);
    set(&hub, "a", ToolStatus::Maintenance).await;
    assert!(!hears_within(&mut watch, 9).await);
    assert!(hears_within(&mut watch, 2).await);
    assert_eq!(names(&hub.shared_offer(&all)), ["b", "c"]);
    assert!(!hears_within(&mut watch, 60).await, "once");
    set(&hub, "a", ToolStatus::Available).await;
    assert!(hears_within(&mut watch, 1).await);
    hub.apply(HubChange::tools_only().put(plain("a").description("another one"))).await.unwrap();
    assert!(hears_within(&mut watch, 2).await, "another definition is a change");
    drop(hub);
    assert!(!watch.changed().await);
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_a_removal_begins_when_the_tool_is_withheld() {
    let hub = hub([plain("a"), plain("b")]).await;
    let mut watch = hub.watch_shared_offer(&Toolset::all());
    assert!(!hears_within(&mut watch, 60).await);
    // After this nothing is checked for a second.
    hub.register(plain("c")).unwrap();
    assert!(hears_within(&mut watch, 1).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let withheld = tokio::time::Instant::now();
    set(&hub, "a", ToolStatus::Maintenance).await;
    assert!(watch.changed().await);
    let delay = withheld.elapsed().as_millis();
    assert!((10_000..10_100).contains(&delay), "{delay} ms");
}

#[tokio::test(start_paused = true)]
async fn removals_are_heard_soon_after_a_short_rebind_delay() {
    let delay = Duration::from_millis(200);
    let settings = StatusSettings { rebind_delay: delay, ..StatusSettings::default() };
    let tools = [plain("a"), plain("b"), plain("c")];
    let hub = ToolHub::builder().clock(TestClock::new()).status(settings).tools(tools).build().await.unwrap();
    let mut watch = hub.watch_shared_offer(&Toolset::all());
    assert!(!hears_within(&mut watch, 5).await);
    // One after the other: the check that announces the first delays the second only a little.
    for tool in ["a", "b"] {
        set(&hub, tool, ToolStatus::Maintenance).await;
        let early = tokio::time::timeout(delay.mul_f32(0.9), watch.changed()).await;
        assert!(early.is_err(), "{tool} is heard of too early");
        let heard = tokio::time::timeout(Duration::from_millis(200), watch.changed()).await;
        assert!(heard.is_ok(), "{tool} is heard of too late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_listed_while_a_tool_was_withheld_is_notified_of_its_return() {
    let hub = hub([plain("a"), plain("b")]).await;
    let all = Toolset::all();
    let mut watch = hub.watch_shared_offer(&all);
    set(&hub, "a", ToolStatus::Maintenance).await;
    assert!(!hears_within(&mut watch, 2).await);
    assert_eq!(names(&hub.shared_offer(&all)), ["b"]);
    set(&hub, "a", ToolStatus::Available).await;
    assert!(hears_within(&mut watch, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_heard_at_most_once_a_second() {
    let hub = hub([plain("a")]).await;
    let mut watch = hub.watch_shared_offer(&Toolset::all());
    assert!(!hears_within(&mut watch, 5).await);
    for number in 0..20 {
        hub.register(plain(&format!("new{number}"))).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut count = 0;
    while hears_within(&mut watch, 5).await {
        count += 1;
    }
    assert!(count <= 2, "{count}");
}

#[tokio::test]
async fn ten_thousand_holders_of_five_hundred_tools_hear_of_a_change() {
    const HOLDERS: usize = 10_000;
    let hub = hub((0..500).map(|number| plain(&format!("t{number}")))).await;
    let all = Toolset::all();
    let mut holders: Vec<_> = (0..HOLDERS).map(|_| hub.watch_shared_offer(&all)).collect();
    hub.register(plain("new")).unwrap();
    for holder in &mut holders {
        assert!(holder.changed().await);
    }
    assert!(hub.shared_offer(&all).get("new").is_some());
}
