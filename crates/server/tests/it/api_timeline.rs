//! What a call and a run did and waited for, and when.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolhub_core::{
    AfterDecision, BoxFuture, CallContext, Hook, HookedCall, Retry, ToolError, ToolHub, backend::Memory, dynamic,
};
use toolhub_server::Server;

use crate::{
    support_agents::agent_fixture,
    support_api::{TEST_TIMEOUT, api_fixture, send, settings},
};

fn stages(call: &Value) -> Vec<&str> {
    let steps = call["timeline"].as_array().unwrap_or_else(|| panic!("no timeline: {call}"));
    steps.iter().map(|step| step["stage"].as_str().unwrap()).collect()
}

/// Each step begins when or after the one before ended, and the last one ends with the call.
#[track_caller]
fn assert_in_order(call: &Value) {
    let mut previous = 0.0;
    for step in call["timeline"].as_array().unwrap() {
        let (start, end) = (step["startMs"].as_f64().unwrap(), step["endMs"].as_f64().unwrap());
        assert!(previous <= start && start <= end, "{call}");
        previous = end;
    }
    let total = call["queuedMs"].as_f64().unwrap() + call["durationMs"].as_f64().unwrap();
    assert!((total - previous).abs() < 0.01, "{call}");
}

#[tokio::test]
async fn a_plain_call_has_a_timeline_although_nothing_is_stored_for_it() {
    let api = api_fixture().await;
    let outcome = api.hub.call("look", json!({})).await;
    assert_eq!(outcome.timing, None, "the times of a call that succeeds at once are those of every call");
    let call = api.get(&format!("/api/v1/calls/{}", outcome.id)).await.expect_status(200);
    assert_eq!(stages(&call), ["validating", "attempt", "closing"]);
    assert_eq!((&call["timeline"][1]["attempt"], &call["timeline"][1]["error"]), (&json!(1), &Value::Null));
    assert_in_order(&call);
    let listed = api.get("/api/v1/calls").await.expect_status(200);
    assert_eq!(listed["items"][0]["timeline"], Value::Null, "only one call has it");
    let broken = api.post("/api/v1/tools/broken/calls", json!({})).await.expect_status(200);
    let broken = api.get(&format!("/api/v1/calls/{}", broken["id"].as_str().unwrap())).await.expect_status(200);
    assert_eq!(broken["timeline"][1]["error"], json!({"code": "tool_error", "detail": "the wire is cut"}));
}

#[tokio::test]
async fn each_attempt_has_its_error_and_the_wait_before_it() {
    let tried = Arc::new(AtomicUsize::new(0));
    let counter = tried.clone();
    let shaky = dynamic("shaky", json!({"type": "object"}), move |_: Value, _: CallContext| {
        let number = counter.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            match number {
                1 | 2 => Err(ToolError::new(format!("failure {number}")).retryable(None)),
                _ => Ok(json!("done")),
            }
        }
    });
    let (first, wait) = (Duration::from_millis(10), 10.0);
    let shaky = shaky.read_only().retry(Retry { first, factor: 1.0, jitter: false, ..Retry::default() });
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).tool(shaky).build().await.unwrap();
    let router = Server::new(hub.clone(), store, settings()).router();
    let outcome = hub.call("shaky", json!({})).await;
    assert_eq!((outcome.attempts, &outcome.error), (3, &None));
    let call = send(&router, "GET", &format!("/api/v1/calls/{}", outcome.id), None, &[]).await.expect_status(200);
    assert_eq!(stages(&call), ["validating", "attempt", "attempt", "attempt", "closing"]);
    let attempts = &call["timeline"].as_array().unwrap()[1..4];
    let errors: Vec<_> = attempts.iter().map(|step| step["error"]["detail"].clone()).collect();
    assert_eq!(errors, [json!("failure 1"), json!("failure 2"), Value::Null]);
    assert_eq!(attempts[0]["waitedMs"], Value::Null);
    assert!(attempts[1..].iter().all(|step| step["waitedMs"].as_f64().unwrap() >= wait), "{call}");
    assert_in_order(&call);
}

