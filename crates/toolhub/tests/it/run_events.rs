//! Events of agents and their runs, and which calls belong to which run.

use toolhub::{
    backend::Memory,
    events::{EventClass, EventKind, MessageCall},
    ids::{CallId, RunId},
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

async fn hub() -> ToolHub {
    let tools = [scripted("it", [ScriptStep::Progress("half".into())]).0, scripted("ask", []).0.confirm()];
    let builder = ToolHub::builder().clock(TestClock::new()).store(Memory::new());
    builder.tools(tools).build().await.unwrap()
}

fn t1() -> ThreadId {
    ThreadId::new("t1").unwrap()
}

#[tokio::test(start_paused = true)]
async fn whatever_a_call_tells_names_the_run_it_belongs_to() {
    let hub = hub().await;
    let run = RunId::mint(hub.now());
    let mut events = EventRecorder::new(&hub);
    hub.call("it", json!({})).thread("t1").run(run).await.assert_success();
    hub.call("nobody", json!({})).thread("t1").run(run).await.assert_error(ErrorKind::ToolNotFound);
    let outcome = hub.call("ask", json!({})).thread("t1").run(run).no_wait().await;
    let approval = outcome.error.unwrap().approval().unwrap();
    let answer = Answer::new(ApprovalOutcome::Cancel, Caller::new("boss").unwrap());
    hub.resolve_approval(&Tenant::default(), approval, answer).await.unwrap();
    let of_a_run = [
        "tool.execution.started",
        "call.progress",
        "tool.execution.completed",
        "tool.execution.failed",
        "approval.requested",
        "approval.resolved",
    ];
    for name in of_a_run {
        let published: Vec<_> = events.events().iter().filter(|event| event.name() == name).cloned().collect();
        assert!(!published.is_empty(), "{name}");
        for event in published {
            assert_eq!(event.kind.run_id(), Some(run), "{name}");
            assert_eq!(serde_json::to_value(&*event).unwrap()["runId"], json!(run), "{name}");
        }
    }
    let mut events = EventRecorder::new(&hub);
    hub.call("it", json!({})).thread("t1").await.assert_success();
    for event in events.events() {
        assert_eq!(event.kind.run_id(), None);
        assert_eq!(serde_json::to_value(&**event).unwrap().get("runId"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_agents_say_is_told_in_their_thread_without_secrets_and_kept_nowhere() {
    let hub = hub().await;
    let (tenant, run_id, id) = (Tenant::default(), RunId::mint(hub.now()), CallId::mint(hub.now()));
    let message = || EventKind::MessageCompleted {
        run_id,
        role: "assistant".into(),
        content: "Let me see.".into(),
        calls: vec![MessageCall { id, tool: "it".into(), arguments: json!({"city": "Oslo", "api_key": "hunter2"}) }],
    };
    assert!(!hub.has_subscribers(EventClass::Messages));
    hub.publish(&tenant, &t1(), message());
    let mut events = EventRecorder::new(&hub);
    assert!(hub.has_subscribers(EventClass::Messages));
    hub.publish(&tenant, &t1(), message());
    let delta = |again| EventKind::MessageDelta { run_id, text: "Let".into(), again };
    hub.publish(&tenant, &t1(), delta(false));
    hub.publish(&tenant, &t1(), delta(true));
    let published = events.events();
    assert_eq!(published.len(), 3, "events without subscribers are not published");
    assert!(published.iter().all(|event| event.thread == Some(t1()) && event.kind.run_id() == Some(run_id)));
    let published: Vec<Value> = published.iter().map(|event| serde_json::to_value(&**event).unwrap()).collect();
    assert_eq!(published[0]["event"], "message.completed");
    let call = &published[0]["calls"][0];
    assert_eq!((&call["id"], &call["tool"], &call["arguments"]["city"]), (&json!(id), &json!("it"), &json!("Oslo")));
    assert!(!call.to_string().contains("hunter2"), "{call}");
    assert_eq!((published[1].get("again"), &published[2]["again"]), (None, &json!(true)));
    let stored = hub.events_since(&tenant, 0).await.unwrap().events;
    assert!(stored.is_empty(), "{stored:?}");
}
