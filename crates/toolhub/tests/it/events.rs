//! Events by their documented names, each raised by a real action.

use toolhub::{
    StatusScope,
    events::EventKind,
    prelude::*,
    status::ToolStatus,
    testing::{EventRecorder, ScriptStep, scripted},
};

use crate::shop_tools::{add, add_to_cart};

struct NoopInstance;
impl Instance for NoopInstance {
    type Arguments = NoArguments;
    type Output = ();
    async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
        Ok(())
    }
}

type Action = fn(ToolHub) -> BoxFuture<'static, ()>;

/// Every event of the status document by its name, and the action that raises it.
const RAISED_BY: [(&str, Action); 14] = [
    ("hub.initialized", |_| Box::pin(async {})),
    ("tool.registered", |hub| Box::pin(async move { hub.register(tool("more", add)).unwrap() })),
    ("tool.unregistered", |hub| Box::pin(async move { assert!(hub.unregister("add").await.is_some()) })),
    ("hub.cleared", |hub| Box::pin(async move { assert_eq!(hub.clear().await, 3) })),
    ("tool.execution.started", |hub| Box::pin(call(hub, "add", json!({"a": 1, "b": 2})))),
    ("tool.execution.completed", |hub| Box::pin(call(hub, "add", json!({"a": 1, "b": 2})))),
    ("tool.execution.failed", |hub| Box::pin(call(hub, "add", json!({"a": "one"})))),
    ("tool.executed", |hub| Box::pin(call(hub, "add", json!({"a": 1, "b": 2})))),
    ("tool.failed", |hub| Box::pin(call(hub, "add_to_cart", json!({"sku": "poison", "qty": 1})))),
    ("tool.executor.cleaned", |hub| {
        Box::pin(async move {
            call(hub.clone(), "bell", json!({})).await;
            assert_eq!(hub.thread_contexts().cleanup(&Tenant::default(), &thread_id()).await.len(), 1);
        })
    }),
    ("tool.executor.exported", |hub| Box::pin(async move { assert_eq!(hub.export(Format::OpenAi).len(), 3) })),
    ("tool.status.changed", |hub| Box::pin(set_maintenance(hub))),
    ("tool.availability.changed", |hub| Box::pin(set_maintenance(hub))),
    ("tool.rebind.required", |hub| {
        Box::pin(async move {
            let offer = hub.offer(&Tenant::default(), &thread_id()).await.unwrap();
            hub.register(tool("more", add)).unwrap();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            drop(offer);
        })
    }),
];

fn thread_id() -> ThreadId {
    ThreadId::new("here").unwrap()
}

async fn call(hub: ToolHub, tool: &'static str, arguments: Value) {
    hub.call(tool, arguments).thread("here").await;
}

async fn set_maintenance(hub: ToolHub) {
    hub.set_tool_status("add", ToolStatus::Maintenance, None, None, StatusScope::Shared).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_event_of_the_status_document_is_raised_by_a_real_action() {
    for (name, action) in RAISED_BY {
        let builder = ToolHub::builder()
            .clock(toolhub::testing::TestClock::new())
            .tool(tool("add", add).read_only())
            .tool(tool("add_to_cart", add_to_cart))
            .tool(instance("bell", |_| async { Ok(NoopInstance) }));
        let mut recorder = EventRecorder::from(builder.subscribe());
        let hub = builder.build().await.unwrap();
        // The first one is raised by building the hub; every other one comes after that.
        let before = if name == "hub.initialized" { 0 } else { recorder.events().len() };
        action(hub).await;
        let names = recorder.names().split_off(before);
        assert!(names.contains(&name), "{name} was not raised: {names:?}");
        assert!(recorder.events().iter().all(|event| event.id.is_none()), "without a store no event has a number");
    }
}

#[tokio::test]
async fn an_event_is_plain_json_with_its_payload_and_time() {
    let (tool, _) = scripted("it", [ScriptStep::Fail(ToolError::new("no"))]);
    let clock = toolhub::testing::TestClock::new();
    let hub = ToolHub::builder().clock(clock).tool(tool).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
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
async fn every_export_is_told_with_its_format_and_count() {
    let hub = ToolHub::builder().tool(tool("add", add)).tool(tool("plus", add)).build().await.unwrap();
    let toolset = Toolset::from_patterns(["add"]).unwrap();
    let offer = hub.offer(&Tenant::default(), &thread_id()).await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    assert_eq!(hub.export(Format::OpenAi).len(), 2);
    assert_eq!(hub.export_toolset(Format::Mcp, &toolset).len(), 1);
    assert_eq!(offer.export(Format::Anthropic).len(), 2);
    let told: Vec<Value> = recorder.events().iter().map(|event| serde_json::to_value(&**event).unwrap()).collect();
    let told = told.iter().map(|event| json!([event["event"], event["format"], event["count"], event["threadId"]]));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            json!(["tool.executor.exported", "openai", 2, null]),
            json!(["tool.executor.exported", "mcp", 1, null]),
            json!(["tool.executor.exported", "anthropic", 2, "here"]),
        ]
    );
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
    assert_eq!((&reset.kind, reset.id), (&EventKind::StreamReset, None), "it marks the gap");
    assert_eq!(oldest.name().split('.').next(), Some("tool"));
    let mut remaining = 0;
    while slow.try_next().is_some() {
        remaining += 1;
    }
    assert!(remaining > 1_000, "buffered events are still delivered");
}

#[tokio::test]
async fn listeners_hear_only_what_happens_after_they_came() {
    let hub = ToolHub::builder().tool(tool("add", add).read_only()).build().await.unwrap();
    hub.call("add", json!({"a": 1, "b": 2})).await;
    let mut late = EventRecorder::new(&hub);
    assert!(late.names().is_empty());
    hub.register(tool("more", add)).unwrap();
    assert_eq!(late.names(), ["tool.registered"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_events_are_numbered_in_the_order_in_which_they_are_received() {
    let hub = ToolHub::builder().store(toolhub::backend::Memory::new());
    let tools = (0..4).map(|number| tool(&format!("add{number}"), add).read_only());
    let hub = hub.tools(tools).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let (hub, name) = (hub.clone(), format!("add{number}"));
            tokio::spawn(async move {
                for _ in 0..50 {
                    hub.call(&*name, json!({"a": 1, "b": 2})).await;
                    for status in [ToolStatus::Maintenance, ToolStatus::Available] {
                        hub.set_tool_status(&name, status, None, None, StatusScope::Shared).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let events = recorder.events();
    assert!(events.iter().all(|event| event.id.is_some() == (event.name() == "tool.status.changed")));
    let ids: Vec<_> = events.iter().filter_map(|event| event.id).collect();
    assert_eq!(ids.len(), 400);
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}
