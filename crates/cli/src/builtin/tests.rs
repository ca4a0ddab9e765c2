//! The bundled tools, called through a hub.

use std::time::Duration;

use toolhub::{ToolFilter, events::EventKind, prelude::*, status::StatusSettings};

use super::*;

async fn hub(failure_duration: Duration) -> ToolHub {
    let settings = StatusSettings { failure_duration, ..StatusSettings::default() };
    let tools = ALL.iter().map(|builtin| builtin.tool(builtin.name));
    ToolHub::builder().tools(tools).status(settings).build().await.unwrap()
}

#[tokio::test]
async fn each_says_about_itself_what_it_is() {
    let hub = hub(Duration::from_secs(20)).await;
    let tools = hub.list(&ToolFilter::default());
    assert_eq!(tools.len(), ALL.len());
    for (tool, builtin) in tools.iter().zip(&ALL) {
        let definition = &tool.definition;
        assert_eq!(definition.name.as_str(), builtin.name);
        let (stateful, read_only) = (definition.kind == toolhub::Kind::Stateful, definition.annotations.read_only);
        assert_eq!(stateful, ["counter", "notes"].contains(&builtin.name), "{}", builtin.name);
        assert_eq!(read_only, !stateful && builtin.name != "dangerous", "{}", builtin.name);
        assert!(!definition.description.is_empty() && definition.annotations.title.is_some(), "{}", builtin.name);
    }
}

#[tokio::test]
async fn the_calculator_calculates_and_the_clock_tells_the_time() {
    let hub = hub(Duration::from_secs(20)).await;
    assert_eq!(hub.call("calculator", json!({"expression": "2+3*4"})).await.output, json!(14));
    assert!(hub.call("calculator", json!({"expression": "2+"})).await.error.is_some());
    assert!(hub.call("clock", json!({})).await.output.as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn a_misspelled_argument_that_may_be_left_out_is_not_passed_over() {
    let hub = hub(Duration::from_secs(20)).await;
    let wrong = [
        ("counter", json!({"amont": 3})),
        ("notes", json!({"amont": 3})),
        ("report", json!({"title": "Tea", "amont": 3})),
    ];
    for (name, arguments) in wrong {
        let refused = hub.call(name, arguments).thread("a").await;
        assert_eq!(refused.error_kind(), Some(ErrorKind::ArgumentsInvalid), "{name}");
    }
}

#[tokio::test]
async fn notes_and_counter_remember_each_thread_for_itself() {
    let hub = hub(Duration::from_secs(20)).await;
    hub.call("notes", json!({"add": "milk"})).thread("a").await;
    assert_eq!(hub.call("notes", json!({})).thread("a").await.output, json!(["milk"]));
    assert_eq!(hub.call("notes", json!({})).thread("b").await.output, json!([]));
    hub.call("counter", json!({"by": 2})).thread("a").await;
    assert_eq!(hub.call("counter", json!({})).thread("a").await.output, json!(3));
}

#[tokio::test]
async fn flaky_fails_three_times_and_is_withheld_each_for_itself() {
    let hub = hub(Duration::from_secs(3600)).await;
    let kind = async |tool: &str| hub.call(tool, json!({})).await.error.unwrap().kind;
    for _ in 0..3 {
        assert_eq!(kind("flaky").await, ErrorKind::UpstreamUnreachable);
    }
    assert_eq!(kind("flaky").await, ErrorKind::ToolFailedStatus);
    let flaky = ALL.iter().find(|builtin| builtin.name == "flaky").unwrap();
    hub.register(flaky.tool("another")).unwrap();
    assert_eq!(kind("another").await, ErrorKind::UpstreamUnreachable);
}

#[tokio::test]
async fn flaky_works_when_it_is_back() {
    let hub = hub(Duration::from_millis(10)).await;
    let mut events = hub.subscribe();
    for _ in 0..3 {
        hub.call("flaky", json!({})).await;
    }
    while !matches!(&events.next().await.kind, EventKind::AvailabilityChanged { available: true, .. }) {}
    assert_eq!(hub.call("flaky", json!({})).await.output, json!("the service is up again"));
}

#[tokio::test]
async fn dangerous_asks_before_it_pretends() {
    let hub = hub(Duration::from_secs(20)).await;
    let mut events = hub.subscribe();
    let running = hub.call("dangerous", json!({"folder": "/tmp/old"})).start();
    let id = loop {
        if let EventKind::ApprovalRequested { approval_id, .. } = events.next().await.kind {
            break approval_id;
        }
    };
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("me").unwrap());
    hub.resolve_approval(&Tenant::default(), id, yes).await.unwrap();
    assert_eq!(running.await.output, json!("/tmp/old is deleted (not really)"));
}
