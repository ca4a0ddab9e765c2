//! Sources add and remove tools while the hub runs, and never touch the tools of others.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use toolhub::{
    BuildError, HubChange, SourceHandle, StatusScope,
    events::EventKind,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, TestSource, scripted},
};

use crate::gated_tool::{GatedTool, wait_until};

fn plain(name: &str) -> ToolBuilder {
    scripted(name, []).0
}

fn names(hub: &ToolHub) -> Vec<String> {
    hub.list(&ToolFilter::default()).iter().map(|tool| tool.definition.name.to_string()).collect()
}

fn texts(refused: &[toolhub::RegistryError]) -> Vec<String> {
    refused.iter().map(ToString::to_string).collect()
}

/// A hub with the source `fs`.
async fn hub(builder: toolhub::HubBuilder) -> (ToolHub, SourceHandle) {
    let (source, mut control) = TestSource::new("fs");
    let hub = builder.source(source).build().await.unwrap();
    (hub, control.handle().await)
}

async fn status(hub: &ToolHub, tool: &str) -> (ToolStatus, String) {
    let info = hub.tool_status(tool, StatusScope::Shared).await.unwrap();
    (info.status, info.reason)
}

#[tokio::test]
async fn a_source_replaces_only_its_own_tools_and_each_that_cannot_be_registered_is_left_out_alone() {
    let (hub, fs) = hub(ToolHub::builder().tools([plain("own"), plain("fs__taken")])).await;
    let tools = || ["fs__a", "fs__b", "fs__taken", "own", "fs__not a name"].map(plain);
    let refused = texts(&fs.replace_tools(tools().into()).await);
    assert_eq!(names(&hub), ["fs__a", "fs__b", "fs__taken", "own"]);
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused[0].contains("not a name"), "{refused:?}");
    assert_eq!(refused[1], "there is a tool named `fs__taken` already; unregister it first, or choose another name");
    assert_eq!(refused[2], "`fs` may not add a tool named `own`");
    assert_eq!(hub.get("fs__a").unwrap().source(), Some("fs"));
    assert_eq!(hub.get("fs__taken").unwrap().source(), None);

    // Only what changed is replaced; what is gone is removed; two of one name are one.
    let before = hub.get("fs__a").unwrap();
    let changed = plain("fs__b").description("another text");
    let cyclic = [plain("fs__c").after("fs__d"), plain("fs__d").after("fs__c"), plain("fs__e").after("nowhere")];
    let next = [plain("fs__a"), plain("fs__a"), changed].into_iter().chain(cyclic).collect();
    let refused = texts(&fs.replace_tools(next).await);
    assert_eq!(names(&hub), ["fs__a", "fs__b", "fs__taken", "own"], "{refused:?}");
    assert!(Arc::ptr_eq(&before, &hub.get("fs__a").unwrap()), "an unchanged tool stays");
    assert_eq!(hub.get("fs__b").unwrap().definition.description, "another text");
    assert_eq!(refused.len(), 3, "the second `a`, the cycle, the unknown dependency: {refused:?}");

    // The owner of the hub cannot replace a tool of the source either.
    let change = HubChange::tools_only().put(plain("fs__a"));
    let Err(BuildError::Tool(error)) = hub.apply(change).await else { panic!("the name is taken") };
    assert_eq!(error.to_string(), "there is a tool named `fs__a` already, added by `fs`; choose another name");
    hub.register(plain("fs__a")).unwrap_err();
    fs.replace_tools(Vec::new()).await;
    assert_eq!(names(&hub), ["fs__taken", "own"]);
}