#[tokio::test]
async fn the_timeline_says_who_answered_the_approval() {
    let api = api_fixture().await;
    let asked = api.post("/api/v1/tools/order/calls", json!({"threadId": "t1"})).await.expect_status(202);
    let path = format!("/api/v1/calls/{}", asked["id"].as_str().unwrap());
    let waiting = api.get(&path).await.expect_status(200);
    assert_eq!(stages(&waiting), ["validating", "awaiting_approval"]);
    assert_eq!(
        (&waiting["timeline"][1]["endMs"], &waiting["timeline"][1]["approval"]["state"]),
        (&Value::Null, &json!("pending"))
    );
    let approval = asked["approval"]["id"].as_str().unwrap();
    let answer = json!({"outcome": "proceed_once"});
    api.post(&format!("/api/v1/approvals/{approval}"), answer).await.expect_status(200);
    let polled = tokio::time::timeout(TEST_TIMEOUT, async {
        loop {
            let call = api.get(&path).await.expect_status(200);
            if call["status"] == "success" {
                return call;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let call = polled.await.expect("the call ended");
    assert_eq!(&stages(&call)[..2], ["validating", "awaiting_approval"]);
    assert_eq!(stages(&call)[stages(&call).len() - 2..], ["attempt", "closing"]);
    let shown = &call["timeline"][1]["approval"];
    assert_eq!(
        (&shown["id"], &shown["outcome"], &shown["by"]),
        (&json!(approval), &json!("proceed_once"), &json!("local"))
    );
    assert_in_order(&call);
}

struct SlowHook(Arc<Semaphore>);

impl Hook for SlowHook {
    fn after<'a>(
        &'a self,
        _: &'a HookedCall<'a>,
        _: Result<&'a Value, &'a ToolError>,
    ) -> BoxFuture<'a, Result<AfterDecision, ToolError>> {
        Box::pin(async {
            self.0.acquire().await.unwrap().forget();
            Ok(AfterDecision::Pass)
        })
    }
}

#[tokio::test]
async fn the_timeline_has_the_wait_for_a_slot_and_the_time_of_the_hooks() {
    let semaphore = || Arc::new(Semaphore::new(0));
    let (started, release, hook) = (semaphore(), semaphore(), semaphore());
    let (begins, waits) = (started.clone(), release.clone());
    let single = dynamic("single", json!({"type": "object"}), move |_: Value, _: CallContext| {
        let (begins, waits) = (begins.clone(), waits.clone());
        async move {
            begins.add_permits(1);
            waits.acquire().await.unwrap().forget();
            Ok::<_, ToolError>(json!("done"))
        }
    });
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder()
        .store(store.clone())
        .tool(single.read_only().max_concurrency(1))
        .hook("single", SlowHook(hook.clone()))
        .build()
        .await
        .unwrap();
    let router = Server::new(hub.clone(), store, settings()).router();
    let first = hub.call("single", json!({})).start();
    started.acquire().await.unwrap().forget();
    let second = hub.call("single", json!({})).start();
    while hub.queued_calls() == 0 {
        tokio::task::yield_now().await;
    }
    let running = async |id: String| send(&router, "GET", &format!("/api/v1/calls/{id}"), None, &[]).await;
    let queued = running(second.id().to_string()).await.expect_status(200);
    assert_eq!(stages(&queued), ["scheduled"], "{queued}");
    release.add_permits(2);
    hook.add_permits(2);
    first.await;
    let id = second.await.id;
    let call = running(id.to_string()).await.expect_status(200);
    assert_eq!(stages(&call), ["validating", "scheduled", "attempt", "closing"]);
    assert_in_order(&call);
}

#[tokio::test]
async fn a_run_has_a_timeline_of_its_model_requests_and_their_calls() {
    let fixture = agent_fixture().await;
    let answer = fixture.send_message("t1", "call add {\"a\":2,\"b\":3} and call look").await.expect_status(200);
    let path = format!("/api/v1/runs/{}", answer["runId"].as_str().unwrap());
    let run = fixture.api.get(&path).await.expect_status(200);
    let steps = run["timeline"].as_array().unwrap();
    assert_eq!((steps.len(), &run["steps"]), (2, &json!(2)));
    for step in steps {
        assert_eq!((&step["model"], &step["usage"]), (&json!("echo"), &json!({"inputTokens": 10, "outputTokens": 5})));
        assert!(step["startedAt"].as_str().unwrap() <= step["repliedAt"].as_str().unwrap(), "{step}");
    }
    let ids: Vec<_> = run["calls"].as_array().unwrap().iter().map(|call| call["id"].clone()).collect();
    assert_eq!((&steps[0]["calls"], ids.len()), (&json!(ids), 2));
    assert!(steps[0]["callsEndedAt"].as_str().unwrap() <= steps[1]["startedAt"].as_str().unwrap(), "{run}");
    assert_eq!((&steps[1]["calls"], &steps[1]["callsEndedAt"]), (&json!([]), &Value::Null));
    let failed = fixture.send_message("t2", "faint").await.json();
    let failed =
        fixture.api.get(&format!("/api/v1/runs/{}", failed["runId"].as_str().unwrap())).await.expect_status(200);
    assert_eq!(failed["timeline"][0]["error"]["code"], "model_failed", "{failed}");
}
