//! Events by the names their listeners know, each raised by a real action.

use toolhub::{
    View,
    events::News,
    prelude::*,
    status::ToolStatus,
    testing::{Recorder, Step, scripted},
};

use crate::shop::{add, add_to_cart};

struct Bell;
impl Instance for Bell {
    type Arguments = NoArguments;
    type Output = ();
    async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
        Ok(())
    }
}

#[tokio::test]
async fn every_event_that_exists_so_far_is_raised_by_a_real_action() {
    let builder = ToolHub::builder()
        .tool(tool("add", add).read_only())
        .tool(tool("add_to_cart", add_to_cart))
        .tool(instance("bell", |_| async { Ok(Bell) }));
    let mut recorder = Recorder::from(builder.subscribe());
    let hub = builder.build().await.unwrap();
    hub.call("add", json!({"a": 1, "b": 2})).await;
    hub.call("add", json!({"a": i64::MAX, "b": 2})).await;
    hub.call("add_to_cart", json!({"sku": "tea", "qty": 1})).await;
    hub.call("bell", json!({})).await;
    assert_eq!(hub.export(Format::OpenAi).len(), 3);
    hub.set_tool_status("add", ToolStatus::Maintenance, None, None, View::Shared).await.unwrap();
    hub.clear().await;
    let names = recorder.names();
    for name in [
        "tool.registered",
        "tool.unregistered",
        "tool.executed",
        "tool.failed",
        "hub.initialized",
        "hub.cleared",
        "tool.execution.started",
        "tool.execution.completed",
        "tool.execution.failed",
        "tool.executor.cleaned",
        "tool.executor.exported",
        "call.progress",
        "tool.status.changed",
        "tool.availability.changed",
    ] {
        assert!(names.contains(&name), "{name} was not raised: {names:?}");
    }
    let ids: Vec<_> = recorder.events().iter().map(|event| event.id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test]
async fn an_event_is_plain_json_with_its_payload_and_time() {
    let (tool, _) = scripted("it", [Step::Fail(ToolError::new("no"))]);
    let clock = toolhub::testing::TestClock::new();
    let hub = ToolHub::builder().clock(clock).tool(tool).build().await.unwrap();
    let mut recorder = Recorder::of(&hub);
    let outcome = hub.call("it", json!({})).thread("t1").await;
    assert_eq!(hub.export(Format::Gemini).len(), 1);
    let events = recorder.events();
    let failed = events.iter().find(|event| event.name() == "tool.execution.failed").unwrap();
    let wire = serde_json::to_value(&**failed).unwrap();
    assert_eq!(wire["event"], "tool.execution.failed");
    assert_eq!(wire["callId"], json!(outcome.id));
    assert_eq!(wire["toolName"], "it");
    assert_eq!(wire["threadId"], "t1");
    assert_eq!(wire["tenant"], "main");
    assert_eq!(
        (&wire["status"], &wire["effect"], &wire["error"]),
        (&json!("error"), &json!("unknown"), &json!("tool_error"))
    );
    assert!(wire["timestamp"].as_str().unwrap().starts_with("2024-01-01T12:00:00."), "{wire}");
    let exported = serde_json::to_value(&**events.last().unwrap()).unwrap();
    assert_eq!((&exported["format"], &exported["count"]), (&json!("gemini"), &json!(1)));
}

#[tokio::test]
async fn a_listener_that_falls_behind_is_told_and_goes_on() {
    let hub = ToolHub::builder().tool(tool("add", add).read_only()).build().await.unwrap();
    let mut slow = hub.subscribe();
    for _ in 0..3_000 {
        hub.call("add", json!({"a": 1, "b": 2})).await;
    }
    let reset = slow.next().await;
    let oldest = slow.next().await;
    assert_eq!((&reset.news, reset.id + 1), (&News::StreamReset, oldest.id), "it stands where the gap is");
    assert_eq!(oldest.name().split('.').next(), Some("tool"));
    let mut left = 0;
    while slow.try_next().is_some() {
        left += 1;
    }
    assert!(left > 1_000, "what was kept is still told");
}

#[tokio::test]
async fn listeners_hear_only_what_happens_after_they_came() {
    let hub = ToolHub::builder().tool(tool("add", add).read_only()).build().await.unwrap();
    hub.call("add", json!({"a": 1, "b": 2})).await;
    let mut late = Recorder::of(&hub);
    assert!(late.names().is_empty());
    hub.register(tool("more", add)).unwrap();
    assert_eq!(late.names(), ["tool.registered"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_heard_in_order_whoever_tells() {
    let hub = ToolHub::builder().tool(tool("add", add).read_only()).build().await.unwrap();
    let mut recorder = Recorder::of(&hub);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let hub = hub.clone();
            tokio::spawn(async move {
                for _ in 0..300 {
                    hub.call("add", json!({"a": 1, "b": 2})).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let ids: Vec<_> = recorder.events().iter().map(|event| event.id).collect();
    assert_eq!(ids, (ids[0]..ids[0] + 3_600).collect::<Vec<_>>());
}