#[tokio::test]
async fn sources_are_added_and_removed_while_the_hub_runs() {
    let (hub, fs) = hub(ToolHub::builder()).await;
    fs.replace_tools(vec![plain("fs__a")]).await;
    fs.connected().await;
    let (git, mut control) = TestSource::new("git");
    hub.add_source(Arc::new(git)).unwrap();
    let git = control.handle().await;
    git.replace_tools(vec![plain("git__a"), plain("git__b")]).await;
    let error = hub.add_source(Arc::new(TestSource::new("git").0)).unwrap_err();
    assert_eq!(error.to_string(), "there is a source of tools named `git` already; choose another name");
    let sources = || hub.sources().iter().map(|source| source.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(sources(), ["fs", "git"]);
    let removed = hub.remove_source("git").await.unwrap();
    assert_eq!(removed.removed.len(), 2);
    assert_eq!(control.actions(), ["stop"]);
    assert_eq!((names(&hub), sources()), (vec!["fs__a".to_owned()], vec!["fs".to_owned()]));
    assert!(hub.remove_source("git").await.is_none());
    assert_eq!(git.replace_tools(vec![plain("git__a")]).await.len(), 0);
    assert_eq!(names(&hub), ["fs__a"], "a removed source adds nothing");
    let (again, mut control) = TestSource::new("git");
    hub.add_source(Arc::new(again)).unwrap();
    drop(control.handle().await);
    hub.shutdown(Duration::ZERO).await;
    assert_eq!(control.actions(), ["stop"], "a source is stopped with the hub");
}

#[tokio::test]
async fn a_replacement_goes_on_if_its_caller_leaves() {
    let (hub, _old) = hub(ToolHub::builder()).await;
    let (new, mut control) = TestSource::new("fs");
    // Polled once, and dropped while the old source stops.
    tokio::select! {
        biased;
        _ = hub.replace_sources(&["fs"], vec![Arc::new(new)]) => panic!("the old source was not waited for"),
        () = std::future::ready(()) => {}
    }
    let fs = control.handle().await;
    fs.replace_tools(vec![plain("fs__a")]).await;
    assert_eq!(names(&hub), ["fs__a"]);
    assert!(hub.remove_source("fs").await.is_some());
}

#[tokio::test]
async fn a_missing_tool_is_explained_by_the_source_that_owns_its_name() {
    let (hub, fs) = hub(ToolHub::builder()).await;
    let call = async |name: &str| hub.call(name, json!({})).await.error.unwrap();
    let early = call("fs__read").await;
    assert_eq!(early.kind, ErrorKind::ToolNotFound);
    assert!(early.operator.contains("the server `fs`, which may add it, is not connected yet"), "{early:?}");
    assert!(early.model.contains("not available now"), "{early:?}");
    fs.replace_tools(vec![plain("fs__other")]).await;
    assert_eq!(call("fs__oter").await.operator, "no tool is named `fs__oter`");
}

#[tokio::test]
async fn a_tool_may_depend_on_one_that_a_source_may_still_bring() {
    let (hub, fs) = hub(ToolHub::builder().tool(plain("report").after("fs__read"))).await;
    hub.register(plain("other").after("git__read")).unwrap_err();
    hub.call("report", json!({})).thread("t").await.assert_error(ErrorKind::DependencyNotMet);
    fs.replace_tools(vec![plain("fs__read")]).await;
    fs.connected().await;
    hub.call("fs__read", json!({})).thread("t").await.assert_success();
    hub.call("report", json!({})).thread("t").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn losing_the_link_makes_all_tools_unavailable_at_once_and_regaining_it_brings_them_back() {
    let (hub, fs) = hub(ToolHub::builder().clock(TestClock::new()).tool(plain("own"))).await;
    fs.replace_tools(vec![plain("fs__a"), plain("fs__b")]).await;
    assert_eq!(status(&hub, "fs__a").await, (ToolStatus::Unavailable, "not connected".into()));
    fs.connected().await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
    let offered = async || {
        let offer = hub.offer(&tenant, &thread).await.unwrap();
        offer.names().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(offered().await, ["fs__a", "fs__b", "own"]);
    let mut recorder = EventRecorder::new(&hub);
    fs.disconnected("exited with 1");
    fs.disconnected("no such file");
    assert_eq!(status(&hub, "fs__a").await, (ToolStatus::Unavailable, "not connected: no such file".into()));
    assert_eq!(offered().await, ["own"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let error = hub.call("fs__a", json!({})).await.error.unwrap();
    assert_eq!(error.kind, ErrorKind::ToolUnavailable);
    assert!(error.to_string().contains("not connected: no such file"), "{error}");
    fs.connected().await;
    fs.connected().await;
    hub.call("fs__a", json!({})).await.assert_success();
    assert_eq!(offered().await, ["fs__a", "fs__b", "own"]);
    let changes: Vec<_> = recorder
        .events()
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::StatusChanged { tool_name, new_status, reason, .. } => {
                Some(format!("{tool_name} {} {reason}", new_status.as_str()))
            }
            EventKind::ServerConnected { server_name, tools } => Some(format!("connected {server_name} {tools}")),
            EventKind::ServerDisconnected { server_name, reason, .. } => {
                Some(format!("disconnected {server_name} {reason}"))
            }
            _ => None,
        })
        .collect();
    let mut lost = changes[..2].to_vec();
    lost.sort();
    assert_eq!(
        lost,
        ["fs__a unavailable not connected: exited with 1", "fs__b unavailable not connected: exited with 1"]
    );
    assert_eq!(changes[2], "disconnected fs exited with 1");
    assert_eq!(changes[5], "connected fs 2");
    assert_eq!(changes.len(), 6, "one event per tool and change: {changes:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_wait_shortly_for_a_lost_service() {
    let (hub, fs) = hub(ToolHub::builder().clock(TestClock::new())).await;
    fs.replace_tools(vec![plain("fs__a")]).await;
    fs.connected().await;
    fs.disconnected("restarting");
    let calls: Vec<_> = (0..3).map(|_| hub.call("fs__a", json!({})).start()).collect();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    fs.connected().await;
    for call in calls {
        call.await.assert_success();
    }
    fs.disconnected("gone");
    let start = tokio::time::Instant::now();
    hub.call("fs__a", json!({})).await.assert_error(ErrorKind::ToolUnavailable);
    assert_eq!(start.elapsed().as_secs(), 2);
    hub.call("fs__a", json!({})).await.assert_error(ErrorKind::ToolUnavailable);
    assert_eq!(start.elapsed().as_secs(), 2, "later calls do not wait");
}

#[tokio::test]
async fn regaining_the_link_closes_breakers_that_no_person_opened() {
    let settings = StatusSettings { failure_threshold: 1, ..StatusSettings::default() };
    let (hub, fs) = hub(ToolHub::builder().status(settings)).await;
    let failing = |name| {
        scripted(name, [ScriptStep::Fail(ToolError::operator_only(ErrorKind::UpstreamUnreachable, "no route"))]).0
    };
    fs.replace_tools(vec![failing("fs__a"), plain("fs__b")]).await;
    fs.connected().await;
    hub.call("fs__a", json!({})).await.assert_error(ErrorKind::UpstreamUnreachable);
    assert_eq!(status(&hub, "fs__a").await.0, ToolStatus::Failed);
    hub.set_tool_status("fs__b", ToolStatus::Failed, Some("mine".into()), None, StatusScope::Shared).await.unwrap();
    fs.disconnected("gone");
    fs.connected().await;
    assert_eq!(status(&hub, "fs__a").await.0, ToolStatus::Available);
    assert_eq!(status(&hub, "fs__b").await.0, ToolStatus::Failed, "an operator's decision stays");
}

#[tokio::test]
async fn a_definition_that_waits_for_approval_reads_maintenance_beside_an_operators_override() {
    let (hub, fs) = hub(ToolHub::builder()).await;
    let review = "`toolhub mcp diff fs` shows what changed";
    fs.replace_tools(vec![plain("fs__a")]).await;
    fs.connected().await;
    let mut recorder = EventRecorder::new(&hub);
    fs.replace_tools(vec![plain("fs__a").description("new").pending_approval(review)]).await;
    let changes = |recorder: &mut EventRecorder| {
        recorder.names().into_iter().filter(|name| *name == "tool.availability.changed").count()
    };
    assert_eq!(changes(&mut recorder), 1);
    let reason = format!("in maintenance, its definition waits for approval: {review}");
    assert_eq!(status(&hub, "fs__a").await, (ToolStatus::Maintenance, reason.clone()));
    let error = hub.call("fs__a", json!({})).await.error.unwrap();
    assert_eq!(
        (error.kind, error.to_string()),
        (ErrorKind::ToolMaintenance, format!("tool_maintenance: `fs__a` is {reason}"))
    );
    hub.set_tool_status("fs__a", ToolStatus::Maintenance, Some("disk".into()), None, StatusScope::Shared)
        .await
        .unwrap();
    assert_eq!(status(&hub, "fs__a").await.1, "in maintenance: disk");
    hub.set_tool_status("fs__a", ToolStatus::Available, None, None, StatusScope::Shared).await.unwrap();
    assert_eq!(status(&hub, "fs__a").await.1, reason, "the definition waits nevertheless");
    let mut back = EventRecorder::new(&hub);
    fs.replace_tools(vec![plain("fs__a").description("new")]).await;
    assert_eq!(status(&hub, "fs__a").await.0, ToolStatus::Available);
    hub.call("fs__a", json!({})).await.assert_success();
    assert_eq!(changes(&mut back), 1);
}

#[tokio::test]
async fn running_calls_finish_on_the_definition_they_started_with() {
    let (hub, fs) = hub(ToolHub::builder()).await;
    let gated = GatedTool::new();
    fs.replace_tools(vec![gated.tool("fs__a")]).await;
    fs.connected().await;
    let call = hub.call("fs__a", json!({})).start();
    wait_until(|| gated.running() == 1).await;
    fs.replace_tools(vec![plain("fs__a").description("new")]).await;
    gated.release(1);
    call.await.assert_success();
}

#[tokio::test]
async fn lifting_maintenance_does_not_make_a_tool_available_that_is_not_connected_or_waits_for_approval() {
    let (hub, fs) = hub(ToolHub::builder()).await;
    fs.replace_tools(vec![plain("fs__a"), plain("fs__b").pending_approval("see the changes")]).await;
    fs.disconnected("exited");
    let set = async |tool: &str, status| {
        hub.set_tool_status(tool, status, None, None, StatusScope::Shared).await.unwrap();
    };
    let mut recorder = EventRecorder::new(&hub);
    for tool in ["fs__a", "fs__b"] {
        set(tool, ToolStatus::Maintenance).await;
        set(tool, ToolStatus::Available).await;
    }
    let changes: Vec<_> = recorder
        .events()
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::StatusChanged { tool_name, old_status, new_status, .. } => {
                Some((tool_name.to_string(), old_status.unwrap(), *new_status))
            }
            EventKind::AvailabilityChanged { .. } => panic!("{:?}", event.kind),
            _ => None,
        })
        .collect();
    let (unavailable, maintenance) = (ToolStatus::Unavailable, ToolStatus::Maintenance);
    let expected = [("fs__a".into(), unavailable, maintenance), ("fs__a".into(), maintenance, unavailable)];
    assert_eq!(changes, expected, "a tool that waits for approval is in maintenance all the time");
}

#[tokio::test]
async fn a_name_belongs_to_the_source_with_the_longest_prefix_whichever_is_connected_first() {
    for is_first in [true, false] {
        let ((short, mut short_control), (long, mut long_control)) = (TestSource::new("a"), TestSource::new("a__b"));
        let hub = ToolHub::builder().source(short).source(long).build().await.unwrap();
        let (short, long) = (short_control.handle().await, long_control.handle().await);
        let list_short = async || texts(&short.replace_tools(vec![plain("a__b__c"), plain("a__c")]).await);
        let mut refused = if is_first { list_short().await } else { Vec::new() };
        assert_eq!(long.replace_tools(vec![plain("a__b__c")]).await.len(), 0);
        if !is_first {
            refused = list_short().await;
        }
        assert_eq!(refused, ["the name `a__b__c` is reserved for the tools of `a__b`"]);
        assert_eq!(names(&hub), ["a__b__c", "a__c"]);
        assert_eq!(hub.get("a__b__c").unwrap().source(), Some("a__b"));
    }
}

#[tokio::test]
async fn a_source_that_is_added_later_gets_the_names_that_belong_to_it() {
    let (short, mut control) = TestSource::new("a");
    let hub = ToolHub::builder().source(short).build().await.unwrap();
    let short = control.handle().await;
    assert_eq!(short.replace_tools(vec![plain("a__b__c"), plain("a__c")]).await.len(), 0);
    let (long, mut long_control) = TestSource::new("a__b");
    hub.add_source(Arc::new(long)).unwrap();
    assert_eq!(names(&hub), ["a__c"], "the tool of the other source is gone before the new one is connected");
    assert_eq!(control.actions(), ["refresh"]);
    let long = long_control.handle().await;
    assert_eq!(long.replace_tools(vec![plain("a__b__c")]).await.len(), 0);
    hub.remove_source("a__b").await.unwrap();
    assert_eq!(control.actions(), ["refresh", "refresh"]);
    assert_eq!(short.replace_tools(vec![plain("a__b__c"), plain("a__c")]).await.len(), 0);
    let (git, mut other) = TestSource::new("git");
    hub.add_source(Arc::new(git)).unwrap();
    drop(other.handle().await);
    assert_eq!(control.actions().len(), 2, "another prefix concerns nothing");
}

#[tokio::test]
async fn a_source_that_is_replaced_keeps_its_names() {
    let (short, mut short_control) = TestSource::new("a");
    let (long, mut control) = TestSource::new("a__b");
    let hub = ToolHub::builder().source(short).source(long).build().await.unwrap();
    let (short, old) = (short_control.handle().await, control.handle().await);
    old.replace_tools(vec![plain("a__b__c")]).await;
    let (new, mut control) = TestSource::new("a__b");
    {
        let mut replacing = std::pin::pin!(hub.replace_sources(&["a__b"], vec![Arc::new(new)]));
        tokio::select! {
            biased;
            _ = &mut replacing => panic!("the old source has not stopped yet"),
            () = std::future::ready(()) => {}
        }
        let reserved = texts(&short.replace_tools(vec![plain("a__b__c")]).await);
        assert_eq!(reserved, ["the name `a__b__c` is reserved for the tools of `a__b`"]);
        old.replace_tools(vec![plain("a__b__c")]).await;
        assert_eq!(names(&hub), Vec::<String>::new(), "the old source adds nothing any more");
        assert_eq!(replacing.await.unwrap().removed.len(), 1);
    }
    assert_eq!(control.handle().await.replace_tools(vec![plain("a__b__c")]).await.len(), 0);

    // What cannot be added changes nothing.
    let added = vec![Arc::new(TestSource::new("c").0) as _, Arc::new(TestSource::new("a").0) as _];
    let error = hub.replace_sources(&["a__b"], added).await.unwrap_err();
    assert_eq!(error.to_string(), "there is a source of tools named `a` already; choose another name");
    assert_eq!((names(&hub), hub.sources().len()), (vec!["a__b__c".to_owned()], 2));
}
